"""The call on a flow that is no more: tcp_disconnect() clears a socket, then calls set_state().

A program that aborts a connection (close() with SO_LINGER of 0 s) brings it about, as do connect()
with AF_UNSPEC and MPTCP's subflows. By then struct bbr and tp.delivered are 0 (net/ipv4/tcp.c), so
that what the call found is no state of the flow: taken for its last one, it would have delivered 0
packets less what it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..bundle.quality import CODES, QualityNote
from ..store.schema.recorded_tables import KINDS
from .loop.column_plan import I64
from .loop.loop_memory import F_INIT, F_PRE_INIT
from .loop.pairing_memory import number_of

if TYPE_CHECKING:
    import pyarrow as pa

SET_STATE = KINDS.index("set_state")
NEEDED = ("new_state", "tp_delivered")


def without_cleared(batch: pa.RecordBatch, flows: I64) -> tuple[pa.RecordBatch, list[QualityNote]]:
    """Return the batch without such calls, and a note on each of them.

    Args:
        batch: events as they go into the store.
        flows: a row per flow, as the loop has it. Before a flow's init its state is 0, too.
    """
    if not set(NEEDED) <= set(batch.schema.names):
        return batch, []
    found = np.asarray(batch["kind"].indices) == SET_STATE
    for name in NEEDED:
        found &= _values(batch, name) == 0
    rows = np.flatnonzero(found)
    if not len(rows):
        return batch, []
    state = [name for name in batch.schema.names if name.startswith("bbr_")]
    keep = np.ones(batch.num_rows, bool)
    notes = []
    names = ("seq", "flow", "tp_delivered", "line", "ns")
    seq, flow, delivered, line, ns = (_values(batch, name) for name in names)
    acked = np.flatnonzero(delivered > 0)
    numbers, places = np.unique(flow[acked], return_index=True)
    first_acked = dict(zip(numbers.tolist(), acked[places].tolist(), strict=True))
    for row in rows.tolist():
        its = flows[int(flow[row]) - number_of(0)]
        begun = its[F_INIT] == 1 and seq[row] > its[F_PRE_INIT]
        carried = first_acked.get(int(flow[row]), row) < row
        if (begun or carried) and all(not batch[name][row].as_py() for name in state):
            keep[row] = False
            place = (array[row].item() for array in (flow, seq, line, ns))
            notes.append(QualityNote("cleared", CODES["cleared"], *place))
    return (batch.filter(keep), notes) if notes else (batch, [])


def _values(batch: pa.RecordBatch, name: str) -> I64:
    """A column's values; -1 where it has none."""
    column = batch[name]
    values = np.asarray(column.fill_null(0)).astype(np.int64)
    return np.where(np.asarray(column.is_valid()), values, -1)
