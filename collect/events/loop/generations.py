"""Flows of one socket address: the kernel gives a freed socket's memory to another connection.

What begins a new flow, a generation of its address, follows from the numbers of the events, from
the order of init and the other callbacks, and from the rows that name a connection.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import seqno
from .column_plan import I64
from .loop_memory import (
    B_FIRST,
    F_BEFORE,
    F_COOKIE,
    F_DELIVERED,
    F_GENERATION,
    F_IDENTITY,
    F_INIT,
    F_LEFT,
    F_PRE_INIT,
    F_SOCKET,
    FLOW_SIZE,
    FLOWS,
    GAP,
    INIT,
    LEFT_BY_NUMBERS,
    LINE,
    S_BITS,
    S_COME,
    S_EVENTS,
    S_FLOW,
    S_FROM,
    S_GENERATION,
    S_IDENTITY,
    S_INIT,
    S_LEFT,
    S_NEXT,
    SUSPECT,
    UNKNOWN,
)
from .open_events import new_slot

_went_back = jit(seqno.went_back)


@jit
def begins_flow(socket: int, kind: int, number: int, come: int, sockets: I64) -> bool:
    """Tell whether the event `number` (-1: not numbered) of this kind begins a new flow.

    `come` says how far BBR has come (`how_far`): what went back was set back by init(), which runs
    when a socket takes up BBR again (tcp_cong.c tcp_reinit_congestion_control()).

    Numbers count from 0 on every new socket, so one that went back is of another socket at the same
    address. An active opener has callbacks run on a zeroed struct bbr before init: main for the
    SYN's ACK (tcp_input.c tcp_rcv_synsent_state_process(), tcp_ack()), the loss path for a SYN sent
    again. Such events belong to the flow that init begins.
    """
    if sockets[socket, S_FLOW] < 0 or sockets[socket, S_IDENTITY] > 0:
        return True
    expected = sockets[socket, S_NEXT]
    if number >= 0 and expected != UNKNOWN and _went_back(number, expected, kind == INIT):
        return True
    if 0 <= come < sockets[socket, S_COME]:
        return True
    return kind == INIT and (sockets[socket, S_INIT] == 1 or sockets[socket, S_BITS] != 0)


@jit
def begin_flow(socket: int, sockets: I64, flows: I64, state: I64) -> None:
    """Give a socket a new flow; say of which flow it is the return to BBR."""
    flow = state[FLOWS]
    before = sockets[socket, S_FLOW]
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
    flows[flow, F_IDENTITY] = sockets[socket, S_IDENTITY]
    sockets[socket, S_IDENTITY] = 0
    if sockets[socket, S_LEFT] == 1:
        flows[flow, F_BEFORE] = before + 1
        flows[before, F_LEFT] |= LEFT_BY_NUMBERS
    sockets[socket, S_LEFT] = 0
    sockets[socket, S_COME] = -1


@jit
def names_another(socket: int, cookie: int, sockets: I64, flows: I64) -> bool:
    """Tell whether a row's cookie (0: none yet) is that of another socket than the flow's so far.

    No two sockets share one, and none changes its own: the kernel skipped the probe at the end of
    the socket that the address was of.
    """
    flow = sockets[socket, S_FLOW]
    if flow < 0 or cookie == 0:
        return False
    return bool(flows[flow, F_COOKIE] != 0 and flows[flow, F_COOKIE] != cookie)


@jit
def place_in_flow(
    socket: int,
    kind: int,
    number: int,
    come: int,
    other: bool,
    sockets: I64,
    flows: I64,
    state: I64,
) -> None:
    """Begin a flow if one begins with this event, and note what an init says of it.

    Where the numbers go on it is the same socket, which had left BBR and came back, unless the row
    names another.
    """
    if other or begins_flow(socket, kind, number, come, sockets):
        expected = sockets[socket, S_NEXT]
        went_back = number >= 0 and number < expected
        if went_back or sockets[socket, S_IDENTITY] > 0:
            sockets[socket, S_NEXT] = sockets[socket, S_FROM]
            sockets[socket, S_FROM] = 0
        elif not other and number >= 0 and number == expected:
            sockets[socket, S_LEFT] = 1
        begin_flow(socket, sockets, flows, state)
    if come >= 0:
        sockets[socket, S_COME] = come
    if kind == INIT:
        flow = sockets[socket, S_FLOW]
        sockets[socket, S_INIT] = 1
        flows[flow, F_INIT] = 1
        flows[flow, F_PRE_INIT] = sockets[socket, S_EVENTS]


@jit
def check_number(socket: int, number: int, ns: int, sockets: I64, slots: I64, state: I64) -> None:
    """Find events that are missing from their numbers, which begin at 0 with every new socket."""
    expected = sockets[socket, S_NEXT]
    missing = (number - expected) & 0xFFFFFFFF
    if expected != UNKNOWN and number > 0 and missing > 0:
        slot = new_slot(slots, state, GAP, sockets[socket, S_FLOW], ns, state[LINE])
        slots[slot, B_FIRST] = missing
        state[SUSPECT] = 1
    sockets[socket, S_NEXT] = (number + 1) & 0xFFFFFFFF
