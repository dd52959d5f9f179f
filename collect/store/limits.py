"""DuckDB's settings for the time of some work, and the memory that it may have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


# What DuckDB may hold of a file that it writes. Left to itself it keeps most of what it wrote or
# read, up to four fifths of the machine's memory: 1,000 runs took 4.6 GB, and more time.
MEMORY = 320 << 20
# The same where many runs are only read, over and over.
READING_MEMORY = 640 << 20
# The same for its work on a run, for each event. A query that ends gives little of it back.
BYTES_AN_EVENT = 256
# Work that fits into no less may have what DuckDB takes by itself.
ALL_MEMORY = "80%"

_ARE_OTHERS = (
    "SELECT current_setting('lock_configuration') OR EXISTS (FROM duckdb_databases()"
    " WHERE database_name = current_database() AND path IS NULL)"
)


def memory_for(events: int, least: int = MEMORY) -> str:
    """Return the limit of memory for work on so many events at a time, as DuckDB takes it."""
    return f"{max(least, BYTES_AN_EVENT * events)}B"


@contextmanager
def limited(con: duckdb.DuckDBPyConnection, **settings: str | int) -> Iterator[None]:
    """Have settings at these values, and then at their former ones again, also after an error.

    A database in memory keeps those that whoever made it chose, and one that has answered a user's
    queries those that it had then: they are locked.
    """
    if con.execute(_ARE_OTHERS).fetchall()[0][0]:
        yield
        return
    former = {}
    for name, value in settings.items():
        former[name] = con.execute(f"SELECT current_setting('{name}')").fetchall()[0][0]
        con.execute(f"SET {name} = '{value}'")
    try:
        yield
    finally:
        # A statement that fails voids the transaction of this connection, and nothing is accepted
        # there any more. The settings are the database's: another connection takes them back.
        with con.cursor() as other:
            for name, value in former.items():
                other.execute(f"SET {name} = '{value}'")


def write_as_it_fills(con: duckdb.DuckDBPyConnection) -> None:
    """Make DuckDB write each row group when it is full, and keep none in memory."""
    import duckdb

    # Older versions, without this setting, do that anyway.
    with suppress(duckdb.CatalogException):
        con.execute("SET write_buffer_row_group_count = 1")
