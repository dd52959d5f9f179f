"""``bbrscope demo`` does the whole job into a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.reports.commands.demo import command
from click.testing import CliRunner


def test_the_demo_leaves_a_store_and_a_report_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 0, done.output
    folder = tmp_path / "bbrscope-demo"
    assert {path.name for path in folder.iterdir()} == {"bbrscope.duckdb", "v2_single_1bdp.html"}
    assert (folder / "v2_single_1bdp.html").resolve().as_uri() in done.output
    assert "10,600 of 10,600 events exact" in done.output
    assert "v2_single_1bdp (BBR v2): no findings" in done.output
    assert "STARTUP -> DRAIN" in done.output
    with open_store(folder / "bbrscope.duckdb", read_only=True) as store:
        assert store.runs() == ["v2_single_1bdp"]


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("text")
    done = CliRunner().invoke(command, ["-o", str(tmp_path)])
    assert done.exit_code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
