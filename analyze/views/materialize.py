"""Materialized views: their rows are stored for each replayed run, because finding them takes long.

A view marked `materialized` is the union of two in a store: the rows stored in table
``materialized_NAME`` of the runs listed in ``materialized_runs``, and its query over all other
runs. So it says the same at any time, and says it fast once a run was replayed. Whoever changes a
run's recorded rows has its materialized ones dropped (`Store.drop_cached_rows`).

Texts take most of the time that storing rows takes. So what table `runs` has of a run is not
repeated in each row, and words are stored by their numbers: view ``stored_NAME`` has the rows as
the view itself does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...collect.store.limits import ALL_MEMORY, BYTES_AN_EVENT, limited
from ...collect.store.query import listed
from ...collect.store.schema import Column, Table
from ...collect.store.schema.recorded_tables import RUN_ID
from ...collect.store.schema.table import CACHE_PREFIX
from ...collect.store.store import Store, quoted
from ...probes.base.errors import StoreError
from .registry import TABLES as OTHER_TABLES
from .registry import VIEWS, has_runs
from .view import View, words_of
from .view_parts import with_next

if TYPE_CHECKING:
    import duckdb

# So many events of runs are worked on together, or one run's if it has more: planning the queries
# takes a quarter of a second each time.
EVENTS_AT_ONCE = 500_000
# A batch for another CPU has so many events at least: its queries run for as long as planning them
# takes there, half a second.
FEWEST_EVENTS = 50_000
_NOTHING: Mapping[str, str] = MappingProxyType({})

MATERIALIZED_VIEWS = tuple(view for view in VIEWS if view.materialized)


# What every row of a run has from its row of `runs`.
_OF_RUN = ("run", "version")


def materialized_name(view: View) -> str:
    """Return the name of the table that holds a view's materialized rows."""
    return f"{CACHE_PREFIX}{view.name}"


def stored_name(view: View) -> str:
    """Return the name of the view over that table that has the columns of the view itself."""
    return f"stored_{view.name}"


def _table(view: View) -> Table:
    """Return the table that holds a view's materialized rows."""
    types = {name: f"ENUM({', '.join(map(quoted, words))})" for name, words in view.words}
    columns = (
        replace(column, type=types.get(column.name, column.type))
        for column in view.columns
        if column.name not in _OF_RUN
    )
    return Table(materialized_name(view), f"Stored rows of view {view.name}.", tuple(columns))


def _stored_sql(view: View) -> str:
    """Return the query of view `stored_name`."""
    words = dict(view.words)
    columns = (
        f'r."{name}"'
        if name in _OF_RUN
        else f's."{name}"::VARCHAR AS "{name}"'
        if name in words
        else f's."{name}"'
        for name in (column.name for column in view.columns)
    )
    query = (
        f'SELECT {", ".join(columns)} FROM "{materialized_name(view)}" s JOIN runs r USING (run_id)'
    )
    if not view.rows_of:
        return query
    others = (
        f"(SELECT run_id FROM {RUNS.name} WHERE run_id NOT IN (SELECT run_id FROM {view.rows_of}))"
    )
    before = {one.name: stored_name(one) for one in MATERIALIZED_VIEWS if one is not view}
    return f"{query} UNION ALL SELECT * FROM ({narrowed(view, others, before)})"


RUNS = Table(f"{CACHE_PREFIX}runs", "Runs whose rows of materialized views are stored.", (RUN_ID,))
TABLES = (RUNS, *map(_table, MATERIALIZED_VIEWS))
_OTHER_RUNS = f"(SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM {RUNS.name}))"


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)


def narrowed(
    view: View,
    chosen: str,
    stored: Mapping[str, str] = _NOTHING,
    columns: Iterable[Column] | None = None,
) -> str:
    """Return a view's query over some runs, `chosen` being SQL after ``IN``.

    Args:
        stored: tables that hold these runs' rows of views, by the views' names.
        columns: those of the view that are wanted; None: all.

    A filter on a view's result reaches its tables through joins and aggregates, but not through
    ASOF joins and windows. Here the tables, and the views over them, are common table expressions
    of their own names.
    """
    return narrowed_query(view.sql, chosen, stored, _columns(columns or view.columns))


def narrowed_query(
    query: str,
    chosen: str,
    stored: Mapping[str, str] = _NOTHING,
    columns: str = "*",
    instead: Mapping[str, str] = _NOTHING,
) -> str:
    """Return any query over tables and views, narrowed to some runs as `narrowed` does.

    `instead` are queries that stand in place of those of views, by the views' names. Rows that
    rest on such a view are not read from `stored`.
    """
    inner = narrowing(query, chosen, stored, instead)
    tables_first = f"WITH {', '.join(inner)} " if inner else ""
    return f"{tables_first}SELECT {columns} FROM ({query})"


