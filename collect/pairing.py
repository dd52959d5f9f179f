"""Rows to kernel events: one open event per socket, written straight into a columnar batch.

A socket's rows come in the order M0 M1 X, but rows of other sockets lie between them, rows can be
lost, and the last event of a socket never closes. Every event takes a slot of the batch when its
first row comes. What is missing or odd takes a slot as well, so that findings keep their place
among the events.

The compiled functions take arrays, not tuples of them: numba counts references to every array that
it takes out of a tuple. They copy element by element: an assignment to a slice takes numba a second
to compile, for the error message it might need.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .jit import jit
from .plan import (
    COLUMN_STATE,
    I64,
    KIND_ALL,
    KIND_ENTRY,
    MAIN_ACKED,
    MAIN_DELIVERED,
    MAIN_MSS,
    MOVE_FROM,
    MOVE_TO,
    TAG_BEFORE,
    TAG_COOKIE,
    TAG_COUNT,
    TAG_FIRST,
    TAG_KIND,
    TAG_PART,
    TAG_SEQNO,
    TAG_SIDE,
    TAG_START,
)
from .rows import (
    GOOD,
    HEAD_NS,
    HEAD_SLOT,
    HEAD_SOCKET,
    HEAD_TAG,
    NEWLINE,
    POS,
    TAG,
    WHY,
    byte_at,
    parse_rows,
)
from .schema.recording import KINDS

INIT, MAIN = KINDS.index("init"), KINDS.index("main")

# Slot kinds below zero are findings; those from zero on index KINDS.
HALF, ORPHAN, DUPLICATE, MOVED, GAP = -1, -2, -3, -4, -5

# Why `consume` returned, besides rows.py's reasons to stop.
BACKWARDS, BATCH_FULL, SOCKETS_FULL, SIDE_FULL = 10, 11, 12, 13

# Indices into `state` after those of rows.py. SUSPECT is 1 once rows are known to be lost.
LINE, SLOTS, SOCKETS, FLOWS, SIDES, SUSPECT, LAST_SOCKET, STATE_SIZE = range(4, 12)

# What a row of `sockets` holds: the address, its current flow or -1, flows before that, the slot of
# the open event or -1, time and tag of the last row, events of the flow so far, the OR of the first
# event's struct bbr, whether init was seen, and the number of its next event (0: unknown).
S_KEY, S_FLOW, S_GENERATION, S_SLOT, S_NS, S_TAG, S_EVENTS, S_BITS, S_INIT, S_NEXT = range(10)
SOCKET_SIZE = 10

# What a row of `slots` holds: flow, kind, time, line, time of exit, bits of the parts seen, and two
# numbers for a finding.
B_FLOW, B_KIND, B_NS, B_LINE, B_EXIT_NS, B_SEEN, B_FIRST, B_SECOND = range(8)
SLOT_SIZE = 8

# What a row of `flows` holds: its socket, its generation, whether init was seen, events before it,
# the number of the next event, tp.delivered (-1: none) and tp.mss_cache of the last main, and the
# socket's cookie (0: unknown, or none).
F_SOCKET, F_GENERATION, F_INIT, F_PRE_INIT, F_SEQ, F_DELIVERED, F_MSS, F_COOKIE = range(8)
FLOW_SIZE = 8

# Numbers before the values in a row handed to Python: tag, flow, time, line. A socket that has no
# flow yet is told as NO_FLOW minus its index.
SIDE_HEAD = 4
NO_FLOW = -2

# Rows of one event are printed one after the other by one BPF program: 60 us apart at most in 42
# recordings, while two events whose middle was lost lie at least 150 us apart. Where rows are
# known to be lost, rows farther apart than this are not of one event.
PART_SPAN_NS = 100_000

# Rows read at once.
BLOCK_ROWS = 512
# A row opens at most one event and makes at most one finding.
SLOTS_PER_ROW = 2


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
    for field in range(SOCKET_SIZE):
        sockets[index, field] = 0
    sockets[index, S_KEY] = key
    sockets[index, S_FLOW] = -1
    sockets[index, S_GENERATION] = -1
    sockets[index, S_SLOT] = -1
    sockets[index, S_TAG] = -1
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
def new_slot(slots: Any, state: Any, kind: int, flow: int, ns: int, line: int) -> int:
    """Take the next slot of the batch."""
    slot = state[SLOTS]
    state[SLOTS] += 1
    for field in range(SLOT_SIZE):
        slots[slot, field] = 0
    slots[slot, B_FLOW] = flow
    slots[slot, B_KIND] = kind
    slots[slot, B_NS] = ns
    slots[slot, B_LINE] = line
    return int(slot)


@jit
def close_event(socket: int, kinds: Any, sockets: Any, slots: Any, state: Any) -> None:
    """Close a socket's open event; without all its entry rows it becomes a finding."""
    slot = sockets[socket, S_SLOT]
    sockets[socket, S_SLOT] = -1
    kind = slots[slot, B_KIND]
    entry = kinds[kind, KIND_ENTRY]
    if slots[slot, B_SEEN] & entry == entry:
        sockets[socket, S_EVENTS] += 1
        return
    slots[slot, B_FIRST] = kind
    slots[slot, B_SECOND] = socket
    slots[slot, B_KIND] = HALF
    state[SUSPECT] = 1


