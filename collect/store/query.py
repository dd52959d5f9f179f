"""A query's rows by the names of its columns, where these are worth more than speed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..bundle.rungs import RUNGS, Rung

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]


def rows(con: duckdb.DuckDBPyConnection, query: str, *values: object, **named: object) -> list[Row]:
    """Return a query's rows as dictionaries; its parameters are either by position or by name."""
    result = con.execute(query, named or values)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def first_row(
    con: duckdb.DuckDBPyConnection, query: str, *values: object
) -> tuple[Any, ...] | None:
    """Return a query's first row, None if it has none, and end its result.

    DuckDB's own fetchone() leaves the result open; then the connection refuses relations, such as
    those of `Recordings.sql`, until it has executed something else.
    """
    result = con.execute(query, values)
    first = result.fetchmany(1)
    result.fetchall()
    return first[0] if first else None


def listed(run_ids: Iterable[int]) -> str:
    """Return runs as SQL after ``IN``, of which a scan skips what has none of their rows."""
    return f"({', '.join(str(int(run_id)) for run_id in run_ids) or 'NULL'})"


def run_names(con: duckdb.DuckDBPyConnection) -> dict[int, str]:
    """Return the names of a store's runs by run_id, in the order in which they were ingested."""
    return dict(con.execute("SELECT run_id, run FROM runs ORDER BY run_id").fetchall())


def rung_of(con: duckdb.DuckDBPyConnection, run_id: int) -> Rung | None:
    """Return the rung by which a run was recorded; None: no such run, or it names none."""
    row = first_row(con, "SELECT rung FROM runs WHERE run_id = ?", run_id)
    return RUNGS.get(row[0] or "") if row else None


def one(con: duckdb.DuckDBPyConnection, query: str, *values: object, **named: object) -> Row:
    """Return a query's only row.

    Raises:
        ValueError: it has none, or several.
    """
    (row,) = rows(con, query, *values, **named)
    return row
