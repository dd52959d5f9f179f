"""Worlds in which a user's own variant takes part are simulated in a process of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

from ..bbr.variants.own_process import guarded
from .sender.slots import callback
from .simulation import simulate
from .world.world_setup import FlowSetup, PathSetup, Setup

T = TypeVar("T")
_PACKET_BITS = 12_000


def watched(setup: Setup, work: Callable[[], T]) -> T:
    """What `work` returns, which simulates `setup`; apart from this process if a file takes part.

    Raises:
        BbrscopeError: the user's file raised, ended the process, or did not come back.
    """
    names = {flow.variant for flow in setup.flows}
    packets = setup.path.rate_bps * setup.duration_us // 1_000_000 // _PACKET_BITS

    def compiled() -> None:
        _compile_engine()
        for name in names:
            if name.endswith(".py"):
                callback(name)

    return guarded(names, work, packets, compiled)


@cache
def _compile_engine() -> None:
    """Run a world of a kernel's rules for a moment: the engine is the same for all."""
    flow = FlowSetup("v3", 0, 1000)
    simulate(Setup(PathSetup(10_000_000, 40_000, limit_packets=33), (flow,), 1000))
