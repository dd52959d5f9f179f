"""DuckDB's settings for the time of a load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


_IN_MEMORY = (
    "SELECT 1 FROM duckdb_databases() WHERE database_name = current_database() AND path IS NULL"
)


@contextmanager
def limited(con: duckdb.DuckDBPyConnection, **settings: str | int) -> Iterator[None]:
    """Have settings at these values, and then at DuckDB's own again, also after an error.

    A database in memory keeps those that whoever made it chose.
    """
    if con.execute(_IN_MEMORY).fetchall():
        yield
        return
    for name, value in settings.items():
        con.execute(f"SET {name} = '{value}'")
    try:
        yield
    finally:
        # A statement that fails voids the transaction of this connection, and nothing is accepted
        # there any more. The settings are the database's: another connection takes them back.
        with con.cursor() as other:
            for name in settings:
                other.execute(f"RESET {name}")


def write_as_it_fills(con: duckdb.DuckDBPyConnection) -> None:
    """Make DuckDB write each row group when it is full, and keep none in memory."""
    import duckdb

    # Older versions, without this setting, do that anyway.
    with suppress(duckdb.CatalogException):
        con.execute("SET write_buffer_row_group_count = 1")
