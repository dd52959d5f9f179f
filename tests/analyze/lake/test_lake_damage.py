"""A damaged file of a lake is named, and what does not need it is answered all the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bbrscope import fixtures
from bbrscope.analyze.lake import run_files
from bbrscope.analyze.lake.load_runs import AddOptions, file_bundles
from bbrscope.analyze.lake.run_files import SMALL
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lake import lake_upkeep
from bbrscope.collect.lake.lake_manifest import write_rows
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.probes.base.errors import StoreError

from tests.fuzz.commands import run

NAMES = ("v1_x_lt", "v2_x_spur")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake; one of its runs' tables were held in memory, the other's asked for by themselves."""
    lake = tmp_path_factory.mktemp("whole") / "lake"
    open_place(lake, create=True)
    for name, most in zip(NAMES, (SMALL, 0), strict=True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_files, "SMALL", most)
            file_bundles(str(lake), [fixtures.path(name)], AddOptions())
    return lake


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "lake")


def first_of(lake: Path) -> tuple[str, Path]:
    """The run whose files DuckDB opens first for their columns, and its events."""
    with open_store(lake, read_only=True) as opened:
        run = str(opened.rows[0]["run"])  # type: ignore[attr-defined]
    (events,) = lake.glob(f"events/**/run={run}/**/*.parquet")
    return run, events


def test_a_file_cut_short_is_named_and_the_other_runs_are_told(lake: Path) -> None:
    """It was an internal error of every command, if the file was the first of its table."""
    cut, events = first_of(lake)
    events.write_bytes(events.read_bytes()[:3000])
    other = next(name for name in NAMES if name != cut)
    for words in (("runs",), ("explain", other), ("diagnose", other), ("metrics", other)):
        done = run(*words, "--store", lake)
        assert (done.status, done.failure, "damaged" in done.err) == (0, "", False), words
    for words in (("explain", cut), ("diagnose",), ("sql", "SELECT sum(ns) FROM events")):
        done = run(*words, "--store", lake)
        assert (done.status, done.failure) == (1, ""), words
        assert f"of run {cut} in the lake {lake} has 3,000 bytes, not the" in done.err
        assert "lake check" in done.err
    with pytest.raises(StoreError, match="cannot be read"):
        list(lake_upkeep.compact(open_place(lake)))


def test_a_file_that_is_gone_is_named(lake: Path) -> None:
    gone, events = first_of(lake)
    events.unlink()
    done = run("explain", gone, "--store", lake)
    assert (done.status, done.failure) == (1, "")
    assert f"of run {gone} in the lake {lake} is missing" in done.err
    with pytest.raises(StoreError, match="cannot be read"):
        list(lake_upkeep.compact(open_place(lake)))
    lake_upkeep.remove(open_place(lake), [gone])
    assert list(lake_upkeep.check(open_place(lake), read=True)) == []


def changed(lake: Path, number: int, **values: object) -> str:
    """Change a run's row of the manifest; return its name."""
    path = sorted(lake.glob("manifest/*.parquet"))[number]
    (row,) = pq.read_table(path, partitioning=None).to_pylist()
    write_rows([{**row, **values}], path)
    return str(row["run"])


def test_runs_of_another_schema_are_named_and_not_merged_with_others(lake: Path) -> None:
    """The lake said no more than that it has some, and `check` that nothing is wrong."""
    other = changed(lake, 0, schema_version=4)
    done = run("runs", "--store", lake)
    assert (done.status, done.failure) == (1, "")
    assert f"1 run with schema version 4, such as {other}; this bbrscope" in done.err
    place = open_place(lake)
    (fault,) = lake_upkeep.check(place)
    assert f"run {other} has schema version 4" in fault.what
    assert list(lake_upkeep.compact(place)) == []
    lake_upkeep.remove(place, [other])
    assert run("runs", "--store", lake).status == 0


def test_a_fleet_says_that_its_runs_were_not_diagnosed_alike(lake: Path) -> None:
    assert "diagnosed by" not in run("fleet", lake).err
    changed(lake, 0, views="0" * 64, made_by="bbrscope 0.0.9")
    said = run("fleet", lake).err
    assert "runs were diagnosed by 2 states of bbrscope (bbrscope 0.0.9, bbrscope 0.1.0)" in said


def test_an_empty_lake_says_what_fills_a_lake(tmp_path: Path) -> None:
    open_place(tmp_path / "lake", create=True)
    for words in (("runs",), ("diagnose",), ("metrics",), ("explain", "x")):
        done = run(*words, "--store", tmp_path / "lake")
        assert "bbrscope lake add DIR BUNDLE" in done.out + done.err, words
    done = run("fleet", tmp_path / "lake", "-o", tmp_path / "fleet.html", "--reports", "3")
    assert (done.status, done.failure) == (0, "")


@pytest.mark.parametrize("merged", [False, True])
def test_a_bit_that_flipped_is_found(lake: Path, merged: bool) -> None:
    """zstd and lz4 notice one of three: it was other numbers, and "nothing is wrong"."""
    place = open_place(lake)
    if merged:
        list(lake_upkeep.compact(place))
    for table in ("events", "decisions"):
        for path in lake.glob(f"{table}/**/*.parquet"):
            good = path.read_bytes()
            # Where rows are, not in the frame around them.
            for at in range(len(good) // 10, len(good) // 2, len(good) // 5):
                path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
                # Once, however many runs have rows in it.
                (fault,) = lake_upkeep.check(place, read=True)
                assert path.name in fault.what
                assert "is damaged" in fault.what
            path.write_bytes(good)
    assert list(lake_upkeep.check(place, read=True)) == []