@jit
def begin_flow(socket: int, sockets: Any, flows: Any, state: Any) -> None:
    """Give a socket a new flow."""
    flow = state[FLOWS]
    state[FLOWS] += 1
    sockets[socket, S_FLOW] = flow
    sockets[socket, S_GENERATION] += 1
    sockets[socket, S_EVENTS] = 0
    sockets[socket, S_BITS] = 0
    sockets[socket, S_INIT] = 0
    for field in range(FLOW_SIZE):
        flows[flow, field] = 0
    flows[flow, F_SOCKET] = socket
    flows[flow, F_GENERATION] = sockets[socket, S_GENERATION]
    flows[flow, F_DELIVERED] = -1


@jit
def place_in_flow(socket: int, kind: int, sockets: Any, flows: Any, state: Any) -> None:
    """Begin a flow if one begins with this event.

    An active opener has callbacks run on a zeroed struct bbr before init: main for the SYN's ACK
    (tcp_input.c tcp_rcv_synsent_state_process(), tcp_ack()), the loss path for a SYN sent again.
    Such events belong to the flow that init begins.
    """
    fresh = sockets[socket, S_FLOW] < 0
    if kind == INIT and not fresh:
        fresh = sockets[socket, S_INIT] == 1 or sockets[socket, S_BITS] != 0
    if fresh:
        begin_flow(socket, sockets, flows, state)
    if kind == INIT:
        flow = sockets[socket, S_FLOW]
        sockets[socket, S_INIT] = 1
        flows[flow, F_INIT] = 1
        flows[flow, F_PRE_INIT] = sockets[socket, S_EVENTS]


@jit
def check_number(socket: int, number: int, ns: int, sockets: Any, slots: Any, state: Any) -> None:
    """Find events that are missing from their numbers, which begin at 0 with every new socket."""
    missing = (number - sockets[socket, S_NEXT]) & 0xFFFFFFFF
    if sockets[socket, S_NEXT] > 0 and number > 0 and missing > 0:
        slot = new_slot(slots, state, GAP, sockets[socket, S_FLOW], ns, state[LINE])
        slots[slot, B_FIRST] = missing
        state[SUSPECT] = 1
    sockets[socket, S_NEXT] = (number + 1) & 0xFFFFFFFF


@jit
def state_bits(row: int, first: int, count: int, columns: Any, values: Any) -> int:
    """Return the OR of a row's fields of struct bbr."""
    bits = 0
    for index in range(count):
        if columns[first + index, COLUMN_STATE]:
            bits |= values[row, index]
    return bits


@jit
def hand_over(row: int, flow: int, line: int, heads: Any, values: Any, side: Any, at: int) -> None:
    """Hand a row to Python as it is."""
    side[at, 0] = heads[row, HEAD_TAG]
    side[at, 1] = flow
    side[at, 2] = heads[row, HEAD_NS]
    side[at, 3] = line
    for index in range(len(values[row])):
        side[at, SIDE_HEAD + index] = values[row, index]


@jit
def fault_of(
    socket: int, tag: int, ns: int, tags: Any, sockets: Any, slots: Any, suspect: int
) -> int:
    """Return 0 for a row that continues its socket's open event, else DUPLICATE or ORPHAN."""
    if ns == sockets[socket, S_NS] and tag == sockets[socket, S_TAG]:
        return DUPLICATE
    if tags[tag, TAG_FIRST]:
        return 0
    slot = sockets[socket, S_SLOT]
    if slot < 0 or slots[slot, B_KIND] != tags[tag, TAG_KIND]:
        return ORPHAN
    seen = slots[slot, B_SEEN]
    before = tags[tag, TAG_BEFORE]
    if seen & tags[tag, TAG_PART] != 0 or seen & before != before:
        return ORPHAN
    if suspect == 1 and ns - sockets[socket, S_NS] > PART_SPAN_NS:
        return ORPHAN
    return 0


