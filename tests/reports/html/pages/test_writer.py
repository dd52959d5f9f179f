"""No output takes the place of a store, a recording's file, or what the command itself reads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bbrscope.collect.lake.lake_place import MARK
from bbrscope.collect.store.store import open_store
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.html.pages.writer import check_free

from tests.fuzz.commands import run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store without runs."""
    path = tmp_path / "s.duckdb"
    open_store(path).close()
    return path


def refused(path: Path, *inputs: Path) -> str:
    with pytest.raises(BbrscopeError, match="and is not overwritten") as error:
        check_free(path, True, *inputs)
    return error.value.fact


def test_a_store_is_never_overwritten_by_whatever_name(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    os.link(store, tmp_path / "hard.html")
    for name in ("s.duckdb", "link", "hard.html"):
        assert (
            refused(tmp_path / name) == f"{tmp_path / name} is a database, and is not overwritten"
        )


def test_nor_is_the_log_of_a_store_made(store: Path, tmp_path: Path) -> None:
    """The next one to open the store would read it."""
    (tmp_path / "link.duckdb").symlink_to(store)
    for name in ("s.duckdb.wal", "link.duckdb.wal"):
        assert "is the log of the database" in refused(tmp_path / name)
    check_free(tmp_path / "other.wal", False)


def test_nor_is_a_file_of_a_recording_or_a_lake(tmp_path: Path) -> None:
    for name in ("manifest.json", "events.csv.zst", "report.html"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "events.csv.zst")
    for name in ("manifest.json", "events.csv.zst", "link"):
        assert "is a file of the recording" in refused(tmp_path / name)
    check_free(tmp_path / "report.html", True)
    (tmp_path / "lake" / "runs").mkdir(parents=True)
    for name in (MARK, "runs/1.parquet", "fleet.html"):
        (tmp_path / "lake" / name).touch()
    for name in (MARK, "runs/1.parquet"):
        assert "is a file of the lake" in refused(tmp_path / "lake" / name)
    check_free(tmp_path / "lake" / "fleet.html", True)


def test_a_link_that_leads_round_in_a_circle_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to("round")
    check_free(tmp_path / "round", False)
    with pytest.raises(BbrscopeError, match="there is no folder"):
        check_free(tmp_path / "round" / "r.html", True)


def test_nor_is_what_the_command_reads(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    (tmp_path / "other").symlink_to("mine.toml")
    for name in ("mine.toml", "other"):
        assert "is what this command reads" in refused(tmp_path / name, tmp_path / "mine.toml")
    check_free(tmp_path / "mine.toml", True, tmp_path / "absent.toml")


@pytest.mark.parametrize(
    "words",
    [
        ("export", "--format", "qlog", "r"),
        ("export", "--format", "perfetto", "r"),
        ("study", "song-cubic"),
        ("fleet", "lake"),
    ],
)
def test_every_command_that_writes_a_file_leaves_the_store(
    words: tuple[str, ...], store: Path
) -> None:
    before = store.read_bytes()
    at = () if words[0] == "fleet" else ("--store", str(store))
    done = run(*words, *at, "--force", "-o", str(store))
    assert (done.status, done.failure) == (1, "")
    assert f"{store} is a database, and is not overwritten" in done.err
    assert store.read_bytes() == before
