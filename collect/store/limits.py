"""DuckDB's settings for the time of a load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


@contextmanager
def limited(con: duckdb.DuckDBPyConnection, **settings: str | int) -> Iterator[None]:
    """Have settings at these values, and then at DuckDB's own again, also after an error."""
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
