"""Write the rows of one run as Parquet files of a lake.

DuckDB takes milliseconds for each file, whatever little is in it, and as long for a run's events as
for loading them. So events are written as they are read, small tables are taken out of the store
once for all its runs, and only what is large is asked for run by run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...collect.store.rowsets import arrow_type
from ...collect.store.schema import recorded_table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.parquet as pq

# Rows that are read or left as a whole: a few seconds of a busy flow.
ROW_GROUP = 50_000
# So many of a run's events are held while they are read; of more, the file is read again.
HELD = 100_000
# A table of so many rows in all is held in memory while its runs are written.
SMALL = 500_000
# Without dictionaries, values of counters take less room and half the time. Version 2 would halve
# the files, but pyarrow cannot read what DuckDB makes of unsigned columns.
# zstd and lz4 do not notice most bits that flip; `lake check --read` does, by each page's checksum.
_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": False,
    "write_page_checksum": True,
}
# What tells readers which rows to leave unread; finding that out for every column takes a fifth of
# the time, and who asks for other columns asks for them in a time.
_BOUNDED = frozenset(("run_id", "flow", "stream", "seq", "ns", "kind", "code"))


def _options(names: Iterable[str]) -> dict[str, Any]:
    return {**_OPTIONS, "write_statistics": [name for name in names if name in _BOUNDED]}


class _GrowingFile(ABC):
    """A file of a run's rows of a table, written as they come; a context manager that ends it.

    Attributes:
        path: the file, which is there once it has rows.
        number: the run's in the lake.
        rows: how many it has.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number, self.rows = path, number, 0
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._write()
        self._waiting = []
        if self._writer:
            self._writer.close()

    def add(self, rows: pa.Table) -> None:
        """Take rows as they go into the store."""
        self._waiting.append(rows)
        if sum(map(len, self._waiting)) >= ROW_GROUP:
            self._write()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self._waiting:
            return
        rows = self._filed(pa.concat_tables(self._waiting))
        self._waiting = []
        if self._writer is None:
            options = {**_options(rows.column_names), **self.encoding}
            self._writer = pq.ParquetWriter(self.path, rows.schema, **options)
        self._writer.write_table(rows, row_group_size=ROW_GROUP)
        self.rows += len(rows)

    # What differs from _OPTIONS.
    encoding: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def _filed(self, rows: pa.Table) -> pa.Table:
        """Return rows as the lake has them."""


class EventsFile(_GrowingFile):
    """A file of a run's events, written while they are loaded.

    Attributes:
        held: the batches; None if these are too many to be held.
    """

    def __init__(self, path: Path, number: int) -> None:
        super().__init__(path, number)
        self.held: list[pa.RecordBatch] | None = []
        self.encoding = _events_encoding()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take a batch as it goes into table events, where columns that it lacks are NULL."""
        import pyarrow as pa

        if self.held is not None:
            self.held.append(batch)
            if sum(map(len, self.held)) > HELD:
                self.held = None
        self.add(pa.Table.from_batches([batch]))

    def _filed(self, rows: pa.Table) -> pa.Table:
        import pyarrow as pa

        schema = _events_schema()
        columns = dict(zip(rows.column_names, rows.columns, strict=True))
        for field in schema:
            if field.name in columns:
                columns[field.name] = columns[field.name].cast(field.type)
            else:
                columns[field.name] = pa.nulls(len(rows), field.type)
        columns["run_id"] = _repeated(self.number, len(rows))
        return pa.table(columns, schema)


class DecisionsFile(_GrowingFile):
    """A file of a run's decisions, written while it is replayed."""

    def _filed(self, rows: pa.Table) -> pa.Table:
        return _with_number(rows, self.number)


def _repeated(number: int, count: int) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(number, pa.int64()), count)


def _with_number(rows: pa.Table, number: int) -> pa.Table:
    """Return rows of a run with the number that it has in the lake."""
    place = rows.schema.get_field_index("run_id")
    return rows.set_column(place, "run_id", _repeated(number, len(rows)))


@cache
def _events_schema() -> pa.Schema:
    import pyarrow as pa

    columns = recorded_table("events").columns
    types = [(column.name, arrow_type(column.type)) for column in columns]
    return pa.schema([("run_id", pa.int64()), *types[1:]])


@cache
def _events_encoding() -> dict[str, Any]:
    """How events are written: most are counters, which differ little from row to row.

    Differences take half the room of what zstd makes of the numbers themselves, and less time.
    """
    import pyarrow as pa

    numbers = [field.name for field in _events_schema() if pa.types.is_integer(field.type)]
    encoding = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")
    return {"compression": "lz4", "column_encoding": encoding}


def small_tables(
    con: duckdb.DuckDBPyConnection, counts: Mapping[tuple[str, int], int]
) -> dict[str, pa.Table]:
    """Return the tables of a store that hold little, wholly, by their names.

    Args:
        counts: rows by table and run.
    """
    totals: dict[str, int] = {}
    for (table, _), count in counts.items():
        totals[table] = totals.get(table, 0) + count
    result = {}
    for table, total in totals.items():
        if table != "events" and total <= SMALL:
            result[table] = _plain(con.sql(f'SELECT * FROM "{table}"').to_arrow_table())
    return result


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows with texts in place of the numbers that DuckDB has for an ENUM's."""
    import pyarrow as pa

    for index, field in enumerate(rows.schema):
        if pa.types.is_dictionary(field.type):
            rows = rows.set_column(index, field.name, rows[index].cast(pa.string()))
    return rows


def write_run(table: pa.Table, run_id: int, number: int, path: Path) -> None:
    """Write a run's rows of a table, with the number that it has in the lake."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows = _with_number(table.filter(pc.equal(table["run_id"], run_id)), number)
    pq.write_table(rows, path, row_group_size=ROW_GROUP, **_options(rows.column_names))


def copy_run(
    con: duckdb.DuckDBPyConnection, table: str, run_id: int, number: int, path: Path
) -> None:
    """Write a run's rows of a table, which may be many, as DuckDB finds them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    query = f'SELECT * FROM "{table}" WHERE run_id = {run_id}'
    writer = None
    try:
        for batch in con.sql(query).to_arrow_reader(ROW_GROUP):
            rows = _with_number(_plain(pa.Table.from_batches([batch])), number)
            if writer is None:
                writer = pq.ParquetWriter(path, rows.schema, **_options(rows.column_names))
            writer.write_table(rows, row_group_size=ROW_GROUP)
    finally:
        if writer is not None:
            writer.close()
