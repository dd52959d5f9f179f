"""`replay --as FILE`: what it decides, which codes recordings exercise, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bbrscope.analyze.bbr.codes import BY_NAME, CODES
from bbrscope.collect.store.store import Store

BBRSCOPE = (sys.executable, "-c", "from bbrscope.reports.cli import main; main()")
ROOT = Path(__file__).resolve().parents[3]
RUN = "v1_x_lt"
MINE = """
from bbrscope.analyze.bbr.versions.v1 import bbr_init, dispatch as dispatch_v1
BASE = "v1"
{params}
def dispatch(bbr, ev, p, log):
    {first}
    dispatch_v1(bbr, ev, p, log)
"""


def _replay(store: Path, *words: str, run: str = RUN) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BBRSCOPE_PLAIN": "1", "BBRSCOPE_STORE": str(store)}
    return subprocess.run(
        [*BBRSCOPE, "replay", run, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _answer(store: Path, *words: str) -> dict[str, Any]:
    done = _replay(store, *words, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_file_decides_as_its_rules_say(
    shipped: Store, shipped_path: Path, tmp_path: Path
) -> None:
    same, other = tmp_path / "same.py", tmp_path / "other.py"
    same.write_text(MINE.format(params="", first="pass"))
    other.write_text(MINE.format(params='PARAMS = {"full_bw_cnt": 1}', first="pass"))
    # Where a file changes nothing, it decides what the replay keeps of the recording.
    kept = {
        CODES[number].name: count
        for number, count in shipped.con.execute(
            "SELECT code, count(*) FROM decisions WHERE run_id = ? AND flow = ("
            "  SELECT flow FROM flows WHERE run_id = ? ORDER BY events DESC LIMIT 1) GROUP BY ALL",
            [shipped.run_id(RUN)] * 2,
        ).fetchall()
    }
    document = _answer(shipped_path, "--as", str(same))
    (answer,) = document["open_loop"]
    assert answer["first_decision"] is None
    assert answer["decided"] == document["exercised"] == kept
    assert not kept.keys() & set(document["never"])
    of_v1 = {name for name, code in BY_NAME.items() if "1" in code.versions}
    assert of_v1 <= kept.keys() | set(document["never"])
    # Parameters of a file are those that --set sets.
    settings = ("--set", "full_bw_cnt=1")
    (by_file,) = _answer(shipped_path, "--as", str(other))["open_loop"]
    (by_set,) = _answer(shipped_path, *settings)["open_loop"]
    assert by_file["first_decision"] is not None
    assert by_file | {"as_version": "v1"} == by_set


def test_the_variant_of_the_estimators_page_decides_as_the_page_shows(
    shipped_path: Path, tmp_path: Path
) -> None:
    page = (ROOT / "analyze/bbr/README.md").read_text()
    variant, shown = (
        re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)[0]
        for language in ("python", "text")
    )
    (tmp_path / "patient.py").write_text(variant)
    done = _replay(shipped_path, "--as", str(tmp_path / "patient.py"), run="v3_x_tlp5")
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


def test_what_goes_wrong_is_said(shipped_path: Path, tmp_path: Path) -> None:
    raises = tmp_path / "raises.py"
    raises.write_text(MINE.format(params="", first="assert bbr.mode < 2, 'in PROBE_BW'"))
    for rules, fact in {
        str(raises): "raises.py raised AssertionError in line 6: in PROBE_BW",
        "bbr9": "there are no rules 'bbr9'",
        "./absent.py": "there is no file ./absent.py",
    }.items():
        done = _replay(shipped_path, "--as", rules)
        assert done.returncode == 1
        assert fact in done.stderr
        assert "Traceback" not in done.stderr
