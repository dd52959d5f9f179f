"""Rows to kernel events: one open event per socket, written straight into a columnar batch.

A socket's rows come in the order M0 M1 X, but rows of other sockets lie between them, rows can be
lost, and the last event of a socket never closes. Every event takes a slot of the batch when its
first row comes. What is missing or odd takes a slot as well, so that notes keep their place
among the events.

What runs once per block of rows takes tuples of arrays, what runs per row takes the arrays: numba
counts references to every array that it takes out of a tuple. It would count those of a call's
arguments as well, so the helpers that every row or event needs are expanded (`inline`).
"""

from __future__ import annotations

from ....probes.base.jit import inline, jit
from .batch_columns import store_rows
from .column_plan import (
    COLUMN_STATE,
    I64,
    KIND_ALL,
    KIND_ENTRY,
    TAG_ALL,
    TAG_BEFORE,
    TAG_COOKIE,
    TAG_FIRST,
    TAG_FULL,
    TAG_KIND,
    TAG_PART,
    TAG_ROUNDS,
    TAG_SEQNO,
    TAG_SIDE,
    TAG_START,
    Plan,
)
from .generations import check_number, names_another, place_in_flow
from .loop_memory import (
    B_EXIT_NS,
    B_KIND,
    B_SEEN,
    BACKWARDS,
    BATCH_FULL,
    BLOCK_ROWS,
    F_COOKIE,
    FLOWS,
    LAST_SOCKET,
    LINE,
    NO_FLOW,
    S_BITS,
    S_EVENTS,
    S_FLOW,
    S_KEY,
    S_NS,
    S_SLOT,
    S_TAG,
    SIDE_FULL,
    SIDE_HEAD,
    SIDES,
    SLOTS,
    SLOTS_PER_ROW,
    SOCKETS,
    SOCKETS_FULL,
    SUSPECT,
    Batch,
    Block,
    PairingTables,
)
from .open_events import close_event, fault_of, new_slot, note_fault
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
    Text,
    byte_at,
    parse_rows,
    take_apart,
)
from .socket_table import find_socket


@jit
def consume(
    text: Text,
    end: int,
    plan: Plan,
    tables: PairingTables,
    batch: Batch,
    block: Block,
    state: I64,
) -> int:
    """Read whole lines from state[POS] to `end`; stop where Python must decide.

    Returns GOOD, or why it stopped; state[POS] and state[LINE] are then those of the line that was
    not read, or of the next one.
    """
    heads, values = block.heads, block.values
    while state[POS] < end:
        full = room(batch.slots, tables, block.side, state)
        if full != GOOD:
            return full
        before = state[POS]
        count = parse_rows(text, end, plan.tags, plan.columns, values, heads, state)
        why = state[WHY]
        take_apart(count, heads, values, plan.parts, plan.part_bounds)
        placed = pair_rows(count, plan, tables, batch.slots, block, state)
        store_rows(placed, heads, values, plan.moves, plan.bounds, batch)
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
def room(slots: I64, tables: PairingTables, side: I64, state: I64) -> int:
    """Return GOOD, or which memory is too full for one more block of rows."""
    if state[SLOTS] + SLOTS_PER_ROW * BLOCK_ROWS > len(slots):
        return BATCH_FULL
    if state[SOCKETS] + BLOCK_ROWS > len(tables.sockets):
        return SOCKETS_FULL
    if state[FLOWS] + BLOCK_ROWS > len(tables.flows):
        return SOCKETS_FULL
    if state[SIDES] + BLOCK_ROWS > len(side):
        return SIDE_FULL
    return GOOD


@jit
def next_line(text: Text, pos: int) -> int:
    """Return where the line after the one at `pos` begins."""
    while byte_at(text, pos) != NEWLINE:
        pos += 1
    return pos + 1


@jit
def pair_rows(
    count: int, plan: Plan, tables: PairingTables, slots: I64, block: Block, state: I64
) -> int:
    """Give each of `count` rows the slot of its event, -1 if it has none.

    Returns how many rows were placed: fewer than `count` if one is older than the row before it of
    the same socket.
    """
    tags, columns, kinds = plan.tags, plan.columns, plan.kinds
    by_address, sockets, flows, rows = tables.by_address, tables.sockets, tables.flows, tables.rows
    heads, values, side = block.heads, block.values, block.side
    for row in range(count):
        tag = heads[row, HEAD_TAG]
        socket = state[LAST_SOCKET]
        if socket < 0 or sockets[socket, S_KEY] != heads[row, HEAD_SOCKET]:
            socket = find_socket(heads[row, HEAD_SOCKET], by_address, sockets, state)
        if tags[tag, TAG_KIND] < 0:
            flow = sockets[socket, S_FLOW]
            flow = flow if flow >= 0 else NO_FLOW - socket
            hand_over(row, flow, heads, values, side, state)
            heads[row, HEAD_SLOT] = -1
        elif heads[row, HEAD_NS] < sockets[socket, S_NS]:
            return row
        else:
            heads[row, HEAD_SLOT] = pair_row(
                row,
                tag,
                socket,
                heads,
                values,
                tags,
                columns,
                kinds,
                sockets,
                flows,
                slots,
                side,
                state,
            )
            sockets[socket, S_NS] = heads[row, HEAD_NS]
            sockets[socket, S_TAG] = tag
        rows[tag] += 1
        state[LINE] += 1
    return count


