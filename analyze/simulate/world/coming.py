"""The events to come: a binary heap, by time and then in the order in which they were made."""

from __future__ import annotations

import math

from ....probes.base.jit import jit
from .places import Sim, coming_of, packet_of, world_of

_STEPS = 1 << 31


@jit
def _put(s: Sim, k: int, at: int, order: int, kind: int, argument: int) -> None:
    item = coming_of(s, k)
    item.at = at
    item.order = order
    item.kind = kind
    item.argument = argument


@jit
def _move(s: Sim, to: int, source: int) -> None:
    item = coming_of(s, source)
    _put(s, to, item.at, item.order, item.kind, item.argument)


@jit
def schedule(s: Sim, at: int, kind: int, argument: int) -> None:
    """Put an event on the heap, not before now."""
    w = world_of(s)
    n = w.heap_size
    if n + 1 >= w.n_heap:
        w.overflow = 1
        return
    at = max(at, w.now)
    order = w.order
    w.order = order + 1
    w.heap_size = n + 1
    while n > 0:
        parent = (n - 1) >> 1
        if coming_of(s, parent).at <= at:
            break
        _move(s, n, parent)
        n = parent
    _put(s, n, at, order, kind, argument)


@jit
def _precedes(s: Sim, k: int, at: int, order: int) -> bool:
    item = coming_of(s, k)
    return item.at < at or (item.at == at and item.order < order)


@jit
def drop_first(s: Sim) -> None:
    """Take the first event off the heap."""
    w = world_of(s)
    last = w.heap_size - 1
    w.heap_size = last
    moved = coming_of(s, last)
    n = 0
    while 2 * n + 1 < last:
        child = 2 * n + 1
        if child + 1 < last:
            right = coming_of(s, child + 1)
            if not _precedes(s, child, right.at, right.order):
                child += 1
        if not _precedes(s, child, moved.at, moved.order):
            break
        _move(s, n, child)
        n = child
    _move(s, n, last)


@jit
def draw(s: Sim, below: int) -> int:
    """A random number in 0 ... below - 1: 32 bits of a 48-bit linear congruence (drand48's)."""
    w = world_of(s)
    w.random = (w.random * 25214903917 + 11) & 0xFFFFFFFFFFFF
    return ((w.random >> 16) * below) >> 32 if below > 0 else 0


@jit
def draw_exponential(s: Sim, mean: int) -> int:
    """A random time of this mean from an exponential distribution, rounded down."""
    return int(-math.log((draw(s, _STEPS) + 1) / _STEPS) * mean)


@jit
def take_packet(s: Sim) -> int:
    """A free packet's index; if there is none, 0, and `overflow` is set, which ends the run."""
    w = world_of(s)
    i = w.free
    if i < 0:
        w.overflow = 1
        return 0
    packet = packet_of(s, i)
    w.free = packet.next
    return i


@jit
def free_packet(s: Sim, i: int) -> None:
    """Give a packet back."""
    w = world_of(s)
    packet = packet_of(s, i)
    packet.next = w.free
    w.free = i
