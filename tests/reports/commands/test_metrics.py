"""`metrics` as a table: of a flow that counts, every row that programs get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bbrscope.reports.cli import cli
from click.testing import CliRunner


@pytest.mark.parametrize(
    ("run", "by", "key", "silent"),
    [("v2_x_spur", "second", "t_s", {7, 12}), ("v3_x_tlp5", "phase", "phase", {"DRAIN"})],
)
def test_rows_without_an_acknowledgement_are_shown(
    shipped_path: Path, run: str, by: str, key: str, silent: set[int | str]
) -> None:
    """A second of an outage, or a phase in which holes kept all from being acknowledged."""
    asked = ["metrics", run, "--by", by, "--store", str(shipped_path)]
    rows = json.loads(CliRunner().invoke(cli, [*asked, "--format", "json"]).stdout)
    assert {row[key] for row in rows if row["acked_bytes"] == 0} == silent
    head, _, *lines = CliRunner().invoke(cli, asked).stdout.splitlines()
    place = head.split().index(key)
    shown = [line.split()[place] for line in lines if line.startswith(run)]
    assert shown == [str(row[key]) for row in rows]
