"""The memory of a batch of events, and its way into Arrow without a copy."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...probes.fields import EVENT_FIELDS, EXIT_FIELDS
from ..store.schema.recorded_tables import KINDS
from .lines.header import MOST_KNOWN, Header
from .loop.batch_columns import number_events
from .loop.column_plan import I64, TARGETS, Plan, batch_layout
from .loop.loop_memory import (
    B_EXIT_NS,
    B_FLOW,
    B_KIND,
    B_LINE,
    B_NS,
    B_SEEN,
    MOVED,
    SLOT_SIZE,
    Batch,
)
from .loop.pairing_memory import number_of

if TYPE_CHECKING:
    import pyarrow as pa

SIGNED = {f.column for f in EVENT_FIELDS if f.signed} | {
    f.exit_column for f in EXIT_FIELDS if f.signed
}


class Finished(NamedTuple):
    """What became of a batch: see loop/pairing.py for slots.

    `record_batch` holds the events, `noted` the indices of the slots in which something is
    missing or odd. Per slot, `seq` is the number of the event in its flow, and `grown` how much
    tp.delivered grew since the main() before, if calls went unseen between [packets; else -1].
    """

    record_batch: pa.RecordBatch
    noted: npt.NDArray[np.intp]
    seq: npt.NDArray[np.int32]
    grown: npt.NDArray[np.int64]


class Assembler:
    """Makes batches for one header and turns full ones into Arrow record batches.

    Attributes:
        offsets: byte offset of each stored column in a batch's buffer.
    """

    def __init__(self, header: Header, capacity: int) -> None:
        self.capacity = capacity
        self.offsets, self._bytes = batch_layout(header, capacity)
        self._providers = _providers(header)
        self._all_parts = np.array(
            [sum(tag.part for tag in header.tags if tag.kind == kind) for kind in KINDS]
        )

    def parts_of(self, kind: str) -> int:
        """Return the bits of the parts of a whole event."""
        return int(self._all_parts[KINDS.index(kind)])

    def offsets_of(self, kind: str) -> dict[str, int]:
        """Return those of `offsets` whose columns an event of this kind has."""
        at = KINDS.index(kind)
        return {name: o for name, o in self.offsets.items() if self._providers[name][at]}

    def new_batch(self) -> Batch:
        """Return an empty batch."""
        buffer = np.empty(self._bytes, np.uint8)
        return Batch(
            slots=np.empty((self.capacity, SLOT_SIZE), np.int64),
            u1=buffer,
            u2=buffer.view(np.uint16),
            u4=buffer.view(np.uint32),
            u8=buffer.view(np.int64),
        )

    def finish(self, batch: Batch, count: int, plan: Plan, flows: I64) -> Finished:
        """Turn the first `count` slots into a record batch; leave out those that were MOVED.

        MOVED slots belong to events that were still open and went to the next batch.
        """
        slots = batch.slots[:count]
        seq = np.empty(count, np.int32)
        grown = np.empty(count, np.int64)
        number_events(count, batch.slots, flows, batch.u4, plan.main, seq, grown)
        kind = slots[:, B_KIND]
        events = np.flatnonzero(kind >= 0)
        noted = np.flatnonzero(((kind < 0) & (kind != MOVED)) | (grown >= 0))
        return Finished(self._record_batch(batch, events, seq), noted, seq, grown)

    def _record_batch(
        self, batch: Batch, events: npt.NDArray[np.intp], seq: npt.NDArray[np.int32]
    ) -> pa.RecordBatch:
        import pyarrow as pa

        count = len(events)
        # Notes are rare and the open events come last: nearly always a prefix is picked.
        pick: slice | npt.NDArray[np.intp] = (
            slice(0, count) if count == 0 or events[-1] == count - 1 else events
        )
        slots = batch.slots[pick]
        kind = slots[:, B_KIND].astype(np.int8)
        seen = slots[:, B_SEEN]
        exit_ns = slots[:, B_EXIT_NS]
        columns: dict[str, pa.Array] = {
            "flow": pa.array(number_of(slots[:, B_FLOW]).astype(np.int32)),
            "seq": pa.array(seq[pick]),
            "ns": pa.array(slots[:, B_NS].astype(np.uint64)),
            "kind": pa.DictionaryArray.from_arrays(pa.array(kind), pa.array(KINDS)),
            "line": pa.array(slots[:, B_LINE].astype(np.uint64)),
            "complete": pa.array(seen == self._all_parts[kind]),
            "exit_ns": pa.array(exit_ns.astype(np.uint64), mask=exit_ns == 0),
        }
        valid = _Validity(kind, seen, self._providers)
        for name, offset in self.offsets.items():
            width = TARGETS[name]
            data = batch.u1[offset : offset + width * self.capacity]
            data = data.view(_dtype(name, width))[pick]
            bits, nulls = valid.of(name)
            buffers = [None if bits is None else pa.py_buffer(bits), pa.py_buffer(data)]
            columns[name] = pa.Array.from_buffers(
                pa.from_numpy_dtype(data.dtype), count, buffers, nulls
            )
        return pa.record_batch(columns)


class _Validity:
    """Which events of a batch have a column: those whose parts that provide it were seen."""

    def __init__(
        self, kind: npt.NDArray[np.int8], seen: I64, providers: dict[str, npt.NDArray[np.int64]]
    ) -> None:
        self._kind = kind
        self._seen = seen
        self._providers = providers
        self._known: dict[bytes, tuple[npt.NDArray[np.uint8] | None, int]] = {}

    def of(self, name: str) -> tuple[npt.NDArray[np.uint8] | None, int]:
        """Return Arrow's validity bits of a column (None: all valid), and how many are null."""
        parts = self._providers[name]
        key = parts.tobytes()
        if key not in self._known:
            valid = (self._seen & parts[self._kind]) != 0
            nulls = len(valid) - int(np.count_nonzero(valid))
            bits = np.packbits(valid, bitorder="little") if nulls else None
            self._known[key] = (bits, nulls)
        return self._known[key]


@lru_cache(MOST_KNOWN)
def _providers(header: Header) -> dict[str, npt.NDArray[np.int64]]:
    """Return per column the bit of the part that fills it, by kind; 0: that kind lacks it."""
    providers: dict[str, npt.NDArray[np.int64]] = {}
    for tag in header.tags:
        for column in tag.columns:
            if column.target is not None and tag.kind in KINDS:
                parts = providers.setdefault(column.target, np.zeros(len(KINDS), np.int64))
                parts[KINDS.index(tag.kind)] |= tag.part
    return providers


def _dtype(name: str, width: int) -> np.dtype[Any]:
    return np.dtype(f"{'i' if name in SIGNED else 'u'}{width}")
