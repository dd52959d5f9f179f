"""Rows to kernel events: one open event per socket, written straight into a columnar batch.

A socket's rows come in the order M0 M1 X, but rows of other sockets lie between them, rows can be
lost, and the last event of a socket never closes. Every event takes a slot of the batch when its
first row comes. What is missing or odd takes a slot as well, so that findings keep their place
among the events.

The compiled functions take arrays, not tuples of them: numba counts references to every array that
it takes out of a tuple.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .jit import jit
from .plan import (
    COLUMN_OFFSET,
    COLUMN_STATE,
    COLUMN_TYPE,
    COLUMN_WIDTH,
    I64,
    KIND_ALL,
    KIND_ENTRY,
    MAIN_ACKED,
    MAIN_DELIVERED,
    MAIN_MSS,
    SOCKET,
    TAG_BEFORE,
    TAG_COUNT,
    TAG_FIRST,
    TAG_KIND,
    TAG_PART,
    TAG_SIDE,
    TAG_START,
    TIME,
)
from .rows import find_tag, parse_row
from .schema.recording import KINDS

INIT, MAIN = KINDS.index("init"), KINDS.index("main")

# Slot kinds below zero are findings; those from zero on index KINDS.
HALF, ORPHAN, DUPLICATE, JUMP, MOVED = -1, -2, -3, -4, -5

# Why `consume` returned.
DONE, OTHER_LINE, BAD_ROW, BACKWARDS, BATCH_FULL, SOCKETS_FULL, SIDE_FULL = range(7)

# Indices into `state`. SUSPECT is 1 once rows are known to be lost.
POS, LINE, SLOTS, SOCKETS, FLOWS, SIDES, SUSPECT, LAST_SOCKET, WHY, COLUMN, TAG = range(11)

# What a row of `sockets` holds: the address, its current flow or -1, flows before that, the slot of
# the open event or -1, time and tag of the last row, events of the flow so far, whether the first
# met an all-zero struct bbr, whether init was seen, the OR of the open event's struct
# bbr, and tp.delivered (-1: none) and tp.mss_cache of the last main.
(
    S_KEY,
    S_FLOW,
    S_GENERATION,
    S_SLOT,
    S_NS,
    S_TAG,
    S_EVENTS,
    S_ZERO,
    S_INIT,
    S_BITS,
    S_DELIVERED,
    S_MSS,
) = range(12)

# What a row of `slots` holds: flow, kind, time, line, time of exit, bits of the parts seen, and two
# numbers for a finding.
B_FLOW, B_KIND, B_NS, B_LINE, B_EXIT_NS, B_SEEN, B_FIRST, B_SECOND = range(8)

# What a row of `flows` holds: its socket, its generation, whether init was seen, events before it.
F_SOCKET, F_GENERATION, F_INIT, F_PRE_INIT = range(4)

# Numbers before the values in a row handed to Python: tag, flow, time, line.
SIDE_HEAD = 4

# Rows of one event are printed one after the other by one BPF program: 60 us apart at most in 42
# recordings, while two events whose middle was lost lie at least 150 us apart. Where rows are
# known to be lost, rows farther apart than this are not of one event.
PART_SPAN_NS = 100_000

# A row opens at most one event, and closes at most two, each with a finding.
SLOTS_PER_ROW = 3


class Batch(NamedTuple):
    """Slots, and the stored columns by width: four views of one buffer."""

    slots: I64
    u1: npt.NDArray[np.uint8]
    u2: npt.NDArray[np.uint16]
    u4: npt.NDArray[np.uint32]
    u8: I64


@jit
def hash_slot(key: int, size: int) -> int:
    """Return where a socket address begins its search in a table of `size`, a power of two."""
    mixed = ((key >> 32) ^ (key & 0xFFFFFFFF)) & 0x7FFFFFFF
    return ((mixed * 0x4F6CDD1D) >> 24) & (size - 1)


@jit
def find_socket(key: int, table: Any, sockets: Any, state: Any) -> int:
    """Return the index of a socket, entering it if it is new."""
    last = state[LAST_SOCKET]
    if last >= 0 and sockets[last, S_KEY] == key:
        return int(last)
    size = len(table)
    at = hash_slot(key, size)
    while table[at] >= 0:
        index = table[at]
        if sockets[index, S_KEY] == key:
            state[LAST_SOCKET] = index
            return int(index)
        at = (at + 1) & (size - 1)
    index = state[SOCKETS]
    state[SOCKETS] += 1
    table[at] = index
    sockets[index, :] = 0
    sockets[index, S_KEY] = key
    sockets[index, S_FLOW] = -1
    sockets[index, S_GENERATION] = -1
    sockets[index, S_SLOT] = -1
    sockets[index, S_TAG] = -1
    sockets[index, S_DELIVERED] = -1
    state[LAST_SOCKET] = index
    return int(index)


@jit
def rehash(table: Any, sockets: Any, count: int) -> None:
    """Enter the first `count` sockets into an empty table."""
    size = len(table)
    for socket in range(count):
        at = hash_slot(sockets[socket, S_KEY], size)
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = socket


@jit
def new_slot(slots: Any, state: Any, kind: int, flow: int, ns: int) -> int:
    """Take the next slot of the batch."""
    slot = state[SLOTS]
    state[SLOTS] += 1
    slots[slot, B_FLOW] = flow
    slots[slot, B_KIND] = kind
    slots[slot, B_NS] = ns
    slots[slot, B_LINE] = state[LINE]
    slots[slot, B_EXIT_NS] = 0
    slots[slot, B_SEEN] = 0
    return int(slot)


@jit
def find_fault(
    slots: Any, state: Any, code: int, flow: int, ns: int, first: int, second: int
) -> None:
    """Take a slot for a finding that tells of lost rows."""
    slot = new_slot(slots, state, code, flow, ns)
    slots[slot, B_FIRST] = first
    slots[slot, B_SECOND] = second
    state[SUSPECT] = 1


@jit
def check_main(
    socket: int, slot: int, main: Any, sockets: Any, slots: Any, u4: Any, state: Any
) -> None:
    """Find calls of main that nothing reported: tp.delivered grows by rs.acked_sacked per call."""
    if main[MAIN_DELIVERED] < 0 or main[MAIN_ACKED] < 0:
        return
    delivered = int(u4[main[MAIN_DELIVERED] + slot])
    acked = int(u4[main[MAIN_ACKED] + slot])
    mss = int(u4[main[MAIN_MSS] + slot]) if main[MAIN_MSS] >= 0 else 0
    before = sockets[socket, S_DELIVERED]
    # A successful MTU probe changes the segment size, and with it what counts as one packet.
    if before >= 0 and sockets[socket, S_MSS] == mss:
        grown = (delivered - before) & 0xFFFFFFFF
        if grown != acked:
            found = new_slot(slots, state, JUMP, slots[slot, B_FLOW], slots[slot, B_NS])
            slots[found, B_LINE] = slots[slot, B_LINE]
            slots[found, B_FIRST] = grown
            slots[found, B_SECOND] = acked
    sockets[socket, S_DELIVERED] = delivered
    sockets[socket, S_MSS] = mss


@jit
def close_event(
    socket: int, kinds: Any, main: Any, sockets: Any, slots: Any, u4: Any, state: Any
) -> None:
    """Close a socket's open event; without all its entry rows it becomes a finding."""
    slot = sockets[socket, S_SLOT]
    if slot < 0:
        return
    sockets[socket, S_SLOT] = -1
    kind = slots[slot, B_KIND]
    entry = kinds[kind, KIND_ENTRY]
    if slots[slot, B_SEEN] & entry != entry:
        slots[slot, B_FIRST] = kind
        slots[slot, B_SECOND] = socket
        slots[slot, B_KIND] = HALF
        state[SUSPECT] = 1
        return
    if sockets[socket, S_EVENTS] == 0 and sockets[socket, S_BITS] == 0:
        sockets[socket, S_ZERO] = 1
    if kind == MAIN:
        check_main(socket, slot, main, sockets, slots, u4, state)
    sockets[socket, S_EVENTS] += 1


