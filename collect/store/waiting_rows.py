"""Rows that a transaction inserts at its end, those of all its runs together.

A statement takes a millisecond before its first row, and a run has a few rows in each of a dozen
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .arrow import registered
from .rowsets import insert

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# More rows of a table than this do not wait; nor more of those that are Arrow data already.
MOST_WAITING = 2_000
MOST_IN_BATCHES = 50_000


class WaitingRows:
    """Rows of recorded tables, in the order in which they are to be inserted."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        self._batches: dict[str, list[pa.RecordBatch]] = {}

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

    def add_batch(self, con: duckdb.DuckDBPyConnection, table: str, batch: pa.RecordBatch) -> None:
        """Take rows of a table as Arrow data, always with the same columns; many go in now."""
        waiting = self._batches.setdefault(table, [])
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) > MOST_IN_BATCHES:
            _insert_batches(con, table, waiting)
            waiting.clear()

    def of_table(self, table: str) -> Sequence[Mapping[str, Any]]:
        """Return the rows of a table that wait."""
        return self._rows.get(table, ())

    def insert(self, con: duckdb.DuckDBPyConnection) -> None:
        """Insert what waits."""
        for table, rows in self._rows.items():
            insert(con, table, rows)
        for table, batches in self._batches.items():
            _insert_batches(con, table, batches)
        self.forget()

    def forget(self) -> None:
        """Drop what waits."""
        self._rows.clear()
        self._batches.clear()


def _insert_batches(
    con: duckdb.DuckDBPyConnection, table: str, batches: list[pa.RecordBatch]
) -> None:
    import pyarrow as pa

    if batches:
        with registered(con, "incoming_batches", pa.Table.from_batches(batches)):
            con.execute(f'INSERT INTO "{table}" BY NAME FROM incoming_batches')
