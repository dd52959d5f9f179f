"""Worlds in which a user's own variant takes part are simulated in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..bbr.variants.own_process import guarded
from .sender.slots import callback
from .world.world_setup import Setup

T = TypeVar("T")
_PACKET_BITS = 12_000


def watched(setup: Setup, work: Callable[[], T]) -> T:
    """What `work` returns, which simulates `setup`; apart from this process if a file takes part.

    Raises:
        BbrscopeError: the user's file raised, ended the process, or did not come back.
    """
    names = {flow.variant for flow in setup.flows}
    for name in names:
        if name.endswith(".py"):
            callback(name)  # compiled here, for all runs to come
    packets = setup.path.rate_bps * setup.duration_us // 1_000_000 // _PACKET_BITS
    return guarded(names, work, packets)
