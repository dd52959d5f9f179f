"""Run a world, and hand on what it recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...probes.base.errors import BbrscopeError
from .world.coming import schedule
from .world.world_arrays import Arrays, arrays
from .world.world_loop import SAMPLE_NS, run
from .world.world_records import EV_BUSY, EV_CHANGE, EV_SAMPLE, EV_START
from .world.world_setup import Setup

Array = np.ndarray[Any, Any]
RECORDED = ("out_events", "out_states", "out_rows")
# Takes the rows recorded so far: inputs, states, and what else is known of them.
Take = Callable[[Array, Array, Array], None]


@dataclass(frozen=True)
class Simulated:
    """What a run came to: arrays of records as the engine left them, see world/places.py.

    `reached` is [seconds, flows]; `began` are the places in the set-up of those flows whose events
    were written, as they began: a store numbers them in this order.
    """

    setup: Setup
    flows: Array
    events: Array
    samples: Array
    reached: Array
    began: tuple[int, ...] = ()


def simulate(setup: Setup, take: Take | None = None) -> Simulated:
    """Run a world to its end; `take` gets the recording in pieces: events, states, rows.

    Raises:
        BbrscopeError: the world is impossible, or outgrew its arrays, or a flow's rules set a cwnd
            that no kernel holds.
    """
    memory = arrays(setup, take is not None)
    _begin(memory, setup)
    while True:
        state = run(memory.sim)
        rows = int(memory.world["recorded"][0])
        if take is not None and rows:
            take(*(memory.parts[name][:rows] for name in RECORDED))
            memory.world["recorded"] = 0
        if state == 0:
            break
        if state == 2:
            raise BbrscopeError(
                "the simulation has more packets under way than fit into its memory",
                "a smaller buffer, rate or round trip needs fewer",
            )
    check_cwnd(setup, memory.parts["events"])
    samples = memory.parts["samples"][: int(memory.world["sampled"][0])]
    reached = memory.parts["reached"].reshape(-1, len(setup.flows))
    return Simulated(setup, memory.parts["flows"], memory.parts["events"], samples, reached)


def check_cwnd(setup: Setup, events: Array) -> None:
    """Refuse rules that left a flow with a cwnd with which nothing is sent; `events` by flow.

    Raises:
        BbrscopeError: so it is.
    """
    for flow, cwnd in zip(setup.flows, events["tp"]["snd_cwnd"], strict=True):
        if not 0 < cwnd < 1 << 32:
            raise BbrscopeError(
                f"{flow.variant or flow.cc} set cwnd to {cwnd}",
                "a cwnd is of one packet or more, and has 32 bits",
            )


def _begin(memory: Arrays, setup: Setup) -> None:
    for index, flow in enumerate(setup.flows):
        schedule(memory.sim, flow.start_us * 1000, EV_START, index)
    schedule(memory.sim, SAMPLE_NS, EV_SAMPLE, 0)
    schedule(memory.sim, 0, EV_BUSY, 0)
    changes = memory.parts["changes"]
    if len(changes):
        schedule(memory.sim, int(changes["at"][0]), EV_CHANGE, 0)


def goodput_mbps(outcome: Simulated) -> list[float]:
    """Mbit/s that each flow's receiver got, over the time that it ran."""
    got = []
    for flow, row in zip(outcome.setup.flows, outcome.flows, strict=True):
        end = min(flow.stop_us, outcome.setup.duration_us)
        got.append(int(row["rcv_nxt"]) * outcome.setup.path.mss * 8 / max(end - flow.start_us, 1))
    return got
