"""Insert a few rows, given as dictionaries, into a table of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from . import schema
from .arrow import registered

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


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
    """Insert rows; columns that a row lacks are NULL."""
    import pyarrow as pa

    target = schema.relation(table)
    assert target is not None  # a name in this package
    types = pa.schema([(column.name, arrow_type(column.type)) for column in target.columns])
    listed = [dict(row) for row in rows]
    if not listed:
        return
    with registered(con, "incoming_rows", pa.Table.from_pylist(listed, types)):
        con.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming_rows')
