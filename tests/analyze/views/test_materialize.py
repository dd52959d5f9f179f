"""Materialized views say the same with stored rows as without, and never say old things."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from bbrscope.analyze.views import materialize as materialize_module
from bbrscope.analyze.views.materialize import (
    MATERIALIZED_VIEWS,
    forget,
    materialize,
    materialize_replayed,
    narrowed,
    read_materialized,
    stored_name,
)
from bbrscope.analyze.views.registry import VIEWS
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.analyze.views.view import View, words_of
from bbrscope.analyze.views.view_parts import FLOW_WINDOW, with_next
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store


@pytest.fixture(scope="module")
def copied(shipped_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("materialized") / "copy.duckdb"
    shutil.copy(shipped_path, target)
    return target


def _differences(store: Store, view: View) -> int:
    """Rows that are stored and not found, or the other way round; numbers to 9 digits."""
    columns = ", ".join(
        f'round("{c.name}", 9 - ceil(log10(abs("{c.name}") + 1e-300))::INTEGER) AS "{c.name}"'
        if c.type == "DOUBLE"
        else f'"{c.name}"'
        for c in view.columns
    )
    every = "(SELECT run_id FROM runs)"
    found = f"SELECT {columns} FROM ({narrowed(view, every)})"
    stored = f'SELECT {columns} FROM "{stored_name(view)}"'
    query = f"(({found}) EXCEPT ALL ({stored})) UNION ALL (({stored}) EXCEPT ALL ({found}))"
    return len(store.con.execute(query).fetchall())


@pytest.mark.parametrize("view", MATERIALIZED_VIEWS, ids=lambda view: view.name)
def test_stored_rows_are_those_that_the_query_finds(shipped: Store, view: View) -> None:
    rows = shipped.con.execute(f'SELECT count(*) FROM "{stored_name(view)}"').fetchall()[0][0]
    assert rows == shipped.con.execute(f'SELECT count(*) FROM "{view.name}"').fetchall()[0][0]
    # No shipped recording has two flows at once, or one that did not pass the queue.
    assert rows > 0 or view.name in ("sharing", "rtt_fairness", "queue_bypasses")
    assert _differences(shipped, view) == 0


def test_stored_rows_repeat_no_text_of_their_run_and_have_words_by_number(shipped: Store) -> None:
    for view in MATERIALIZED_VIEWS:
        found = shipped.con.execute(f'DESCRIBE "materialized_{view.name}"').fetchall()
        types = {name: of_type for name, of_type, *_ in found}
        assert not types.keys() & {"run", "version"}
        assert all(types[name].startswith("ENUM(") for name, _ in view.words)
        told = shipped.con.execute(f'DESCRIBE "{view.name}"').fetchall()
        assert [one[:2] for one in told] == [(c.name, c.type) for c in view.columns]


def test_rows_that_are_found_as_fast_are_stored_of_the_runs_that_need_it_alone(
    shipped: Store,
) -> None:
    captured = shipped.con.execute("SELECT DISTINCT run_id FROM captures").fetchall()
    assert 0 < len(captured) < len(shipped.runs())
    kept = "SELECT DISTINCT run_id FROM materialized_ack_timeline"
    assert shipped.con.execute(kept).fetchall() == captured
    told = "SELECT DISTINCT run_id FROM ack_timeline"
    assert len(shipped.con.execute(told).fetchall()) == len(shipped.runs())


def test_views_that_ask_for_a_next_event_join_it_where_their_rows_are_stored() -> None:
    """The rows are those of the window: test_stored_rows_are_those_that_the_query_finds."""
    joined = {view.name: with_next(view.sql) for view in VIEWS if FLOW_WINDOW in view.sql}
    kept = {view.name for view in VIEWS if joined.get(view.name) == view.sql}
    assert kept == {"rounds"}  # it asks the window for more
    assert joined.keys() - kept >= {"states", "transitions", "flow_summary", "binding"}
    for name in joined.keys() - kept:
        assert "OVER w" not in joined[name]
        assert "JOIN events n" in joined[name]


def test_what_stored_views_read_is_found_once() -> None:
    kept = [view for view in VIEWS if view.materialized or view.shared]
    again = {
        view.name: readers
        for view in VIEWS
        if view not in kept
        and len(readers := [one.name for one in kept if view.name in words_of(one.sql)]) > 1
    }
    assert again == {}


def test_views_of_a_forgotten_run_find_their_rows_beside_stored_ones(copied: Path) -> None:
    with open_store(copied) as store:
        before = {view.name: _count(store, view) for view in VIEWS}
        with store.transaction() as con:
            forget(con, [store.run_id("v2_single_1bdp")])
        assert store.con.execute("SELECT count(*) FROM materialized_runs").fetchall() == [(3,)]
        assert {view.name: _count(store, view) for view in VIEWS} == before
        with store.transaction():
            store.delete_run(store.run_id("v1_x_lt"))
        assert store.con.execute("SELECT count(*) FROM materialized_runs").fetchall() == [(2,)]
        assert "v1_x_lt" not in {
            row[0] for row in store.con.execute("SELECT DISTINCT run FROM phases").fetchall()
        }


def test_rows_are_materialized_within_a_bound_of_memory_and_beyond_it_where_they_must(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that ends gives little back: many runs, one after the other, took 1.5 GB."""
    limits: list[str] = []

    def watched(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
        limits.append(con.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])
        materialize(con, run_ids)

    with open_store(copied) as store:
        everything = [store.run_id(name) for name in store.runs()]
        materialize_replayed(store, everything)
        monkeypatch.setattr(materialize_module, "materialize", watched)
        sums = [f"SELECT count(*) FROM materialized_{view.name}" for view in MATERIALIZED_VIEWS]
        before = [store.con.execute(query).fetchall() for query in sums]
        for bytes_an_event in (materialize_module.BYTES_AN_EVENT, 4):
            monkeypatch.setattr(materialize_module, "BYTES_AN_EVENT", bytes_an_event)
            with store.transaction() as con:
                forget(con, [store.run_id("v2_single_1bdp")])
            materialize_replayed(store, everything)
            assert [store.con.execute(query).fetchall() for query in sums] == before
    assert limits[0] == "244.1 MiB"
    assert limits[-1].endswith("GiB")