@inline
def pair_row(
    row: int,
    tag: int,
    socket: int,
    heads: I64,
    values: I64,
    tags: I64,
    columns: I64,
    kinds: I64,
    sockets: I64,
    flows: I64,
    slots: I64,
    side: I64,
    state: I64,
) -> int:
    """Return the slot of a row's event, -1 if the row is of none."""
    ns = heads[row, HEAD_NS]
    slot = sockets[socket, S_SLOT]
    # The usual row is the next one of its event; every other one deserves a closer look.
    fault = 0
    if (
        slot < 0
        or slots[slot, B_KIND] != tags[tag, TAG_KIND]
        or slots[slot, B_SEEN] != tags[tag, TAG_BEFORE]
        or tags[tag, TAG_FIRST]
        or state[SUSPECT]
    ):
        fault = fault_of(socket, tag, ns, tags, sockets, slots, state[SUSPECT])
    slot = -1
    if fault != 0:
        note_fault(fault, socket, tag, ns, tags, kinds, sockets, slots, state)
    else:
        if tags[tag, TAG_FIRST]:
            open_event(row, tag, socket, heads, values, tags, kinds, sockets, flows, slots, state)
        slot = sockets[socket, S_SLOT]
        slots[slot, B_SEEN] |= tags[tag, TAG_PART]
        if sockets[socket, S_EVENTS] == 0:
            sockets[socket, S_BITS] |= state_bits(row, tag, values, tags, columns)
        if tags[tag, TAG_SIDE]:
            hand_over(row, sockets[socket, S_FLOW], heads, values, side, state)
        elif tags[tag, TAG_PART] & kinds[tags[tag, TAG_KIND], KIND_ENTRY] == 0:
            note_exit(row, tag, socket, heads, values, tags, sockets, flows, slots)
        if slots[slot, B_SEEN] == kinds[tags[tag, TAG_KIND], KIND_ALL]:
            sockets[socket, S_SLOT] = -1
            sockets[socket, S_EVENTS] += 1
    return int(slot)


@inline
def open_event(
    row: int,
    tag: int,
    socket: int,
    heads: I64,
    values: I64,
    tags: I64,
    kinds: I64,
    sockets: I64,
    flows: I64,
    slots: I64,
    state: I64,
) -> None:
    """Open the event whose first row this is, in its flow, after closing the event before it."""
    kind, ns = tags[tag, TAG_KIND], heads[row, HEAD_NS]
    if sockets[socket, S_SLOT] >= 0:
        close_event(socket, kinds, sockets, slots, state)
    number = -1
    if tags[tag, TAG_SEQNO] >= 0:
        number = values[row, tags[tag, TAG_SEQNO]]
    come = how_far(row, tag, values, tags)
    other = False
    if tags[tag, TAG_COOKIE] >= 0:
        other = names_another(socket, values[row, tags[tag, TAG_COOKIE]], sockets, flows)
    place_in_flow(socket, kind, number, come, other, sockets, flows, state)
    if number >= 0:
        check_number(socket, number, ns, sockets, slots, state)
    flow = sockets[socket, S_FLOW]
    if tags[tag, TAG_COOKIE] >= 0:
        flows[flow, F_COOKIE] = values[row, tags[tag, TAG_COOKIE]]
    sockets[socket, S_SLOT] = new_slot(slots, state, kind, flow, ns, state[LINE])


@inline
def note_exit(
    row: int,
    tag: int,
    socket: int,
    heads: I64,
    values: I64,
    tags: I64,
    sockets: I64,
    flows: I64,
    slots: I64,
) -> None:
    """Note when the callback of a socket's open event returned, and the cookie of its exit row."""
    slot = sockets[socket, S_SLOT]
    if slots[slot, B_EXIT_NS] == 0:
        slots[slot, B_EXIT_NS] = heads[row, HEAD_NS]
    if tags[tag, TAG_COOKIE] >= 0:
        flows[sockets[socket, S_FLOW], F_COOKIE] = values[row, tags[tag, TAG_COOKIE]]


@jit
def state_bits(row: int, tag: int, values: I64, tags: I64, columns: I64) -> int:
    """Return the OR of a row's fields of struct bbr."""
    first = tags[tag, TAG_START]
    bits = 0
    for index in range(tags[tag, TAG_ALL]):
        if columns[first + index, COLUMN_STATE]:
            bits |= values[row, index]
    return bits


@jit
def how_far(row: int, tag: int, values: I64, tags: I64) -> int:
    """Return how far BBR has come, by what nothing but init() sets back; -1 if no sample says it.

    A pipe that was found full counts for more than all rounds (of 32 bits).
    """
    full, rounds = tags[tag, TAG_FULL], tags[tag, TAG_ROUNDS]
    if full < 0:
        return -1
    come = values[row, full] << 32
    if rounds >= 0:
        come += values[row, rounds]
    return int(come)


@jit
def hand_over(row: int, flow: int, heads: I64, values: I64, side: I64, state: I64) -> None:
    """Hand a row to Python as it is."""
    at = state[SIDES]
    state[SIDES] += 1
    side[at, 0] = heads[row, HEAD_TAG]
    side[at, 1] = flow
    side[at, 2] = heads[row, HEAD_NS]
    side[at, 3] = state[LINE]
    for index in range(len(values[row])):
        side[at, SIDE_HEAD + index] = values[row, index]