@jit
def pair_rows(
    count: int,
    heads: Any,
    values: Any,
    tags: Any,
    columns: Any,
    kinds: Any,
    table: Any,
    sockets: Any,
    flows: Any,
    slots: Any,
    rows: Any,
    side: Any,
    state: Any,
) -> int:
    """Give each of `count` rows the slot of its event, -1 if it has none.

    Returns how many rows were placed: fewer than `count` if one is older than the row before it of
    the same socket.
    """
    for row in range(count):
        tag = heads[row, HEAD_TAG]
        ns = heads[row, HEAD_NS]
        socket = state[LAST_SOCKET]
        if socket < 0 or sockets[socket, S_KEY] != heads[row, HEAD_SOCKET]:
            socket = find_socket(heads[row, HEAD_SOCKET], table, sockets, state)
        kind = tags[tag, TAG_KIND]
        if kind < 0:
            flow = sockets[socket, S_FLOW]
            flow = flow if flow >= 0 else NO_FLOW - socket
            hand_over(row, flow, state[LINE], heads, values, side, state[SIDES])
            state[SIDES] += 1
            heads[row, HEAD_SLOT] = -1
            rows[tag] += 1
            state[LINE] += 1
            continue
        if ns < sockets[socket, S_NS]:
            return row
        slot = sockets[socket, S_SLOT]
        # The usual row is the next one of its event; every other one deserves a closer look.
        fault = 0
        if (
            slot < 0
            or slots[slot, B_KIND] != kind
            or slots[slot, B_SEEN] != tags[tag, TAG_BEFORE]
            or tags[tag, TAG_FIRST]
            or state[SUSPECT]
        ):
            fault = fault_of(socket, tag, ns, tags, sockets, slots, state[SUSPECT])
        slot = -1
        if fault != 0:
            found = new_slot(slots, state, fault, sockets[socket, S_FLOW], ns, state[LINE])
            slots[found, B_FIRST] = tag
            slots[found, B_SECOND] = socket
            state[SUSPECT] = 1
        else:
            if tags[tag, TAG_FIRST]:
                if sockets[socket, S_SLOT] >= 0:
                    close_event(socket, kinds, sockets, slots, state)
                if kind == INIT or sockets[socket, S_FLOW] < 0:
                    place_in_flow(socket, kind, sockets, flows, state)
                if tags[tag, TAG_SEQNO] >= 0:
                    number = values[row, tags[tag, TAG_SEQNO]]
                    check_number(socket, number, ns, sockets, slots, state)
                flow = sockets[socket, S_FLOW]
                if tags[tag, TAG_COOKIE] >= 0:
                    flows[flow, F_COOKIE] = values[row, tags[tag, TAG_COOKIE]]
                sockets[socket, S_SLOT] = new_slot(slots, state, kind, flow, ns, state[LINE])
            slot = sockets[socket, S_SLOT]
            slots[slot, B_SEEN] |= tags[tag, TAG_PART]
            if sockets[socket, S_EVENTS] == 0:
                first, length = tags[tag, TAG_START], tags[tag, TAG_COUNT]
                sockets[socket, S_BITS] |= state_bits(row, first, length, columns, values)
            if tags[tag, TAG_SIDE]:
                flow = sockets[socket, S_FLOW]
                hand_over(row, flow, state[LINE], heads, values, side, state[SIDES])
                state[SIDES] += 1
            elif tags[tag, TAG_PART] & kinds[kind, KIND_ENTRY] == 0:
                if slots[slot, B_EXIT_NS] == 0:
                    slots[slot, B_EXIT_NS] = ns
                if tags[tag, TAG_COOKIE] >= 0:
                    flows[sockets[socket, S_FLOW], F_COOKIE] = values[row, tags[tag, TAG_COOKIE]]
            if slots[slot, B_SEEN] == kinds[kind, KIND_ALL]:
                sockets[socket, S_SLOT] = -1
                sockets[socket, S_EVENTS] += 1
        heads[row, HEAD_SLOT] = slot
        sockets[socket, S_NS] = ns
        sockets[socket, S_TAG] = tag
        rows[tag] += 1
        state[LINE] += 1
    return count


@jit
def store_rows(
    count: int,
    heads: Any,
    values: Any,
    moves: Any,
    bounds: Any,
    u1: Any,
    u2: Any,
    u4: Any,
    u8: Any,
) -> None:
    """Write the values of `count` rows into the columns of their events."""
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
def room(slots: Any, sockets: Any, flows: Any, side: Any, state: Any) -> int:
    """Return GOOD, or which memory is too full for one more block of rows."""
    if state[SLOTS] + SLOTS_PER_ROW * BLOCK_ROWS > len(slots):
        return BATCH_FULL
    if state[SOCKETS] + BLOCK_ROWS > len(sockets) or state[FLOWS] + BLOCK_ROWS > len(flows):
        return SOCKETS_FULL
    if state[SIDES] + BLOCK_ROWS > len(side):
        return SIDE_FULL
    return GOOD


