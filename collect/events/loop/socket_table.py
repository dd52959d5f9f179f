"""Sockets by address: a hash table with open addressing that compiled code and Python share."""

from __future__ import annotations

from ....probes.base.jit import jit
from .column_plan import I64
from .loop_memory import (
    LAST_SOCKET,
    S_COME,
    S_FLOW,
    S_GENERATION,
    S_KEY,
    S_NEXT,
    S_SLOT,
    S_TAG,
    SOCKET_SIZE,
    SOCKETS,
    UNKNOWN,
)


@jit
def hash_slot(key: int, size: int) -> int:
    """Return where a socket address begins its search in a table of `size`, a power of two."""
    mixed = ((key >> 32) ^ (key & 0xFFFFFFFF)) & 0x7FFFFFFF
    return ((mixed * 0x4F6CDD1D) >> 24) & (size - 1)


@jit
def find_socket(key: int, by_address: I64, sockets: I64, state: I64) -> int:
    """Return the index of a socket, entering it if it is new."""
    size = len(by_address)
    at = hash_slot(key, size)
    index = by_address[at]
    while index >= 0 and sockets[index, S_KEY] != key:
        at = (at + 1) & (size - 1)
        index = by_address[at]
    if index < 0:
        index = state[SOCKETS]
        state[SOCKETS] += 1
        by_address[at] = index
        clear_socket(index, key, sockets)
    state[LAST_SOCKET] = index
    return int(index)


@jit
def clear_socket(index: int, key: int, sockets: I64) -> None:
    """Fill the row of a new socket, of which nothing but its address is known."""
    for field in range(SOCKET_SIZE):
        sockets[index, field] = 0
    sockets[index, S_KEY] = key
    sockets[index, S_FLOW] = -1
    sockets[index, S_GENERATION] = -1
    sockets[index, S_SLOT] = -1
    sockets[index, S_TAG] = -1
    sockets[index, S_NEXT] = UNKNOWN
    sockets[index, S_COME] = -1


@jit
def rehash(by_address: I64, sockets: I64, count: int) -> None:
    """Enter the first `count` sockets into an empty table."""
    size = len(by_address)
    for socket in range(count):
        at = hash_slot(sockets[socket, S_KEY], size)
        while by_address[at] >= 0:
            at = (at + 1) & (size - 1)
        by_address[at] = socket


def as_signed(address: int) -> int:
    """Return a socket's address, up to 64 bits, as the int64 with the same bits.

    Raises:
        ValueError: it has more bits, or a sign.
    """
    if not 0 <= address < 1 << 64:
        raise ValueError(address)
    return address - (1 << 64) if address >= 1 << 63 else address
