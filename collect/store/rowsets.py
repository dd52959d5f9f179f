"""Insert a few rows, given as dictionaries, into a table of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from . import schema

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BATCH = 20_000
# So many values go into the statement itself: binding Arrow data takes three times as long as that.
FEW = 256


def arrow_type(sql: str) -> pa.DataType:
    """Return the Arrow type of a DuckDB type that the schema uses."""
    import pyarrow as pa

    names = {"TINYINT": "int8", "SMALLINT": "int16", "INTEGER": "int32", "BIGINT": "int64"}
    if sql.startswith("U") and sql[1:] in names:
        return getattr(pa, "u" + names[sql[1:]])()
    if sql in names:
        return getattr(pa, names[sql])()
    return {"BOOLEAN": pa.bool_(), "DOUBLE": pa.float64()}.get(sql, pa.string())


@cache
def arrow_schema(table: schema.Table) -> pa.Schema:
    """Return the Arrow types of a table's columns, in their order."""
    import pyarrow as pa

    return pa.schema([(column.name, arrow_type(column.type)) for column in table.columns])


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

    pending = iter(rows)
    while batch := [dict(row) for row in islice(pending, BATCH)]:
        table = pa.Table.from_pylist(batch, arrow_schema(target))
        if table.num_rows * table.num_columns <= FEW:
            _insert_values(con, target.name, table)
        else:
            # A relation of its own: registering a name makes and drops a view: that takes as long.
            con.from_arrow(table).insert_into(target.name)


def _insert_values(con: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    row = f"({', '.join('?' * table.num_columns)})"
    rows = ", ".join([row] * table.num_rows)
    values = [value for one in table.to_pylist() for value in one.values()]
    con.execute(f'INSERT INTO "{name}" VALUES {rows}', values)
