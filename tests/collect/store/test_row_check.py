"""Rows that no bbrscope put into a store end in fact, cause and way out, wherever they fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import duckdb
import pytest
import zstandard
from bbrscope import fixtures
from bbrscope.analyze.replay import keep_results, replay_runs
from bbrscope.analyze.views.materialize import materialize_replayed
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.row_check import check_rows
from bbrscope.probes.base.errors import StoreError

from tests.conftest import write_bundle
from tests.fuzz.commands import run

ROWS = 500


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the beginning of a recording, replayed."""
    folder = tmp_path_factory.mktemp("rows")
    with zstandard.open(fixtures.path("v3_x_tlp5") / "events.csv.zst", "rt") as file:
        write_bundle(folder / "short", [line.rstrip() for line in islice(file, ROWS)])
    with open_store(folder / "s.duckdb") as store:
        ingest(store, folder / "short", salvage=True)
        for _ in keep_results.keep_all(store, replay_runs.replay_parts(store.con, [1])):
            pass
        materialize_replayed(store, [1], 1)
    return folder / "s.duckdb"


@pytest.fixture
def changed(replayed: Path, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Its copy, as a stranger opens it to change its rows."""
    shutil.copy(replayed, tmp_path / "s.duckdb")
    with duckdb.connect(str(tmp_path / "s.duckdb")) as con:
        yield con


CASES = {
    "UPDATE events SET ns = 9223372036854775000": "events.ns is out of range",
    "UPDATE events SET ns = ns + 9223372036854000000 WHERE rowid % 7 = 3": "events.ns is out of",
    "UPDATE flows SET first_ns = NULL": "flows.first_ns has no value in 1 of them",
    "UPDATE decisions SET ns = NULL WHERE rowid % 7 = 3": "decisions.ns has no value",
    "UPDATE materialized_phases SET t_ns = -9223372036854775808": "t_ns is out of range",
    "UPDATE events SET kind = NULL": "events.kind has no value",
    "UPDATE events SET bbr_cycle_idx = 200": "events.bbr_cycle_idx is out of range",
    "UPDATE events SET bbr_min_rtt_us = NULL WHERE seq = 9": "bbr_min_rtt_us has no value",
    "UPDATE events SET tp_mss_cache = 65536 WHERE seq = 9": "events.tp_mss_cache is out of range",
    "UPDATE runs SET events = 9223372036854775807": "runs.events is out of range",
    "UPDATE replays SET exact = -1": "replays.exact is out of range",
    "UPDATE runs SET setup = 'x'": "runs.setup is no JSON",
    "UPDATE runs SET setup = '5'": "runs.setup is no JSON",
    "UPDATE runs SET setup = repeat('[', 100000) || repeat(']', 100000)": "runs.setup is no JSON",
    "UPDATE runs SET version = NULL": "was replayed has no version",
    "UPDATE events SET seq = seq // 3": "decisions has a run_id, flow, seq that",
    "UPDATE events SET seq = seq + 1; DELETE FROM decisions": "not numbered from 0",
    "UPDATE decisions SET code = 60000": "a code that is not in decision_codes",
    "DELETE FROM flows": "events has a run_id, flow that is not in flows",
}


@pytest.mark.parametrize("statement", CASES)
def test_rows_are_found_that_no_recording_has(
    statement: str, changed: duckdb.DuckDBPyConnection
) -> None:
    path = Path("s.duckdb")
    check_rows(changed, path)
    changed.execute(statement)
    with pytest.raises(StoreError, match=CASES[statement]) as error:
        check_rows(changed, path)
    assert error.value.fact.startswith("s.duckdb holds rows that no bbrscope put there: ")
    assert "ask for the bundles" in error.value.way_out


def test_a_store_of_every_kind_of_recording_has_none(sampled_path: Path) -> None:
    with duckdb.connect(str(sampled_path), read_only=True) as con:
        check_rows(con, sampled_path)


@pytest.mark.parametrize(
    "words", [("explain", "short"), ("metrics", "--by", "second"), ("replay",)]
)
def test_a_command_that_fails_for_them_says_so(
    words: tuple[str, ...], changed: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Over a store's own connection, over that of bbrscope.open, and in a transaction."""
    changed.execute("UPDATE events SET ns = 18446744073709551615")
    changed.execute("UPDATE flows SET first_ns = 18446744073709551615")
    changed.execute("UPDATE materialized_phases SET t_ns = NULL")
    changed.close()
    done = run(*words, "--store", tmp_path / "s.duckdb")
    assert (done.status, done.failure) == (1, "")
    assert (
        "s.duckdb holds rows that no bbrscope put there: flows.first_ns is out of range" in done.err
    )


@pytest.mark.parametrize("words", [("replay",), ("report", "short", "-o")])
@pytest.mark.parametrize("setup", ["x", "5", f"{'[' * 100_000}{']' * 100_000}"])
def test_a_setup_that_no_bbrscope_wrote_is_named(
    words: tuple[str, ...], setup: str, changed: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    changed.execute("UPDATE runs SET setup = ?", [setup])
    changed.close()
    more = (tmp_path / "p.html",) if words[-1] == "-o" else ()
    done = run(*words, *more, "--store", tmp_path / "s.duckdb")
    assert done.failure == ""
    assert done.status == 0 or "runs.setup is no JSON" in done.err, done.err


def test_names_of_a_strangers_tables_are_not_run(changed: duckdb.DuckDBPyConnection) -> None:
    changed.execute('CREATE TABLE "flows""; DROP TABLE meta; --" (run_id INTEGER)')
    changed.execute('CREATE TABLE more ("ns"") FROM more; DROP TABLE meta; --ns" BIGINT)')
    check_rows(changed, Path("s.duckdb"))
    assert changed.execute("SELECT count(*) > 0 FROM meta").fetchall() == [(True,)]


def test_what_a_command_keeps_beside_the_file_is_not_looked_at(
    changed: duckdb.DuckDBPyConnection,
) -> None:
    changed.execute("CREATE TEMPORARY TABLE point_flows AS SELECT NULL::INTEGER AS flow")
    check_rows(changed, Path("s.duckdb"))
    changed.execute("CREATE TABLE kept AS FROM point_flows")
    with pytest.raises(StoreError, match=r"kept\.flow has no value"):
        check_rows(changed, Path("s.duckdb"))


def test_a_mistake_of_bbrscopes_own_stays_one(replayed: Path) -> None:
    with pytest.raises(LookupError), open_store(replayed, read_only=True):
        raise LookupError


def test_numbers_that_the_kernels_types_hold_are_exported(
    changed: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    most = (1 << 32) - 1
    changed.execute(f"UPDATE events SET tp_snd_cwnd = {most}, tp_mss_cache = 65535")
    changed.execute(f"UPDATE events SET tp_packets_out = {most}, exit_snd_cwnd = {most}")
    changed.execute(f"UPDATE materialized_states SET snd_cwnd = {most}, inflight = {most}")
    changed.close()
    for form in ("qlog", "xplot"):
        at = ("--store", tmp_path / "s.duckdb", "-o", tmp_path / form)
        done = run("export", "--format", form, *at, "short")
        assert (done.status, done.failure) == (0, ""), done.err
