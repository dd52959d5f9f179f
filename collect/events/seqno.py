"""The numbers of a socket's events, which the recorder counts from 0 on every new socket."""

from __future__ import annotations


def went_back(number: int, expected: int, is_init: bool) -> bool:
    """Tell whether an event's number is another socket's than the one that `expected` is next of.

    Numbers have 32 bits and start again at 0. One that is 0 again and again is none: the recorder
    has no room to count the events of so many sockets.
    """
    is_uncounted = number == 0 and expected == 1 and not is_init
    return (number - expected) & 0xFFFFFFFF >= 0x80000000 and not is_uncounted
