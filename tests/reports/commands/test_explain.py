"""``bbrscope explain``: what a user sees, and what each option changes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.reports.cli import main
from bbrscope.reports.text.stories.change_table import PAGE

RUN = "v2_single_1bdp"
Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(shipped_path: Path, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Run the command on the shipped recordings; returns exit status, output and errors."""

    def run(*arguments: str, store: Path = shipped_path) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["explain", *arguments, "--store", str(store)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.mark.parametrize("run", [RUN, "v1_x_lt", "v2_x_spur", "v3_x_tlp5"])
def test_a_flow_is_reported_in_two_screens(explain: Explain, run: str) -> None:
    status, out, _ = explain(run)
    assert status == 0
    assert len(out.splitlines()) <= PAGE + 30
    assert "STARTUP begins" in out
    assert "% of time limited by" in out
    assert "exact" in out


def test_full_tells_every_change_and_json_too(explain: Explain) -> None:
    _, short, _ = explain("v3_x_tlp5")
    _, full, _ = explain("v3_x_tlp5", "--full")
    assert len(full.splitlines()) > len(short.splitlines())
    _, out, _ = explain("v3_x_tlp5", "--json")
    lines = json.loads(out)["flows"][0]["lines"]
    changes = [line for line in full.splitlines() if re.match(r" *\d+\.\d{3}  ", line)]
    assert len(changes) == len(lines)


def test_json_has_reasons_with_evidence_and_trust(explain: Explain) -> None:
    _, out, _ = explain(RUN, "--json", "--flow", "1")
    document = json.loads(out)
    (flow,) = document["flows"]
    assert flow["trust"]["exact"] == flow["trust"]["replayed"] > 10_000
    first = flow["lines"][0]["reasons"][0]
    assert (first["code"], first["function"]) == ("INIT", "bbr_init")
    assert first["evidence"]["cwnd"] == 10
    shares = [row["share"] for row in flow["binding"] if row["phase"] == "ALL"]
    assert sum(shares) == pytest.approx(1)


def test_between_and_only_cut_the_story(explain: Explain) -> None:
    _, out, _ = explain(RUN, "--between", "12s", "12500ms", "--json", "--flow", "1")
    lines = json.loads(out)["flows"][0]["lines"]
    assert [line["new"] for line in lines] == [
        "PROBE_BW_REFILL",
        "PROBE_BW_UP",
        "PROBE_BW_DOWN",
        "PROBE_BW_CRUISE",
    ]
    _, out, _ = explain(RUN, "--only", "inflight_hi", "--json", "--flow", "1")
    lines = json.loads(out)["flows"][0]["lines"]
    assert lines
    assert {line["about"] for line in lines} == {"inflight_hi"}
    assert [line["old"] for line in lines[1:]] == [line["new"] for line in lines[:-1]]


def test_all_shows_the_decisions_not_to_change(explain: Explain) -> None:
    _, out, _ = explain(RUN, "--between", "12", "12.4", "--all", "--only", "phase")
    assert "CRUISE_STAY" in out
    assert "times until" in out


def test_draft_names_leave_none_of_the_kernels(explain: Explain) -> None:
    _, kernel, _ = explain(RUN)
    _, draft, _ = explain(RUN, "--names", "draft")
    assert "inflight_hi" in kernel
    assert "inflight_longterm" in draft
    words = set(re.findall(r"\w+", draft))
    assert not words & {"inflight_hi", "inflight_lo", "bw_lo", "PROBE_RTT", "STARTUP"}
    assert "bbr2_" not in draft
    _, by_draft, _ = explain(RUN, "--only", "inflight_longterm", "--json")
    _, by_kernel, _ = explain(RUN, "--only", "inflight_hi", "--json")
    assert by_draft == by_kernel


def test_at_tells_state_limit_and_wait(explain: Explain) -> None:
    status, out, _ = explain(RUN, "--at", "12.3s")
    assert status == 0
    for label in ("phase", "inflight_hi", "bw_lo", "limited by", "waits for"):
        assert label in out
    _, out, _ = explain(RUN, "--at", "12.3s", "--json")
    assert json.loads(out)["flows"][0]["phase"] == "PROBE_BW_CRUISE"


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["nope"], 1, "no run called 'nope'"),
        ([RUN, "--flow", "9"], 1, "has no flow 9"),
        ([RUN, "--at", "99s"], 1, "was recorded from 0 s to"),
        ([RUN, "--at", "soon"], 2, "is not a time"),
        ([RUN, "--between", "3s", "2s"], 2, "FROM is after TO"),
        ([RUN, "--only", "nonsense"], 2, "no decision is about it"),
    ],
)
def test_mistakes_get_one_clear_message(
    explain: Explain, arguments: list[str], status: int, text: str
) -> None:
    got, out, err = explain(*arguments)
    assert got == status
    assert out == ""
    assert text in err
    assert "Traceback" not in err


def test_a_run_that_was_not_replayed_is_replayed_first(explain: Explain, tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    with open_store(path) as store:
        ingest(store, fixtures.path("v1_x_lt"))
    status, out, _ = explain("v1_x_lt", store=path)
    assert status == 0
    assert "policer assumed" in out
    with open_store(path, read_only=True) as store:
        assert store.con.execute("SELECT count(*) > 0 FROM decisions").fetchone() == (True,)


_READER = """
import duckdb, sys
held = duckdb.connect(sys.argv[1], read_only=True)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_store_that_cannot_be_written_says_what_to_do(explain: Explain, tmp_path: Path) -> None:
    """Another process reads the store, so that it can be read but not written, even by root."""
    path = tmp_path / "new.duckdb"
    with open_store(path) as store:
        ingest(store, fixtures.path("v1_x_lt"))
    command = [sys.executable, "-c", _READER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"ready\n"
        status, _, err = explain("v1_x_lt", store=path)
        assert reader.stdin is not None
        reader.stdin.close()
    assert status == 1
    assert "has not been replayed" in err
    assert "bbrscope replay v1_x_lt" in err


def test_a_store_that_is_only_read_is_not_changed(
    explain: Explain, shipped_path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.duckdb"
    shutil.copy(shipped_path, copy)
    before = copy.read_bytes()
    status, _, _ = explain(RUN, store=copy)
    assert status == 0
    assert copy.read_bytes() == before