@jit
def begin_flow(socket: int, sockets: Any, flows: Any, state: Any) -> None:
    """Give a socket a new flow."""
    flow = state[FLOWS]
    state[FLOWS] += 1
    sockets[socket, S_FLOW] = flow
    sockets[socket, S_GENERATION] += 1
    sockets[socket, S_EVENTS] = 0
    sockets[socket, S_ZERO] = 0
    sockets[socket, S_INIT] = 0
    sockets[socket, S_DELIVERED] = -1
    flows[flow, F_SOCKET] = socket
    flows[flow, F_GENERATION] = sockets[socket, S_GENERATION]
    flows[flow, F_INIT] = 0
    flows[flow, F_PRE_INIT] = 0


@jit
def open_event(
    socket: int, kind: int, ns: int, sockets: Any, slots: Any, flows: Any, state: Any
) -> None:
    """Open an event on a socket that has none, and a flow with it where one begins.

    An active opener has callbacks run on a zeroed struct bbr before init: main for the SYN's ACK
    (tcp_input.c tcp_rcv_synsent_state_process(), tcp_ack()), the loss path for a SYN sent again.
    Such events belong to the flow that init begins.
    """
    fresh = sockets[socket, S_FLOW] < 0
    if kind == INIT and not fresh:
        fresh = sockets[socket, S_INIT] == 1 or sockets[socket, S_ZERO] == 0
    if fresh:
        begin_flow(socket, sockets, flows, state)
    flow = sockets[socket, S_FLOW]
    if kind == INIT:
        sockets[socket, S_INIT] = 1
        sockets[socket, S_DELIVERED] = -1
        flows[flow, F_INIT] = 1
        flows[flow, F_PRE_INIT] = sockets[socket, S_EVENTS]
    sockets[socket, S_SLOT] = new_slot(slots, state, kind, flow, ns)
    sockets[socket, S_BITS] = 0