def test_a_connection_that_reads_materialized_rows_finds_those_of_its_run(
    shipped_path: Path,
) -> None:
    with open_store(shipped_path, read_only=True) as store:
        run_id = store.run_id("v2_single_1bdp")
        queries = [
            f"FROM {view} WHERE run_id = {run_id}" for view in ("phases", "rounds", "flow_steps")
        ]
        sums = [f"SELECT count(*), bit_xor(hash(x)) FROM ({query}) x" for query in queries]
        before = [store.con.execute(query).fetchall() for query in sums]
        read_materialized(store.con, run_id)
        assert [store.con.execute(query).fetchall() for query in sums] == before
        assert min(before) > [(0, 0)]
        # Another run's rows are not looked for.
        assert store.con.execute("SELECT DISTINCT run_id FROM phases").fetchall() == [(run_id,)]


def _count(store: Store, view: View) -> int:
    return int(store.con.execute(f'SELECT count(*) FROM "{view.name}"').fetchall()[0][0])


def test_rows_stored_under_other_definitions_are_dropped(copied: Path) -> None:
    with open_store(copied) as store:
        rounds = store.con.execute("SELECT count(*) FROM rounds").fetchall()
        store.con.execute("UPDATE meta SET value = 'other' WHERE key = 'views'")
        store.con.execute("UPDATE materialized_rounds SET lost = 77777")
    with open_store(copied, read_only=True) as store:
        assert store.con.execute("SELECT max(lost) FROM rounds").fetchall() < [(77777,)]
    with open_store(copied) as store:
        assert store.con.execute("SELECT max(lost) FROM rounds").fetchall() < [(77777,)]
        assert store.con.execute("SELECT count(*) FROM rounds").fetchall() == rounds
        assert store.con.execute("SELECT count(*) FROM materialized_runs").fetchall() == [(0,)]


def test_packets_that_come_later_are_in_what_is_materialized(tmp_path: Path) -> None:
    from bbrscope import fixtures

    bundle = fixtures.path("v2_single_1bdp")
    with open_store(tmp_path / "s.duckdb") as store:
        run_id = ingest(store, bundle, packets=False).run_id
        with store.transaction() as con:
            materialize(con, [run_id])
        query = "SELECT count(pkt_acked_bytes) FROM metrics_by_flow"
        assert store.con.execute(query).fetchall() == [(0,)]
        ingest(store, bundle)
        assert store.con.execute(query).fetchall() >= [(2,)]
