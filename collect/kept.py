"""Views whose rows are stored for each replayed run, because finding them takes long.

A view that the schema marks `kept` is the union of two in a store: the rows stored in table
``kept_NAME`` of the runs listed in ``kept_runs``, and its query over all other runs. So it says the
same at any time, and says it fast once a run was replayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from . import schema
from .schema import Column, Table, View
from .schema.recording import RUN_ID

if TYPE_CHECKING:
    import duckdb

KEPT_RUNS = Table("kept_runs", "Runs whose rows of kept views are stored.", (RUN_ID,))
KEPT_VIEWS = tuple(view for view in schema.VIEWS if view.kept)
TABLES = (
    KEPT_RUNS,
    *(
        Table(f"kept_{view.name}", f"Stored rows of view {view.name}.", view.columns)
        for view in KEPT_VIEWS
    ),
)
_OTHER_RUNS = "(SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM kept_runs))"


def _columns(columns: Iterable[Column]) -> str:
    return ", ".join(f'"{column.name}"' for column in columns)


def narrowed(view: View, chosen: str, stored: bool = False) -> str:
    """Return a view's query over some runs, `chosen` being SQL after ``IN``.

    If `stored`, the rows of kept views that it reads are stored already.

    A filter on a view's result reaches its tables through joins and aggregates, but not through
    ASOF joins and windows. Here the tables, and the views over them, are common table expressions
    of their own names.
    """
    tables, views = _needs(view, stored)
    inner = [
        f'"{table.name}" AS (SELECT * FROM "{table.name}" WHERE run_id IN {chosen})'
        for table in tables
    ]
    inner += [
        f'"{needed.name}" AS (SELECT * FROM "kept_{needed.name}" WHERE run_id IN {chosen})'
        if stored and needed.kept
        else f'"{needed.name}" AS ({needed.sql})'
        for needed in views
    ]
    return f"WITH {', '.join(inner)} SELECT {_columns(view.columns)} FROM ({view.sql})"


def _needs(view: View, stored: bool) -> tuple[list[Table], list[View]]:
    """Return the tables with runs, and the views, that a view reads; each after those it reads.

    What kept views read is left out if they are `stored`.
    """
    words = set(re.findall(r"\w+", view.sql))
    views = []
    # A view is made after those that it reads: going backwards, every word is known in time.
    for other in reversed(schema.VIEWS):
        if other.name in words and other is not view:
            views.append(other)
            if not (stored and other.kept):
                words.update(re.findall(r"\w+", other.sql))
    tables = [
        table
        for table in schema.TABLES
        if table.name in words and any(column.name == "run_id" for column in table.columns)
    ]
    return tables, views[::-1]


def ddl(view: View) -> str:
    """Return the statement that makes a view in a store that keeps rows."""
    if not view.kept:
        return view.ddl()
    return (
        f'CREATE OR REPLACE VIEW "{view.name}" AS SELECT {_columns(view.columns)}'
        f' FROM "kept_{view.name}" UNION ALL SELECT * FROM ({narrowed(view, _OTHER_RUNS)})'
    )


def forget(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Delete the stored rows of runs: the views find them anew. Call it inside a transaction."""
    chosen = _chosen(run_ids)
    for table in TABLES:
        con.execute(f'DELETE FROM "{table.name}" WHERE run_id IN {chosen}')


def keep(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Store the rows of runs. Call it inside a transaction, when nothing else of them changes."""
    forget(con, run_ids)
    chosen = _chosen(run_ids)
    for view in KEPT_VIEWS:
        con.execute(f'INSERT INTO "kept_{view.name}" {narrowed(view, chosen, stored=True)}')
    con.execute(f"INSERT INTO kept_runs SELECT run_id FROM runs WHERE run_id IN {chosen}")


def _chosen(run_ids: Sequence[int]) -> str:
    return f"({', '.join(str(int(run_id)) for run_id in run_ids) or 'NULL'})"