@jit
def store_row(
    slot: int, first: int, count: int, columns: Any, values: Any, u1: Any, u2: Any, u4: Any, u8: Any
) -> int:
    """Write a row's values into its event's columns; return the OR of struct bbr's fields."""
    bits = 0
    for index in range(count):
        column = first + index
        value = values[index]
        width = columns[column, COLUMN_WIDTH]
        at = columns[column, COLUMN_OFFSET] + slot
        if width == 4:
            u4[at] = value & 0xFFFFFFFF
        elif width == 1:
            u1[at] = value & 0xFF
        elif width == 8:
            u8[at] = value
        elif width == 2:
            u2[at] = value & 0xFFFF
        if columns[column, COLUMN_STATE]:
            bits |= value
    return bits


@jit
def hand_over(tag: int, flow: int, ns: int, count: int, values: Any, side: Any, state: Any) -> None:
    """Hand a row to Python as it is."""
    at = state[SIDES]
    state[SIDES] += 1
    side[at, 0] = tag
    side[at, 1] = flow
    side[at, 2] = ns
    side[at, 3] = state[LINE]
    for index in range(count):
        side[at, SIDE_HEAD + index] = values[index]


@jit
def fits(socket: int, tag: int, ns: int, tags: Any, sockets: Any, slots: Any, state: Any) -> bool:
    """Tell whether a row continues its socket's open event."""
    slot = sockets[socket, S_SLOT]
    if slot < 0 or slots[slot, B_KIND] != tags[tag, TAG_KIND]:
        return False
    seen = slots[slot, B_SEEN]
    before = tags[tag, TAG_BEFORE]
    if seen & tags[tag, TAG_PART] != 0 or seen & before != before:
        return False
    return bool(state[SUSPECT] == 0 or ns - sockets[socket, S_NS] <= PART_SPAN_NS)


@jit
def row_identity(first: int, count: int, columns: Any, values: Any) -> tuple[int, int]:
    """Return a row's socket address and its time."""
    key = 0
    ns = 0
    for index in range(count):
        kind = columns[first + index, COLUMN_TYPE]
        if kind == TIME:
            ns = values[index]
        elif kind == SOCKET:
            key = values[index]
    return key, ns


@jit
def room(slots: Any, sockets: Any, flows: Any, side: Any, state: Any) -> int:
    """Return DONE, or which memory is too full for one more row."""
    if state[SLOTS] + SLOTS_PER_ROW > len(slots):
        return BATCH_FULL
    if state[SOCKETS] >= len(sockets) or state[FLOWS] >= len(flows):
        return SOCKETS_FULL
    if state[SIDES] >= len(side):
        return SIDE_FULL
    return DONE


