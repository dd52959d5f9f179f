"""Insert a few rows, given as dictionaries, into a table of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import schema

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BATCH = 20_000


def arrow_type(sql: str) -> pa.DataType:
    """Return the Arrow type of a DuckDB type that the schema uses."""
    import pyarrow as pa

    names = {"TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64"}
    if sql.startswith("U") and sql[1:] in names:
        return getattr(pa, "u" + names[sql[1:]])()
    if sql in names:
        return getattr(pa, names[sql])()
    return {"BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}.get(sql, pa.string())


def insert(con: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows, `BATCH` at a time so that any number takes little memory.

    Columns that a row lacks are NULL.
    """
    insert_into(con, schema.recorded_table(table), rows)


def insert_into(
    con: duckdb.DuckDBPyConnection, target: schema.Table, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Insert rows into any table, as `insert` does."""
    import pyarrow as pa

    types = pa.schema([(column.name, arrow_type(column.type)) for column in target.columns])
    pending = iter(rows)
    while batch := [dict(row) for row in islice(pending, BATCH)]:
        # A relation of its own: registering a name makes and drops a view, which takes as long.
        con.from_arrow(pa.Table.from_pylist(batch, types)).insert_into(target.name)
