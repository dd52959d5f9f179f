"""Tell rows that no bbrscope stored from a mistake of bbrscope's own, after something failed.

A store may come from a stranger, and its rows may hold anything that the columns' types hold. What
ingest lets in is bounded (`numbers`), so that sums of it fit and what a query relies on is there.
Looking at every value takes longer than opening a store may: it is done when a command has failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.fields import EVENT_FIELDS, EXIT_FIELDS
from ..bundle.numbers import MAX_NS, MAX_NUMBER
from . import schema
from .query import first_row
from .schema.table import CACHE_PREFIX, Column

if TYPE_CHECKING:
    import duckdb

# Columns that have a value in every row, wherever the schema does not say what NULL means there:
# in rows that are recorded or found by a replay, and in those that views found.
_ALWAYS = frozenset(
    "run_id flow seq ord ns t_ns kind mode code events exact compared complete line".split()
)
_ALWAYS_IN_VIEWS = _ALWAYS - {"flow", "code"}
_ALWAYS_OF_FLOWS = frozenset({"first_ns", "last_ns"})
_COUNTED = frozenset("events rows flows packets notes".split())
_NUMBERED = frozenset("run_id flow seq generation exact compared".split())
_WHOLE = frozenset(
    "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT".split()
)
# A stranger's own tables may have any name: such as would end the quotes are left out. So are the
# tables that a command makes beside the file for itself.
_COLUMNS = r"""
SELECT table_name, list(column_name), list(data_type) FROM duckdb_columns()
WHERE (list_contains(?, table_name)
    OR table_name IN (SELECT table_name FROM duckdb_tables() WHERE NOT temporary))
  AND regexp_full_match(table_name || column_name, '\w+')
GROUP BY table_name
"""
_WAY_OUT = "do not use it: ask for the bundles that it was made of, and ingest those"
# Of columns of events, what the kernel's own declaration can hold.
_BOUNDS = {
    name: (field.minimum, field.maximum)
    for name, field in (
        *((field.column, field) for field in EVENT_FIELDS),
        *((field.exit_column, field) for field in EXIT_FIELDS),
    )
    if not field.is_text
}
# What must be in one table of all rows of another: table, its columns there, the other, and which.
_PARTS_OF = (
    ("flows", "run_id", "runs"),
    ("events", "run_id, flow", "flows"),
    ("decisions", "run_id, flow, seq", "events"),
    ("decisions", "code", "decision_codes"),
    ("replays", "run_id, flow", "flows"),
)
# Columns with JSON, all of them objects but for a list of changes.
_JSON = {
    table.name: {column.name for column in table.columns if column.unit == "JSON"}
    for table in schema.TABLES
}
_LISTS = frozenset({"changes"})
_REPLAYED_AS_NONE = "SELECT 1 FROM runs SEMI JOIN decisions USING (run_id) WHERE version IS NULL"


def may_be_of_rows(error: Exception) -> bool:
    """Tell whether rows that are not as ingest makes them may have led to an error."""
    import duckdb

    if isinstance(error, BbrscopeError):
        return isinstance(error.__cause__, (duckdb.DataError, duckdb.InvalidInputException))
    if isinstance(error, duckdb.Error):
        kinds = (duckdb.DataError, duckdb.ProgrammingError, duckdb.InternalError)
        return isinstance(error, kinds)
    return not isinstance(error, OSError)


def check_rows(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise if the store has rows that no recording has.

    Raises:
        StoreError: a value is missing or out of the bounds of its kind, a row is of no run, flow or
            event that is there, or a flow's events are not numbered from 0.
    """
    import duckdb

    try:
        found = next(_unsound(con), "")
    except duckdb.Error:  # the file is damaged, or in use: what failed before says so
        return
    if found:
        raise StoreError(f"{path} holds rows that no bbrscope put there: {found}", _WAY_OUT)