@jit
def consume(
    text: Any,
    end: int,
    tags: Any,
    columns: Any,
    kinds: Any,
    main: Any,
    table: Any,
    sockets: Any,
    flows: Any,
    slots: Any,
    u1: Any,
    u2: Any,
    u4: Any,
    u8: Any,
    state: Any,
    values: Any,
    rows: Any,
    side: Any,
) -> int:
    """Read whole lines from state[POS] to `end`; stop where Python must decide.

    Returns DONE, or why it stopped; state[POS] and state[LINE] are then those of the line that was
    not read (BAD_ROW, BACKWARDS, OTHER_LINE) or is read next.
    """
    while state[POS] < end:
        full = room(slots, sockets, flows, side, state)
        if full != DONE:
            return full
        tag, pos = find_tag(text, state[POS], end, tags)
        if tag < 0:
            return OTHER_LINE
        state[TAG] = tag
        first = tags[tag, TAG_START]
        count = tags[tag, TAG_COUNT]
        pos, why, column = parse_row(text, pos, first, count, columns, values)
        if why != 0:
            state[WHY] = why
            state[COLUMN] = column
            return BAD_ROW
        key, ns = row_identity(first, count, columns, values)
        socket = find_socket(key, table, sockets, state)
        if ns < sockets[socket, S_NS]:
            return BACKWARDS
        flow = sockets[socket, S_FLOW]
        opens = tags[tag, TAG_FIRST] == 1
        if ns == sockets[socket, S_NS] and tag == sockets[socket, S_TAG]:
            find_fault(slots, state, DUPLICATE, flow, ns, tag, socket)
        elif not opens and not fits(socket, tag, ns, tags, sockets, slots, state):
            find_fault(slots, state, ORPHAN, flow, ns, tag, socket)
        else:
            kind = tags[tag, TAG_KIND]
            part = tags[tag, TAG_PART]
            if opens:
                close_event(socket, kinds, main, sockets, slots, u4, state)
                open_event(socket, kind, ns, sockets, slots, flows, state)
            slot = sockets[socket, S_SLOT]
            bits = store_row(slot, first, count, columns, values, u1, u2, u4, u8)
            sockets[socket, S_BITS] |= bits
            slots[slot, B_SEEN] |= part
            if tags[tag, TAG_SIDE]:
                hand_over(tag, sockets[socket, S_FLOW], ns, count, values, side, state)
            elif part & kinds[kind, KIND_ENTRY] == 0 and slots[slot, B_EXIT_NS] == 0:
                slots[slot, B_EXIT_NS] = ns
            if slots[slot, B_SEEN] == kinds[kind, KIND_ALL]:
                close_event(socket, kinds, main, sockets, slots, u4, state)
        sockets[socket, S_NS] = ns
        sockets[socket, S_TAG] = tag
        rows[tag] += 1
        state[POS] = pos
        state[LINE] += 1
    return DONE


@jit
def close_all(kinds: Any, main: Any, sockets: Any, slots: Any, u4: Any, state: Any) -> int:
    """Close every open event; return DONE, or BATCH_FULL when it must be called again."""
    for socket in range(state[SOCKETS]):
        if state[SLOTS] + SLOTS_PER_ROW > len(slots):
            return BATCH_FULL
        close_event(socket, kinds, main, sockets, slots, u4, state)
    return DONE


@jit
def number_events(slots: Any, count: int, sequence: Any, seq: Any) -> None:
    """Number the events of the first `count` slots within their flows.

    `sequence` holds the next number per flow. A finding gets the number of the event that follows
    it, a JUMP that of the main it was found at, which precedes it.
    """
    for slot in range(count):
        flow = slots[slot, B_FLOW]
        kind = slots[slot, B_KIND]
        if flow < 0 or kind == MOVED:
            seq[slot] = -1
        elif kind >= 0:
            seq[slot] = sequence[flow]
            sequence[flow] += 1
        elif kind == JUMP:
            seq[slot] = sequence[flow] - 1
        else:
            seq[slot] = sequence[flow]


@jit
def carry_open(
    columns: Any,
    sockets: Any,
    slots: Any,
    u1: Any,
    u2: Any,
    u4: Any,
    u8: Any,
    new_slots: Any,
    n1: Any,
    n2: Any,
    n4: Any,
    n8: Any,
    state: Any,
) -> int:
    """Move the open events to the start of a new batch; return how many.

    Their old slots become MOVED.
    """
    moved = 0
    for socket in range(state[SOCKETS]):
        old = sockets[socket, S_SLOT]
        if old < 0:
            continue
        new_slots[moved, :] = slots[old, :]
        slots[old, B_KIND] = MOVED
        for column in range(len(columns)):
            width = columns[column, COLUMN_WIDTH]
            at = columns[column, COLUMN_OFFSET]
            if width == 4:
                n4[at + moved] = u4[at + old]
            elif width == 1:
                n1[at + moved] = u1[at + old]
            elif width == 8:
                n8[at + moved] = u8[at + old]
            elif width == 2:
                n2[at + moved] = u2[at + old]
        sockets[socket, S_SLOT] = moved
        moved += 1
    return moved