def narrowing(
    query: str,
    chosen: str,
    stored: Mapping[str, str] = _NOTHING,
    instead: Mapping[str, str] = _NOTHING,
) -> list[str]:
    """Return the common table expressions that narrow what a query reads, as `narrowed` does."""
    stored = _untouched(stored, instead)
    tables, views = _needs(query, stored, instead)
    inner = [
        f'"{table.name}" AS (SELECT * FROM "{table.name}" WHERE run_id IN {chosen})'
        for table in tables
    ]
    return inner + [
        f'"{name}" AS (SELECT * FROM "{stored[name]}" WHERE run_id IN {chosen})'
        if name in stored
        else f'"{name}" AS ({sql})'
        for name, sql in views
    ]


def _untouched(stored: Mapping[str, str], instead: Mapping[str, str]) -> Mapping[str, str]:
    """Return those of the `stored` views that read none of those that other queries stand for."""
    touched = set(instead)
    for view in VIEWS if touched else ():  # each comes after those that it reads
        if touched & words_of(view.sql):
            touched.add(view.name)
    return {name: table for name, table in stored.items() if name not in touched}


def _needs(
    query: str, stored: Mapping[str, str], instead: Mapping[str, str]
) -> tuple[list[Table], list[tuple[str, str]]]:
    """Return the tables with runs, and name and query of views, that a query reads.

    Each comes after those it reads; what `stored` views read is left out.
    """
    words = words_of(query)
    views = []
    # A view is made after those that it reads: going backwards, every word is known in time.
    for view in reversed(VIEWS):
        if view.name in words and view.sql != query:
            sql = instead.get(view.name, view.sql)
            views.append((view.name, sql))
            if view.name not in stored:
                words.update(words_of(sql))
    tables = [table for table in OTHER_TABLES if table.name in words and has_runs(table)]
    return tables, views[::-1]


def can_hold_rows(con: duckdb.DuckDBPyConnection) -> bool:
    """Tell whether this is a store of this bbrscope's views, whose runs can have stored rows."""
    tables, others = con.execute(
        "SELECT (SELECT count(*) FROM duckdb_tables() WHERE table_name = ?),"
        " (SELECT count(*) FROM duckdb_views() WHERE temporary AND view_name = ?)",
        [RUNS.name, VIEWS[0].name],
    ).fetchall()[0]
    return bool(tables and not others)


def runs_with_rows(con: duckdb.DuckDBPyConnection) -> list[int]:
    """Return the runs whose rows are stored."""
    return [row[0] for row in con.execute(f"SELECT run_id FROM {RUNS.name}").fetchall()]


