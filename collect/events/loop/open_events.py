"""Open events: a socket has at most one, from its first row to its last or to the next event."""

from __future__ import annotations

from ....probes.base.jit import jit
from .column_plan import I64, KIND_ENTRY, TAG_BEFORE, TAG_FIRST, TAG_KIND, TAG_PART
from .loop_memory import (
    B_FIRST,
    B_FLOW,
    B_KIND,
    B_LINE,
    B_NS,
    B_SECOND,
    B_SEEN,
    DUPLICATE,
    HALF,
    LINE,
    NUMBERED,
    ORPHAN,
    S_EVENTS,
    S_FLOW,
    S_NS,
    S_SLOT,
    S_TAG,
    SLOT_SIZE,
    SLOTS,
    SOCKETS,
    SUSPECT,
)

# Rows of one event are printed one after the other by one BPF program: 60 us apart at most in 42
# recordings, while two events whose middle was lost lie at least 150 us apart. Where rows are
# known to be lost, rows farther apart than this are not of one event.
PART_SPAN_NS = 100_000


@jit
def new_slot(slots: I64, state: I64, kind: int, flow: int, ns: int, line: int) -> int:
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
def close_event(socket: int, kinds: I64, sockets: I64, slots: I64, state: I64) -> None:
    """Close a socket's open event; without all its entry rows it becomes a note."""
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
def close_before(limit: int, kinds: I64, sockets: I64, slots: I64, state: I64) -> None:
    """Close the open events whose slots come before `limit`."""
    for socket in range(state[SOCKETS]):
        if sockets[socket, S_SLOT] >= 0 and sockets[socket, S_SLOT] < limit:
            close_event(socket, kinds, sockets, slots, state)


@jit
def fault_of(
    socket: int, tag: int, ns: int, tags: I64, sockets: I64, slots: I64, suspect: int
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
def note_fault(
    fault: int,
    socket: int,
    tag: int,
    ns: int,
    tags: I64,
    kinds: I64,
    sockets: I64,
    slots: I64,
    state: I64,
) -> None:
    """Make a note of a row that belongs to no event.

    An exit row alone is of a call whose entry probe the kernel skipped, or whose entry rows were
    lost; these took a number, which will be missing. Callbacks on a socket never overlap: a row of
    another event proves that the open one is over, even if its own last row never came.
    """
    if fault != DUPLICATE and sockets[socket, S_SLOT] >= 0:
        close_event(socket, kinds, sockets, slots, state)
    slot = new_slot(slots, state, fault, sockets[socket, S_FLOW], ns, state[LINE])
    slots[slot, B_FIRST] = tag
    slots[slot, B_SECOND] = socket
    is_exit = tags[tag, TAG_PART] & kinds[tags[tag, TAG_KIND], KIND_ENTRY] == 0
    if fault == DUPLICATE or not is_exit or not state[NUMBERED]:
        state[SUSPECT] = 1