@jit
def consume(
    text: Any,
    end: int,
    tags: Any,
    columns: Any,
    moves: Any,
    bounds: Any,
    kinds: Any,
    table: Any,
    sockets: Any,
    flows: Any,
    slots: Any,
    u1: Any,
    u2: Any,
    u4: Any,
    u8: Any,
    heads: Any,
    values: Any,
    rows: Any,
    side: Any,
    state: Any,
) -> int:
    """Read whole lines from state[POS] to `end`; stop where Python must decide.

    Returns GOOD, or why it stopped; state[POS] and state[LINE] are then those of the line that was
    not read, or of the next one.
    """
    while state[POS] < end:
        full = room(slots, sockets, flows, side, state)
        if full != GOOD:
            return full
        before = state[POS]
        count = parse_rows(text, end, tags, columns, values, heads, state)
        why = state[WHY]
        placed = pair_rows(
            count,
            heads,
            values,
            tags,
            columns,
            kinds,
            table,
            sockets,
            flows,
            slots,
            rows,
            side,
            state,
        )
        store_rows(placed, heads, values, moves, bounds, u1, u2, u4, u8)
        if placed < count:
            state[POS] = before
            state[TAG] = heads[placed, HEAD_TAG]
            for _ in range(placed):
                state[POS] = next_line(text, state[POS])
            return BACKWARDS
        if why != GOOD:
            return int(why)
    return GOOD


@jit
def next_line(text: Any, pos: int) -> int:
    """Return where the line after the one at `pos` begins."""
    while byte_at(text, pos) != NEWLINE:
        pos += 1
    return pos + 1


@jit
def close_before(limit: int, kinds: Any, sockets: Any, slots: Any, state: Any) -> None:
    """Close the open events whose slots come before `limit`."""
    for socket in range(state[SOCKETS]):
        if sockets[socket, S_SLOT] >= 0 and sockets[socket, S_SLOT] < limit:
            close_event(socket, kinds, sockets, slots, state)


@jit
def number_events(
    count: int, slots: Any, flows: Any, u4: Any, main: Any, seq: Any, grown: Any
) -> None:
    """Number the events of the first `count` slots within their flows, and check every main.

    A finding gets the number of the event that follows it. `grown` becomes, for a main before
    which calls went unseen, how much tp.delivered grew, else -1: it grows by rs.acked_sacked per
    call of main. A successful MTU probe changes the segment size, and with it what one packet is:
    no check then.
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
            continue
        flows[flow, F_SEQ] += 1
        if kind == INIT:
            flows[flow, F_DELIVERED] = -1
        if kind == MAIN and check:
            delivered = int(u4[main[MAIN_DELIVERED] + slot])
            mss = int(u4[main[MAIN_MSS] + slot]) if main[MAIN_MSS] >= 0 else 0
            last = flows[flow, F_DELIVERED]
            if last >= 0 and flows[flow, F_MSS] == mss:
                growth = (delivered - last) & 0xFFFFFFFF
                if growth != int(u4[main[MAIN_ACKED] + slot]):
                    grown[slot] = growth
            flows[flow, F_DELIVERED] = delivered
            flows[flow, F_MSS] = mss


@jit
def carry_open(
    moves: Any,
    bounds: Any,
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
        for field in range(SLOT_SIZE):
            new_slots[moved, field] = slots[old, field]
        slots[old, B_KIND] = MOVED
        for tag in range(len(bounds)):
            for move in range(bounds[tag, 0], bounds[tag, 1]):
                n1[moves[move, MOVE_TO] + moved] = u1[moves[move, MOVE_TO] + old]
            for move in range(bounds[tag, 1], bounds[tag, 2]):
                n2[moves[move, MOVE_TO] + moved] = u2[moves[move, MOVE_TO] + old]
            for move in range(bounds[tag, 2], bounds[tag, 3]):
                n4[moves[move, MOVE_TO] + moved] = u4[moves[move, MOVE_TO] + old]
            for move in range(bounds[tag, 3], bounds[tag, 4]):
                n8[moves[move, MOVE_TO] + moved] = u8[moves[move, MOVE_TO] + old]
        sockets[socket, S_SLOT] = moved
        moved += 1
    return moved