def lacking(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[int]:
    """Return those of these runs that were replayed, but whose rows are not stored."""
    if not can_hold_rows(con):
        return []
    query = (
        "SELECT DISTINCT run_id FROM replays"
        f" WHERE run_id IN {listed(run_ids)} AND run_id IN {_OTHER_RUNS} ORDER BY run_id"
    )
    return [row[0] for row in con.execute(query).fetchall()]


def materialized_tables(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[str, str]:
    """Return what has the stored rows of views, by the views' names; empty if a run has none.

    A store that is only read, of another bbrscope, has rows of that one's views: temporary views
    stand before its own.
    """
    if not can_hold_rows(con):
        return {}
    query = f"SELECT count(*) FROM {RUNS.name} WHERE run_id IN {listed(run_ids)}"
    if con.execute(query).fetchall() != [(len(set(run_ids)),)]:
        return {}
    return {view.name: stored_name(view) for view in MATERIALIZED_VIEWS}


def read_materialized(con: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Let this connection's queries about one run read its materialized rows, and nothing else.

    A query over a materialized view is planned together with the view's own query, which stands for
    the runs without such rows: that takes longer than reading a flow's rows.
    """
    for name, table in materialized_tables(con, [run_id]).items():
        con.execute(f'CREATE TEMP VIEW "{name}" AS FROM "{table}" WHERE run_id = {run_id}')


def ddl(view: View) -> tuple[str, ...]:
    """Return the statements that make a view in a store that has tables of materialized rows."""
    if not view.materialized:
        return (view.ddl(),)
    return (
        f'CREATE OR REPLACE VIEW "{stored_name(view)}" AS {_stored_sql(view)}',
        f'CREATE OR REPLACE VIEW "{view.name}" AS FROM "{stored_name(view)}"'
        f" UNION ALL SELECT * FROM ({narrowed(view, _OTHER_RUNS)})",
    )


def forget(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Delete the materialized rows of runs: the views find them anew.

    Call it inside a transaction.
    """
    for table in TABLES:
        con.execute(f'DELETE FROM "{table.name}" WHERE run_id IN {listed(run_ids)}')


def materialize(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Store the rows of runs. Call it inside a transaction, when nothing else of them changes.

    Half of the time goes into planning, whatever the number of runs: many at once take less.
    """
    forget(con, run_ids)
    chosen = listed(run_ids)
    stored: dict[str, str] = {}
    for view in VIEWS:
        if view.materialized:
            target = stored_name(view)
            if kept := _kept_of(con, view, run_ids):
                query = with_next(narrowed(view, listed(kept), stored, _table(view).columns))
                con.execute(f'INSERT INTO "{materialized_name(view)}" {query}')
        elif view.shared:
            target = f"shared_{view.name}"
            columns = ", ".join(view.shared_columns) or "*"
            query = f"SELECT {columns} FROM ({narrowed(view, chosen, stored)})"
            con.execute(f'CREATE OR REPLACE TEMP TABLE "{target}" AS {query}')
        else:
            continue
        stored[view.name] = target
    for view in VIEWS:
        if view.shared:
            con.execute(f'DROP TABLE "{stored[view.name]}"')
    con.execute(f"INSERT INTO {RUNS.name} SELECT run_id FROM runs WHERE run_id IN {chosen}")


def _kept_of(con: duckdb.DuckDBPyConnection, view: View, run_ids: Sequence[int]) -> Sequence[int]:
    """Return those of these runs of which a view's rows are to be stored."""
    if not view.rows_of:
        return run_ids
    query = f"SELECT DISTINCT run_id FROM {view.rows_of} WHERE run_id IN {listed(run_ids)}"
    return [run_id for (run_id,) in con.execute(query).fetchall()]


def materialize_replayed(store: Store, run_ids: Sequence[int], workers: int | None = None) -> None:
    """Store the rows of those of these runs that `lacking` finds, some runs at a time.

    Most of these queries are too small for DuckDB to divide among CPUs: `workers` transactions (by
    default one per CPU) are under way at once, each with runs of its own.
    """
    of_runs = f"FROM runs WHERE run_id IN {listed(lacking(store.con, run_ids))}"
    total, runs = store.con.execute(
        f"SELECT coalesce(sum(events), 0)::BIGINT, count(*) {of_runs}"
    ).fetchall()[0]
    if not runs:
        return
    workers = min(workers or len(os.sched_getaffinity(0)), runs, max(1, total // FEWEST_EVENTS))
    batches = -(-total // (EVENTS_AT_ONCE * workers)) * workers
    query = f"""
SELECT list(run_id ORDER BY run_id), sum(events)::BIGINT FROM (
  SELECT run_id, events,
    (sum(events) OVER (ORDER BY run_id) - events) * {batches} // {max(total, 1)} AS batch {of_runs}
) GROUP BY batch ORDER BY batch"""
    found = store.con.execute(query).fetchall()
    workers = min(workers, len(found))
    # Room for twice as many: with less, what waits on the disk meanwhile takes a sixth of the time.
    largest = max(2 * EVENTS_AT_ONCE, *(events for _, events in found))
    memory = BYTES_AN_EVENT * largest * workers
    for run_ids in _materialize_within(store, [run_ids for run_ids, _ in found], memory, workers):
        with limited(store.con, memory_limit=ALL_MEMORY), store.transaction() as con:
            materialize(con, run_ids)


def _materialize_within(
    store: Store, batches: Sequence[list[int]], memory: int, workers: int
) -> list[list[int]]:
    """Materialize the rows of batches of runs in so many bytes; return those that need more.

    What a query does not find room for it writes to the disk, if it is one that can. Where batches
    share the CPUs, DuckDB divides none of their queries: threads that wait for work cost a fifth.
    """
    import duckdb

    fits: list[bool] = []
    settings = {"threads": 1} if workers > 1 else {}
    with (
        suppress(duckdb.OutOfMemoryException),
        limited(store.con, memory_limit=f"{memory}B", **settings),
        ThreadPoolExecutor(workers) as pool,
    ):
        fits += pool.map(lambda run_ids: _has_room(store, run_ids), batches)
    return [run_ids for run_ids, fit in zip_longest(batches, fits) if not fit]


def _has_room(store: Store, run_ids: Sequence[int]) -> bool:
    """Materialize the rows of runs over a connection of their own, unless memory is too small."""
    import duckdb

    try:
        with store.beside() as own, own.transaction() as con:
            materialize(con, run_ids)
    except (StoreError, duckdb.OutOfMemoryException) as error:
        if not isinstance(error.__cause__ or error, duckdb.OutOfMemoryException):
            raise
        return False
    return True
