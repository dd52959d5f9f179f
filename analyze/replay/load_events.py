"""Read the events of flows out of the store, some flows at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...collect.store.query import listed
from ...collect.store.rowsets import arrow_type
from ...collect.store.schema import recorded_table
from ...collect.store.schema.recorded_tables import SAMPLE
from ..bbr.records import KINDS, Array
from .flow_rows import Columns, FlowRows, rows_at_hand
from .prepare import EVENT_COLUMNS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Reading has to look through some hundred thousand rows, whether it takes one flow of them or many.
# So many events read at once take some 25 MB.
EVENTS_AT_ONCE = 20_000
# A flow with more events is read, and replayed, so many numbers of seq at a time.
LONGEST_BLOCK = 50_000

_CHOSEN = ", ".join(f'"{name}"' for name in ("run_id", "flow", *EVENT_COLUMNS))


def flow_groups(events: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Divide flows into groups that are read at once; `events` has their number by flow, in order.

    A flow is in the group in which its last event falls, counted over all flows; one of more than
    `LONGEST_BLOCK` events is alone.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    ends = accumulate(events.values())
    long = 0  # long flows so far: no group goes on after one
    for (flow, count), end in zip(events.items(), ends, strict=True):
        is_long = count > LONGEST_BLOCK
        groups.setdefault((end // EVENTS_AT_ONCE, long + is_long), []).append(flow)
        long += 2 * is_long
    return tuple(map(tuple, groups.values()))


def load_flows(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    first: int,
    last: int,
    source: str = "events",
    seqs: range | None = None,
) -> Iterator[tuple[int, int, Columns]]:
    """Yield each flow of `first` to `last` of runs that has events: run, flow, its EVENT_COLUMNS.

    These are numpy arrays (masked where NULL), in the order of seq. `source` is SQL after ``FROM``
    for what has the columns of table events; `seqs`: of these events only. Planning a query of so
    many columns takes as long as reading thousands of events: small runs are read together.
    """
    query = (
        f"SELECT {_CHOSEN} FROM {source} WHERE run_id IN {listed(run_ids)}"
        f" AND flow BETWEEN {first:d} AND {last:d} AND kind <> '{SAMPLE}'"
    )
    if seqs is not None:
        query += f" AND seq >= {seqs.start:d} AND seq < {seqs.stop:d}"
    given = con.sql(query).to_arrow_table().combine_chunks()
    of = np.asarray(given["run_id"])
    for run_id in run_ids:
        places: Array = np.flatnonzero(of == run_id)
        if not len(places):
            continue
        start, count = int(places[0]), len(places)
        together = int(places[-1]) - start == count - 1
        part = given.slice(start, count) if together else given.take(places)
        for flow, columns in _by_flow(part):
            yield run_id, flow, columns


def rows_of_flows(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    flows: Sequence[int],
    long_flows: Collection[int],
    source: str = "events",
) -> Iterator[tuple[int, FlowRows]]:
    """Yield the same as what a replay takes: run, rows.

    `flows` is one of `long_flows`, which is read some events at a time, or are those from a first
    to a last one without any of these.
    """
    if flows[0] in long_flows:
        for run_id in run_ids:
            yield run_id, _stored_rows(con, run_id, flows[0], source)
        return
    for run_id, flow, columns in load_flows(con, run_ids, flows[0], flows[-1], source):
        yield run_id, rows_at_hand(flow, columns)


def _stored_rows(con: duckdb.DuckDBPyConnection, run_id: int, flow: int, source: str) -> FlowRows:
    """The rows of a flow, which are read when they are asked for."""
    query = (
        f"SELECT DISTINCT seq // {LONGEST_BLOCK} AS part FROM {source}"
        " WHERE run_id = ? AND flow = ? ORDER BY part"
    )
    parts = con.execute(query, [run_id, flow]).fetchall()

    def block(part: int) -> Columns:
        seqs = range(part * LONGEST_BLOCK, (part + 1) * LONGEST_BLOCK)
        for _, _, columns in load_flows(con, [run_id], flow, flow, source, seqs):
            return columns
        return _nothing()

    return FlowRows(flow, [partial(block, part) for (part,) in parts])


def flows_of_batches(
    batches: Sequence[pa.RecordBatch],
) -> Iterator[tuple[int, Columns]]:
    """The same of all flows of a run, as the reader of events gave them, without a store."""
    import pyarrow as pa

    yield from _by_flow(pa.Table.from_batches(batches))


def _by_flow(events: pa.Table) -> Iterator[tuple[int, Columns]]:
    """The same of all flows of a run, of which there is at least one event."""
    given = events.combine_chunks()
    kinds = given["kind"].chunk(0)
    if not hasattr(kinds, "dictionary"):  # a file's are plain text
        kinds = kinds.dictionary_encode()
    names = kinds.dictionary.to_pylist()
    numbers = np.array([KINDS.index(name) if name in KINDS else -1 for name in names], np.int64)
    kind = numbers[np.asarray(kinds.indices)]
    of, seq = np.asarray(given["flow"]), np.asarray(given["seq"])
    chosen: Array = np.flatnonzero(kind >= 0)
    # Rows come in the order of their ends; those of a flow are in the order of seq.
    sorted_: Array = chosen[np.lexsort((seq[chosen], of[chosen]))]
    as_given = len(sorted_) == len(kind) and bool((sorted_[1:] > sorted_[:-1]).all())
    order = slice(None) if as_given else sorted_
    flows, starts = np.unique(of[order], return_index=True)
    parts = [slice(*ends) for ends in pairwise([*starts.tolist(), len(sorted_)])]
    columns = _Columns(given, order, parts)
    numbers_of_kind = kind[order]
    for index, (flow, part) in enumerate(zip(flows, parts, strict=True)):
        yield (
            int(flow),
            {
                name: numbers_of_kind[part] if name == "kind" else columns.of(name)[index]
                for name in EVENT_COLUMNS
            },
        )


class _Columns:
    """Columns of a table of events, as DuckDB gives them: masked if they have NULL, or are absent.

    What belongs together was recorded together, so that few masks serve them all.
    """

    def __init__(self, given: pa.Table, order: slice | Array, parts: list[slice]) -> None:
        self.given = dict(zip(given.column_names, given.columns, strict=True))
        self.order, self.parts = order, parts
        self._masks: dict[tuple[int, int], Array] = {}
        self._found: dict[str, list[Array]] = {}

    def of(self, name: str) -> list[Array]:
        """A column's values, flow by flow."""
        if name not in self._found:
            self._found[name] = self._parts(name)
        return self._found[name]

    def _parts(self, name: str) -> list[Array]:
        number = _types()[name]
        if name not in self.given:
            lengths = (part.stop - part.start for part in self.parts)
            return [np.ma.MaskedArray(np.zeros(n, number), True) for n in lengths]
        column = self.given[name].chunk(0)
        data: Array = np.frombuffer(column.buffers()[1], number)
        data = data[column.offset : column.offset + len(column)]
        if not isinstance(self.order, slice):
            data = data.take(self.order)
        if not column.null_count:
            return [data[part] for part in self.parts]
        mask = self._mask(column)
        return [np.ma.MaskedArray(data[part], mask[part]) for part in self.parts]

    def _mask(self, column: pa.Array) -> Array:
        """Where a column is NULL."""
        key = column.buffers()[0].address, column.offset
        if key not in self._masks:
            self._masks[key] = column.is_null().to_numpy(zero_copy_only=False)[self.order]
        return self._masks[key]


@cache
def _types() -> dict[str, np.dtype[Any]]:
    """The numbers that columns of events hold, but for their kind, by name."""
    columns = recorded_table("events").columns
    wanted = (
        column for column in columns if column.name in EVENT_COLUMNS and column.name != "kind"
    )
    return {one.name: np.dtype(arrow_type(one.type).to_pandas_dtype()) for one in wanted}


def load_flow(con: duckdb.DuckDBPyConnection, run_id: int, flow: int) -> Columns:
    """The same of one flow; empty arrays if it has no events."""
    for _, _, columns in load_flows(con, [run_id], flow, flow):
        return columns
    return _nothing()


def _nothing() -> Columns:
    return {name: np.zeros(0, _types().get(name, np.int64)) for name in EVENT_COLUMNS}
