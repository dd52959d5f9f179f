"""The memory that the compiled loop works in: what each number of its tables means.

A table is an array of int64 with a row per socket, flow or slot; the names below index its columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...store.schema.recorded_tables import KINDS
from .column_plan import I64

INIT, MAIN = KINDS.index("init"), KINDS.index("main")
CWND_EVENT = KINDS.index("cwnd_event")

# Slot kinds below zero are notes; those from zero on index KINDS.
HALF, ORPHAN, DUPLICATE, MOVED, GAP = -1, -2, -3, -4, -5

# Why `consume` returned, besides rows.py's reasons to stop.
BACKWARDS, BATCH_FULL, SOCKETS_FULL, SIDE_FULL = 10, 11, 12, 13

# Indices into `state` after those of rows.py. SUSPECT is 1 once rows are known to be lost, NUMBERED
# where events have numbers.
LINE, SLOTS, SOCKETS, FLOWS, SIDES, SUSPECT, NUMBERED, LAST_SOCKET, STATE_SIZE = range(4, 13)

# What a row of `sockets` holds: the address, its current flow or -1, flows before that, the slot of
# the open event or -1, time and tag of the last row, events of the flow so far, the OR of the first
# event's struct bbr, whether init was seen, the number of its next event (UNKNOWN: none was seen),
# the identity (an N row, from 1 on; 0: none) that the next event's flow has, the number that this
# flow's events begin with: not 0 where the recording kept only the end of a flow, how far BBR had
# come at the flow's last sample, and whether the socket took another congestion control since.
(
    S_KEY,
    S_FLOW,
    S_GENERATION,
    S_SLOT,
    S_NS,
    S_TAG,
    S_EVENTS,
    S_BITS,
    S_INIT,
    S_NEXT,
    S_IDENTITY,
    S_FROM,
    S_COME,
    S_LEFT,
) = range(14)
SOCKET_SIZE = 14
UNKNOWN = -1

# What a row of `slots` holds: the flow's index in `flows`, kind, time, line, time of exit, bits of
# the parts seen, and two numbers for a note.
B_FLOW, B_KIND, B_NS, B_LINE, B_EXIT_NS, B_SEEN, B_FIRST, B_SECOND = range(8)
SLOT_SIZE = 8

# What a row of `flows` holds: its socket, its generation, whether init was seen, events before it,
# the number of the next event, tp.delivered (-1: none), tp.mss_cache and tp.packets_out (-1: not
# known) of the last main, and how often cwnd_event was called since, the socket's cookie (0:
# unknown, or none), the identity that came before its first event (0: none), what says that its
# socket took another congestion control after it (0: nothing), and one more than the index of the
# flow that this socket was before it left BBR and came back (0: none).
F_SOCKET, F_GENERATION, F_INIT, F_PRE_INIT, F_SEQ = range(5)
F_DELIVERED, F_MSS, F_IN_FLIGHT, F_EVENTS = range(5, 9)
F_COOKIE, F_IDENTITY, F_LEFT, F_BEFORE = range(9, 13)
FLOW_SIZE = 13
# A row says so, or the numbers, which go on in the socket's next flow.
LEFT_BY_ROW, LEFT_BY_NUMBERS = 1, 2

# Numbers before the values in a row handed to Python: tag, flow, time, line. A socket that has no
# flow yet is written as NO_FLOW minus its index.
SIDE_HEAD = 4
NO_FLOW = -2

# Rows read at once.
BLOCK_ROWS = 512
# A row opens at most one event and makes at most one note.
SLOTS_PER_ROW = 2


class Batch(NamedTuple):
    """Slots, and the stored columns by width: four views of one buffer."""

    slots: I64
    u1: npt.NDArray[np.uint8]
    u2: npt.NDArray[np.uint16]
    u4: npt.NDArray[np.uint32]
    u8: I64


class PairingTables(NamedTuple):
    """What is known of sockets and flows, and how many rows of each tag were read.

    `by_address` is a hash table of indices into `sockets`, -1 where it is empty; its size is a
    power of two.
    """

    by_address: I64
    sockets: I64
    flows: I64
    rows: I64


class Block(NamedTuple):
    """Rows on their way: `heads` and `values` as rows.py parses them, `side` for Python."""

    heads: I64
    values: I64
    side: I64