def _unsound(con: duckdb.DuckDBPyConnection) -> Iterator[str]:
    names = [table.name for table in schema.TABLES]
    kinds = {
        table: dict(zip(columns, types, strict=True))
        for table, columns, types in con.execute(_COLUMNS, [names]).fetchall()
    }
    # What was recorded first: the others are found from it.
    for table in [*filter(kinds.__contains__, names), *sorted(kinds.keys() - {*names})]:
        columns = kinds[table]
        wrong = list(_conditions(table, columns))
        if wrong:
            counts = ", ".join(f"count_if({text})" for _, text in wrong)
            (row,) = con.execute(f'SELECT {counts} FROM "{table}"').fetchall()
            for (what, _), count in zip(wrong, row, strict=True):
                if count:
                    yield f"{table}.{what} in {count:,} of them"
        yield from _unreadable(con, table, columns.keys() & _JSON.get(table, set()))
    for table, key, other in _PARTS_OF:
        if {table, other} <= kinds.keys():
            query = f'SELECT 1 FROM "{table}" ANTI JOIN "{other}" USING ({key}) LIMIT 1'
            if first_row(con, query):
                yield f"{table} has a {key} that is not in {other}"
    query = "SELECT 1 FROM events GROUP BY run_id, flow HAVING max(seq) <> count(*) - 1"
    if first_row(con, f"{query} OR count(DISTINCT seq) <> count(*) LIMIT 1"):
        yield "a flow's events are not numbered from 0"
    if "decisions" in kinds and first_row(con, _REPLAYED_AS_NONE):
        yield "a run that was replayed has no version"
    yield from _partly_recorded(con, [name for name in _BOUNDS if name in kinds["events"]])


def _conditions(table: str, columns: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a column's values, and the SQL of the rows where it is."""
    described = {
        column.name: column for one in schema.TABLES if one.name == table for column in one.columns
    }
    always = _ALWAYS_IN_VIEWS if table.startswith(CACHE_PREFIX) else _ALWAYS
    always |= _ALWAYS_OF_FLOWS if table == "flows" else frozenset()
    for name, kind in columns.items():
        column = described.get(name, Column(name, kind, "", ""))
        if name in always and "NULL" not in column.meaning:
            yield f"{name} has no value", f'"{name}" IS NULL'
        if kind not in _WHOLE:
            continue
        if table == "events" and name in _BOUNDS:
            low, high = _BOUNDS[name]
        elif name == "ns" or name.endswith("_ns"):
            low, high = -MAX_NS, MAX_NS
        elif column.unit in _COUNTED or name in _NUMBERED:
            low, high = 0, MAX_NUMBER
        else:
            continue
        yield f"{name} is out of range", f'"{name}" NOT BETWEEN {low} AND {high}'


def _unreadable(con: duckdb.DuckDBPyConnection, table: str, columns: Set[str]) -> Iterator[str]:
    """Yield columns with JSON that Python does not read: DuckDB's own reads any depth."""
    for name in sorted(columns):
        query = f'SELECT DISTINCT "{name}" FROM "{table}" WHERE "{name}" IS NOT NULL'
        wanted = list if name in _LISTS else dict
        for (text,) in con.execute(query).fetchall():
            try:
                is_meant = isinstance(json.loads(text), wanted)
            except (ValueError, RecursionError):
                is_meant = False
            if not is_meant:
                yield f"{table}.{name} is no JSON as bbrscope writes it"


def _partly_recorded(con: duckdb.DuckDBPyConnection, fields: list[str]) -> Iterator[str]:
    """Yield fields that some events of a kind have and others of it, in the same run, have not."""
    counts = ", ".join(f'count("{name}")' for name in fields)
    query = f"SELECT count(*), {counts} FROM events WHERE complete GROUP BY run_id, kind"
    for events, *having in con.execute(query).fetchall():
        for name, count in zip(fields, having, strict=True):
            if 0 < count < events:
                yield f"events.{name} has no value in {events - count:,} of {events:,}"
