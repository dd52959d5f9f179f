"""``--names draft`` renames what users see, and nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from bbrscope.reports.cli import cli
from click.testing import CliRunner

QUERY = (
    "SELECT e.bbr_inflight_hi, p.phase FROM events e JOIN phases p USING (run_id, flow)"
    " WHERE p.phase = 'PROBE_BW_UP' AND run = 'v2_single_1bdp' LIMIT 1"
)


@pytest.fixture
def store(shipped_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "names.duckdb"
    shutil.copy(shipped_path, path)
    return path


def _said(*words: str) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("output_format", ["table", "json", "csv"])
def test_sql_renames_columns_and_words(store: Path, output_format: str) -> None:
    common = ("sql", QUERY, "--store", str(store), "--format", output_format)
    assert "bbr_inflight_hi" in _said(*common)
    said = _said(*common, "--names", "draft")
    assert "bbr_inflight_longterm" in said
    assert "ProbeBW_UP" in said
    assert "inflight_hi" not in said


def test_replay_renames_fields(store: Path) -> None:
    common = ("replay", "v2_x_spur", "--store", str(store), "--json")
    fields = json.loads(_said(*common, "--names", "draft"))["runs"][0]["flows"][0]["fields"]
    assert fields["inflight_longterm"]["exact"] > 5_000
    assert "inflight_hi" not in fields
    assert "inflight_hi" in json.loads(_said(*common))["runs"][0]["flows"][0]["fields"]


def test_the_open_loop_renames_decisions_parameters_stay(store: Path) -> None:
    words = ("replay", "v2_single_1bdp", "--store", str(store), "--set", "loss_thresh=5%")
    assert "loss_thresh: 5 -> 13" in _said(*words, "--names", "draft")


def test_metrics_rename_phases(store: Path) -> None:
    words = ("metrics", "v2_single_1bdp", "--store", str(store), "--by", "phase")
    assert "PROBE_BW_UP" in _said(*words)
    assert "ProbeBW_UP" in _said(*words, "--names", "draft")


def test_the_report_carries_the_renaming_only_when_asked_for(store: Path, tmp_path: Path) -> None:
    for names, expected in (("kernel", False), ("draft", True)):
        path = tmp_path / f"{names}.html"
        said = ("report", "v2_x_spur", "--store", str(store), "-o", str(path), "--names", names)
        _said(*said)
        assert ('"inflight_hi": "inflight_longterm"' in path.read_text()) is expected
