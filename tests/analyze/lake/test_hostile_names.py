"""Names in a lake come from strangers: they name folders, and stand on pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fuzz import inputs
from tests.fuzz.commands import run

HOSTILE = "</script><script>alert(1)</script>{{datum.x}}\x1b[31m\u202e/../=1+1 漢字"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of a recording, whose kernel and scenario have such names."""
    made = inputs.bundle_of(tmp_path_factory.mktemp("hostile") / "b", "v2_x_spur", 1400)
    path = made / "manifest.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"kernel": HOSTILE, "scenario": HOSTILE}))
    return made


def test_hostile_names_stay_text_in_a_lake_and_on_the_page_of_a_fleet(
    bundle: Path, tmp_path: Path
) -> None:
    lake, page = tmp_path / "lake", tmp_path / "fleet.html"
    add = ("lake", "add", lake, "--jobs", "1", "--salvage", "--host", HOSTILE, "--", bundle)
    assert run(*add).status == 0
    assert {path.name for path in tmp_path.iterdir()} == {"lake"}
    said = run("sql", "--store", lake, "--format", "json", "SELECT host FROM lake_runs").out
    assert json.loads(said) == [{"host": HOSTILE}]
    for words in (
        ("fleet", lake, "--by", "host"),
        ("runs", "--store", lake),
        ("lake", "check", lake),
    ):
        done = run(*words)
        assert (done.status, done.failure) == (0, ""), words
        assert not {"\x1b", "\u202e"} & set(done.out), words
    assert run("fleet", lake, "-o", page, "--reports", "1").status == 0
    for html in (page, *tmp_path.glob("fleet_reports/*.html")):
        text = html.read_text()
        assert "<script>alert" not in text
        assert not {"\x1b", "\u202e"} & set(text), html


@pytest.mark.parametrize("host", ["", "x" * 241, "漢字" * 15])
def test_a_host_that_cannot_name_a_folder_is_refused_before_a_lake_is_made(
    host: str, bundle: Path, tmp_path: Path
) -> None:
    """It was "File name too long", in words of the system, once the bundle had been loaded."""
    done = run("lake", "add", tmp_path / "lake", "--host", host, "--", bundle)
    assert (done.status, done.failure) == (1, "")
    assert "a host's name must take 1 to 240 bytes as the name of a folder" in done.err
    assert not (tmp_path / "lake").exists()
