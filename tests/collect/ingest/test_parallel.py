"""Several threads load what one loads, row for row, and one that fails hurts no other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.collect.bundle.bundle import COMPLETE
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.ingest.outcome import Outcome
from bbrscope.collect.ingest.parallel import Options, ingest_many
from bbrscope.collect.store import schema
from bbrscope.collect.store.store import open_store
from bbrscope.probes.base.errors import BbrscopeError, StoreError
from bbrscope.reports.cli import cli
from click.testing import CliRunner


def test_the_store_is_the_same_and_loading_again_changes_nothing(
    shipped_path: Path, tmp_path: Path
) -> None:
    """Compared with the session's store, whose runs were loaded one after the other."""
    paths = [fixtures.path(name) for name in fixtures.names()]
    with open_store(tmp_path / "many.duckdb") as store:
        results = list(ingest_many(store, paths, Options(), 2))
        assert [outcome.run for outcome in results] == list(fixtures.names()) == store.runs()
        assert not any(outcome.already for outcome in results)
        assert all(outcome.already for outcome in ingest_many(store, paths[:2], Options(), 2))
    with duckdb.connect() as con:  # a store's own connection opens no other file
        con.execute(f"ATTACH '{tmp_path / 'many.duckdb'}' AS many (READ_ONLY)")
        con.execute(f"ATTACH '{shipped_path}' AS one (READ_ONLY)")
        for table in schema.TABLES:
            if table.name == "meta":
                continue
            both = [f'SELECT * FROM {place}."{table.name}"' for place in ("many", "one")]
            for left, right in (both, both[::-1]):
                rows = con.execute(f"({left}) EXCEPT ALL ({right})").fetchall()
                assert rows == [], table.name
    assert [path.name for path in tmp_path.iterdir()] == ["many.duckdb"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_that_fails_leaves_the_others_alone(tmp_path: Path, jobs: str) -> None:
    paths = [fixtures.path("v2_x_spur"), tmp_path / "none", fixtures.path("v1_x_lt")]
    args = ["ingest", *map(str, paths), "--store", str(tmp_path / "s.duckdb"), "--jobs", jobs]
    done = CliRunner().invoke(cli, args)
    assert isinstance(done.exception, BbrscopeError)
    assert done.exception.fact.startswith("1 of 3 bundles not loaded")
    assert "there is no bundle" in done.stderr
    assert COMPLETE in done.stderr
    with open_store(tmp_path / "s.duckdb") as store:
        assert store.runs() == ["v2_x_spur", "v1_x_lt"]
    assert [path.name for path in tmp_path.iterdir()] == ["s.duckdb"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_that_fails_half_way_leaves_those_that_are_loaded_with_it_alone(
    tmp_path: Path, jobs: str
) -> None:
    """They share a transaction, which is then of no use: each gets one of its own."""
    broken = tmp_path / "broken"
    shutil.copytree(fixtures.path("v3_x_tlp5"), broken)
    manifest = json.loads((broken / "manifest.json").read_text())
    counts = {tag: count + 1 for tag, count in manifest["events"].items()}
    (broken / "manifest.json").chmod(0o644)
    (broken / "manifest.json").write_text(json.dumps(manifest | {"events": counts}))
    paths = [fixtures.path("v2_x_spur"), broken, fixtures.path("v1_x_lt")]
    folder = tmp_path / "stores"
    folder.mkdir()
    args = ["ingest", *map(str, paths), "--store", str(folder / "s.duckdb"), "--jobs", jobs]
    done = CliRunner().invoke(cli, args)
    assert isinstance(done.exception, BbrscopeError)
    assert done.exception.fact.startswith("1 of 3 bundles not loaded")
    assert "is not as it was recorded" in done.stderr
    with open_store(folder / "s.duckdb") as store:
        assert store.runs() == ["v2_x_spur", "v1_x_lt"]
        counted = "SELECT count(*) FROM events GROUP BY run_id ORDER BY run_id"
        said = store.con.execute("SELECT events FROM runs ORDER BY run_id").fetchall()
        assert store.con.execute(counted).fetchall() == said
    assert [path.name for path in folder.iterdir()] == ["s.duckdb"]


def test_an_interrupt_leaves_the_store_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    """Runs that were told of are there, and nothing of the others."""
    copies = []
    for number in range(30):  # more than the threads have in hand when the first share is told of
        copies.append(tmp_path / f"copy{number}")
        shutil.copytree(fixtures.path("v1_x_lt"), copies[-1])
        manifest = json.loads((copies[-1] / "manifest.json").read_text())
        (copies[-1] / "manifest.json").chmod(0o644)
        (copies[-1] / "manifest.json").write_text(json.dumps(manifest | {"name": f"c{number}"}))
    folder = tmp_path / "stores"
    folder.mkdir()
    words = [sys.executable, "-m", "bbrscope.reports", "ingest", "--jobs", "2"]
    words += ["--store", str(folder / "s.duckdb"), *map(str, copies)]
    # Without a buffer: communicate() passes over what readline() has put into one.
    with subprocess.Popen(
        words, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as run:
        assert run.stdout
        results = [run.stdout.readline().decode().partition(":")[0]]
        os.killpg(run.pid, signal.SIGINT)
        rest, said = (part.decode() for part in run.communicate(timeout=300))
    results += [line.partition(":")[0] for line in rest.splitlines() if not line.startswith(" ")]
    assert run.returncode != 0
    assert "Traceback" not in said
    with open_store(folder / "s.duckdb") as store:
        assert results == store.runs()[: len(results)]
        assert 1 <= len(store.runs()) < len(copies)
        rows = store.con.execute("SELECT DISTINCT events FROM runs").fetchall()
        assert rows == [(3857,)]
        counted = "SELECT count(*) FROM events GROUP BY run_id"
        assert set(store.con.execute(counted).fetchall()) == {(3857,)}
    assert [path.name for path in folder.iterdir()] == ["s.duckdb"]


def test_a_run_that_waits_for_the_commit_has_its_name_number_and_content(tmp_path: Path) -> None:
    """Loaded in one transaction, whose rows go in at its end."""
    log = "1700000000\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t bbr cwnd:10\n"
    paths = [tmp_path / "a" / "one.log", tmp_path / "b" / "one.log", tmp_path / "two.log"]
    for number, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text(log * (1 + number))
    with open_store(tmp_path / "s.duckdb") as store:
        with store.joined():
            first, again, third = (ingest(store, paths[number]) for number in (0, 0, 2))
        assert [(one.run, one.run_id, one.already) for one in (first, again, third)] == [
            ("one", 1, False),
            ("one", 1, True),
            ("two", 2, False),
        ]
        with store.joined():
            ingest(store, fixtures.path("v1_x_lt"), name="one", replace=True)
            with pytest.raises(StoreError, match="another run called 'one'"):
                ingest(store, paths[1])
        with store.joined():
            ingest(store, fixtures.path("v1_x_lt"), name="three")
            replaced = ingest(store, paths[1], replace=True)
        assert store.con.execute("SELECT run, run_id FROM runs ORDER BY run_id").fetchall() == [
            ("two", 2),
            ("three", 3),
            ("one", replaced.run_id),
        ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_names_that_are_taken_are_refused_or_replaced(tmp_path: Path, jobs: int) -> None:
    """Also within one share, which two of four are for one process."""
    other = tmp_path / "v1_x_lt.log"
    other.write_text("1700000000\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t bbr cwnd:10\n")
    paths = [other, fixtures.path("v1_x_lt"), other, other]
    with open_store(tmp_path / "s.duckdb") as store:
        first, refused, again, last = ingest_many(store, paths, Options(), jobs)
        assert isinstance(refused, StoreError)
        assert "another run called 'v1_x_lt'" in refused.fact
        assert isinstance(first, Outcome)
        assert isinstance(again, Outcome)
        assert isinstance(last, Outcome)
        assert (first.already, again.already, last.already) == (False, True, True)
        assert [row[0] for row in store.con.execute("SELECT events FROM runs").fetchall()] == [0]
        results = list(ingest_many(store, paths[1:2], Options(replace=True), jobs))
        assert (store.runs(), results[0].events) == (["v1_x_lt"], 3857)
        with pytest.raises(StoreError):
            ingest(store, other)
