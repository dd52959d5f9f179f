"""What a stranger put into a file does nothing to the terminal, the spreadsheet or the shell."""

from __future__ import annotations

import ast
import csv
import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pyarrow as pa
import pytest
from bbrscope.analyze.replay.flow_replay import FlowReplay
from bbrscope.analyze.study.study import Study
from bbrscope.collect.bundle.manifest_values import RUN_NAME
from bbrscope.collect.lab import scenario
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports import cli
from bbrscope.reports.commands import study
from bbrscope.reports.text import lab_text
from bbrscope.reports.text.agreement import AgreementText
from bbrscope.reports.text.print_table import write_table
from bbrscope.reports.text.screen import say

REPORTS = Path(__file__).resolve().parents[3] / "reports"
_HOSTILE_SCENARIO = """
title = "t\\nclaims:\\u202e"
source = "s\\nclaims:"
about = "a\\nclaims:"
duration = "1s"
path = { rate = "10mbit", rtt = "40ms", buffer = "2bdp" }
params = { cc = "bbr", x = "v\\nclaims:" }
flow = [{ cc = "$cc" }]

[[claim]]
text = "c\\nclaims:"
source = "s\\nclaims:"
sql = "SELECT true AS reproduced, 'x' AS measured"
"""
HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\rd\x9b31me\x7f\u202ef\x1b[8mg"


def test_a_terminal_is_reported_nothing_but_text(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"first {HOSTILE}\nsecond", bold=True)
    out = capsys.readouterr().out
    assert out.count("\n") == 2
    assert not any(char in out for char in "\x07\r\x9b\x7f\u202e")
    assert "\x1b[2J" not in out
    assert "\x1b[8m" not in out
    assert "\\x1b[2Jb" in out


def test_what_a_manifest_says_of_its_bbr_stays_in_its_line() -> None:
    hostile = "\n  flow 1 step  9 of 9 events exact\x1b[1m"
    info = SimpleNamespace(run="run", flavour="v2", decoded_as=f"the manifest says {hostile}")
    flow = SimpleNamespace(info=info, passes={}, has_init=True, count=1, missing=[hostile], gaps=())
    lines: list[str] = []
    AgreementText(lines.append, fields=False).run([cast(FlowReplay, flow)])
    assert len(lines) == 2
    assert all(r"\n  flow 1 step" in line and line.isprintable() for line in lines)


def test_what_a_scenario_says_stays_in_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(_HOSTILE_SCENARIO)
    loaded = scenario.load(str(path))
    text = lab_text.description(loaded)
    assert text.count("claims:") - text.count("\\nclaims:") == 1
    assert all(line.isprintable() for line in text.split("\n"))
    drawn = SimpleNamespace(
        figure=loaded, tree=None, why_none=loaded.title, rows=SimpleNamespace(num_rows=1)
    )
    chosen = SimpleNamespace(quick=False, run_ids=[], other_form=0, invalid=[])
    judged = SimpleNamespace(scenario=loaded, chosen=chosen, verdicts=[], drawn=[drawn])
    study._print(cast("Study", judged))
    assert "\nclaims:" not in capsys.readouterr().out


def test_styles_of_bbrscopes_own_pass(capsys: pytest.CaptureFixture[str]) -> None:
    styled = click.style("bold", bold=True)
    context = click.Context(click.Command("x"), color=True)
    with context:
        say(styled)
        say("red", fg="red")
        say("a name \x1b[30mthat hides a caveat")
    bold, red, name = capsys.readouterr().out.splitlines()
    assert bold == styled
    assert red == click.style("red", fg="red", bold=False)
    assert name == "a name \\x1b[30mthat hides a caveat"


def test_errors_are_printed_the_same_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BbrscopeError(f"fact {HOSTILE}", f"way {HOSTILE}")

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit):
        cli.main([])
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "\\x1b[2J" in err


def test_what_is_wrong_with_the_usage_is_printed_the_same_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["diagnose", "--explain", HOSTILE], ["plot", HOSTILE, "x"], [HOSTILE]):
        with pytest.raises(SystemExit):
            cli.main(words)
        err = capsys.readouterr().err
        assert "\x1b" not in err
        assert "\\x1b[2J" in err


def test_nothing_else_in_reports_prints_text() -> None:
    """Names and notes of recordings reach the screen through `say`, or in tables and JSON."""
    others = []
    for path in sorted(REPORTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "print",
                "click.echo",
                "click.secho",
            ):
                others.append(str(path.relative_to(REPORTS)))
    assert set(others) == {"text/screen.py", "text/print_table.py"}


def test_text_that_a_spreadsheet_would_run_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "plain", "a=b"]
    table = pa.table({"text": texts, "number": [-1.5] * len(texts)})
    write_table(table, "csv")
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))[1:]
    assert [row[0] for row in rows] == [f"'{text}" for text in texts[:5]] + texts[5:]
    assert {row[1] for row in rows} == {"-1.5"}


@pytest.mark.parametrize(
    "name", ["--help", "=1+1", "+1", "@x", "-", "", ".", "..", "a b", "a/b", "x" * 101]
)
def test_what_commands_or_spreadsheets_take_for_something_else_names_no_run(name: str) -> None:
    assert not RUN_NAME.fullmatch(name)


def test_a_full_disk_under_the_output_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit):
        cli.main([])
    err = capsys.readouterr().err
    assert err == "bbrscope: cannot use the output: No space left on device\n"
