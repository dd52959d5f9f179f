"""Rows that a transaction inserts at its end, those of all its runs together.

A statement takes a millisecond before its first row, and a run has a few rows in each of a dozen
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .rowsets import insert

if TYPE_CHECKING:
    import duckdb

# More rows of a table than this do not wait.
MOST_WAITING = 2_000


class WaitingRows:
    """Rows of recorded tables, in the order in which they are to be inserted."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Mapping[str, Any]]] = {}

    def add(
        self, con: duckdb.DuckDBPyConnection, table: str, rows: Iterable[Mapping[str, Any]]
    ) -> int:
        """Take rows of a table, as `rowsets.insert` does, and return how many; many go in now."""
        waiting = self._rows.setdefault(table, [])
        count = 0
        for row in rows:
            waiting.append(row)
            count += 1
            if len(waiting) > MOST_WAITING:
                insert(con, table, waiting)
                waiting.clear()
        return count

    def insert(self, con: duckdb.DuckDBPyConnection) -> None:
        """Insert what waits."""
        for table, rows in self._rows.items():
            insert(con, table, rows)
        self._rows.clear()

    def forget(self) -> None:
        """Drop what waits."""
        self._rows.clear()
