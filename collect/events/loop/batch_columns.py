"""Values of rows into the columns of a batch, and what needs whole batches: numbers, growth.

Elements are copied one by one: an assignment to a slice takes numba a second to compile, for the
error message it might need.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....probes.base.jit import inline, jit
from ..idle_growth import grew_idle
from .column_plan import (
    I64,
    MAIN_ACKED,
    MAIN_DELIVERED,
    MAIN_IN_FLIGHT,
    MAIN_MSS,
    MAIN_PRIOR,
    MOVE_FROM,
    MOVE_TO,
)
from .loop_memory import (
    B_FLOW,
    B_KIND,
    CWND_EVENT,
    F_DELIVERED,
    F_EVENTS,
    F_IN_FLIGHT,
    F_MSS,
    F_SEQ,
    INIT,
    MAIN,
    MOVED,
    S_SLOT,
    SLOT_SIZE,
    SOCKETS,
    Batch,
)
from .rows import HEAD_SLOT, HEAD_TAG

_grew_idle = jit(grew_idle)


@jit
def store_rows(count: int, heads: I64, values: I64, moves: I64, bounds: I64, batch: Batch) -> None:
    """Write the values of `count` rows into the columns of their events."""
    u1, u2, u4, u8 = batch.u1, batch.u2, batch.u4, batch.u8
    for row in range(count):
        slot = heads[row, HEAD_SLOT]
        tag = heads[row, HEAD_TAG]
        if slot < 0:
            continue
        for move in range(bounds[tag, 0], bounds[tag, 1]):
            to = np.uint64(moves[move, MOVE_TO] + slot)
            u1[to] = values[row, np.uint64(moves[move, MOVE_FROM])] & 0xFF
        for move in range(bounds[tag, 1], bounds[tag, 2]):
            to = np.uint64(moves[move, MOVE_TO] + slot)
            u2[to] = values[row, np.uint64(moves[move, MOVE_FROM])] & 0xFFFF
        for move in range(bounds[tag, 2], bounds[tag, 3]):
            to = np.uint64(moves[move, MOVE_TO] + slot)
            u4[to] = values[row, np.uint64(moves[move, MOVE_FROM])] & 0xFFFFFFFF
        for move in range(bounds[tag, 3], bounds[tag, 4]):
            to = np.uint64(moves[move, MOVE_TO] + slot)
            u8[to] = values[row, np.uint64(moves[move, MOVE_FROM])]


@jit
def number_events(
    count: int,
    slots: I64,
    flows: I64,
    u4: npt.NDArray[np.uint32],
    main: I64,
    seq: npt.NDArray[np.int32],
    grown: I64,
) -> None:
    """Number the events of the first `count` slots within their flows, and check every main.

    A note gets the number of the event that follows it. `grown` becomes, for a main before
    which calls went unseen, how much tp.delivered grew [packets], else -1.
    """
    check = main[MAIN_DELIVERED] >= 0 and main[MAIN_ACKED] >= 0
    for slot in range(count):
        flow = slots[slot, B_FLOW]
        kind = slots[slot, B_KIND]
        grown[slot] = -1
        seq[slot] = -1
        if flow < 0 or kind == MOVED:
            continue
        seq[slot] = flows[flow, F_SEQ]
        if kind < 0:
            flows[flow, F_IN_FLIGHT] = -1  # what is missing may have been any call
            continue
        flows[flow, F_SEQ] += 1
        if kind == INIT:
            flows[flow, F_DELIVERED] = -1
        if kind == CWND_EVENT:
            flows[flow, F_EVENTS] += 1
        if kind == MAIN and check:
            grown[slot] = unseen_growth(slot, flow, flows, u4, main)


@inline
def unseen_growth(slot: int, flow: int, flows: I64, u4: npt.NDArray[np.uint32], main: I64) -> int:
    """Return how much tp.delivered grew if not by a main's rs.acked_sacked, else -1.

    It grows by rs.acked_sacked per call of main, and while nothing is in flight. A successful
    MTU probe changes the segment size, and with it what one packet is: no check then.
    """
    delivered = int(u4[main[MAIN_DELIVERED] + slot])
    mss = int(u4[main[MAIN_MSS] + slot]) if main[MAIN_MSS] >= 0 else 0
    last = flows[flow, F_DELIVERED]
    unseen = -1
    if last >= 0 and flows[flow, F_MSS] == mss:
        growth = (delivered - last) & 0xFFFFFFFF
        acked = int(u4[main[MAIN_ACKED] + slot])
        prior = int(u4[main[MAIN_PRIOR] + slot]) if main[MAIN_PRIOR] >= 0 else -1
        in_flight, events = flows[flow, F_IN_FLIGHT], flows[flow, F_EVENTS]
        if growth != acked and not _grew_idle(in_flight, events, prior, delivered, acked):
            unseen = growth
    in_flight = int(u4[main[MAIN_IN_FLIGHT] + slot]) if main[MAIN_IN_FLIGHT] >= 0 else -1
    flows[flow, F_DELIVERED] = delivered
    flows[flow, F_MSS] = mss
    flows[flow, F_IN_FLIGHT], flows[flow, F_EVENTS] = in_flight, 0
    return unseen


@jit
def carry_open(
    moves: I64, bounds: I64, sockets: I64, batch: Batch, fresh: Batch, state: I64
) -> int:
    """Move the open events to the start of the batch `fresh`; return how many.

    Their old slots become MOVED.
    """
    slots, new_slots = batch.slots, fresh.slots
    moved = 0
    for socket in range(state[SOCKETS]):
        old = sockets[socket, S_SLOT]
        if old < 0:
            continue
        for field in range(SLOT_SIZE):
            new_slots[moved, field] = slots[old, field]
        slots[old, B_KIND] = MOVED
        copy_event(moves, bounds, batch, old, fresh, moved)
        sockets[socket, S_SLOT] = moved
        moved += 1
    return moved


@jit
def copy_event(
    moves: I64, bounds: I64, batch: Batch, slot: int, fresh: Batch, new_slot: int
) -> None:
    """Copy the stored values of the event at `slot` to `new_slot` of the batch `fresh`."""
    u1, u2, u4, u8 = batch.u1, batch.u2, batch.u4, batch.u8
    n1, n2, n4, n8 = fresh.u1, fresh.u2, fresh.u4, fresh.u8
    for tag in range(len(bounds)):
        for move in range(bounds[tag, 0], bounds[tag, 1]):
            n1[moves[move, MOVE_TO] + new_slot] = u1[moves[move, MOVE_TO] + slot]
        for move in range(bounds[tag, 1], bounds[tag, 2]):
            n2[moves[move, MOVE_TO] + new_slot] = u2[moves[move, MOVE_TO] + slot]
        for move in range(bounds[tag, 2], bounds[tag, 3]):
            n4[moves[move, MOVE_TO] + new_slot] = u4[moves[move, MOVE_TO] + slot]
        for move in range(bounds[tag, 3], bounds[tag, 4]):
            n8[moves[move, MOVE_TO] + new_slot] = u8[moves[move, MOVE_TO] + slot]
