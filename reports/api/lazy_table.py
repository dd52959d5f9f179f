"""A table or view of a store as a lazy polars frame that reads only what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import polars

_BATCH_ROWS = 65_536


def lazy_table(connection: Callable[[], duckdb.DuckDBPyConnection], query: str) -> polars.LazyFrame:
    """Return a query's rows as a lazy frame; each ``collect`` runs it over the chosen columns.

    Args:
        connection: gives the open connection, each time that rows are wanted.
        query: a SELECT of this package's own.
    """
    from polars.io.plugins import register_io_source

    def rows(
        columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_rows: int | None,
    ) -> Iterator[polars.DataFrame]:
        """Yield the rows that polars asks for, as its IO plugins want them."""
        chosen = ", ".join(_quoted(name) for name in columns) if columns is not None else "*"
        # A limit counts the rows that the predicate leaves.
        limit = f" LIMIT {n_rows}" if n_rows is not None and predicate is None else ""
        yield from _batches(
            connection(), f"SELECT {chosen} FROM ({query}){limit}", predicate, batch_rows
        )

    schema = connection().sql(f"SELECT * FROM ({query}) LIMIT 0").pl().schema
    return register_io_source(rows, schema=schema)


def _batches(
    con: duckdb.DuckDBPyConnection,
    query: str,
    predicate: polars.Expr | None,
    batch_rows: int | None,
) -> Iterator[polars.DataFrame]:
    """Yield a query's rows of which a predicate holds, a batch at a time."""
    import polars
    import pyarrow as pa

    # A cursor of its own: other queries may run on the connection meanwhile.
    with con.cursor() as cursor:
        for batch in cursor.sql(query).to_arrow_reader(batch_rows or _BATCH_ROWS):
            frame = polars.DataFrame(pa.Table.from_batches([batch]))
            yield frame if predicate is None else frame.filter(predicate)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
