"""Read the events of flows out of the store, some flows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ...collect.store.rowsets import arrow_type
from ...collect.store.schema import recorded_table
from ...collect.store.schema.recorded_tables import SAMPLE
from ..bbr.records import KINDS, Array
from .prepare import EVENT_COLUMNS

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Reading has to look through some hundred thousand rows, whether it takes one flow of them or many.
# So many events read at once take some 25 MB.
EVENTS_AT_ONCE = 20_000

_KIND = "CASE kind::VARCHAR " + " ".join(
    f"WHEN '{name}' THEN {number}" for number, name in enumerate(KINDS)
)
_CHOSEN = ", ".join(f'"{name}"' for name in EVENT_COLUMNS if name != "kind")
_EVENTS = (
    f"SELECT flow, {_KIND} END::BIGINT AS kind, {_CHOSEN} FROM {{source}}"
    " WHERE run_id = ? AND flow BETWEEN ? AND ? AND kind <> ?"
)


def flow_groups(events: Mapping[int, int]) -> tuple[tuple[int, ...], ...]:
    """Divide flows into groups that are read at once; `events` has their number by flow, in order.

    A flow is in the group in which its last event falls, counted over all flows.
    """
    groups: dict[int, list[int]] = {}
    ends = accumulate(events.values())
    for flow, end in zip(events, ends, strict=True):
        groups.setdefault(end // EVENTS_AT_ONCE, []).append(flow)
    return tuple(map(tuple, groups.values()))


def load_flows(
    con: duckdb.DuckDBPyConnection, run_id: int, first: int, last: int, source: str = "events"
) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield each flow of `first` to `last` that has events, with its EVENT_COLUMNS.

    These are numpy arrays (masked where NULL), in the order of seq. `source` is SQL after ``FROM``
    for what has the columns of table events.
    """
    of, columns = _in_order(con, run_id, first, last, source)
    yield from _by_flow(of, columns)


def _by_flow(of: Array, columns: dict[str, Array]) -> Iterator[tuple[int, dict[str, Array]]]:
    """Divide columns that are sorted by flow, `of` being its numbers."""
    flows, starts = np.unique(of, return_index=True)
    for flow, start, end in zip(flows, starts, [*starts[1:], len(of)], strict=True):
        yield int(flow), {name: column[start:end] for name, column in columns.items()}


def flows_of_batches(
    batches: Sequence[pa.RecordBatch],
) -> Iterator[tuple[int, dict[str, Array]]]:
    """The same of all flows of a run, as the reader of events gave them, without a store."""
    import pyarrow as pa

    given = pa.Table.from_batches(batches).combine_chunks()
    kinds = given["kind"].chunk(0)
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


def load_flow(con: duckdb.DuckDBPyConnection, run_id: int, flow: int) -> dict[str, Array]:
    """The same of one flow; empty arrays if it has no events."""
    _, columns = _in_order(con, run_id, flow, flow, "events")
    return columns


def _in_order(
    con: duckdb.DuckDBPyConnection, run_id: int, first: int, last: int, source: str
) -> tuple[Array, dict[str, Array]]:
    """Read the events of flows; return their flow and columns, sorted by flow and seq.

    Most are read in this order. DuckDB would sort all the same, which takes a third of the reading.
    """
    query = _EVENTS.replace("{source}", source)
    columns: dict[str, Any] = con.execute(query, [run_id, first, last, SAMPLE]).fetchnumpy()
    of, seq = (np.asarray(columns[name]) for name in ("flow", "seq"))
    same = of[1:] == of[:-1]
    if not ((of[1:] > of[:-1]) | (same & (seq[1:] >= seq[:-1]))).all():
        order = np.lexsort((seq, of))
        of, columns = of[order], {name: column[order] for name, column in columns.items()}
    del columns["flow"]
    return of, columns
