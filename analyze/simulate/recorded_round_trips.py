"""When the round trip of a recorded path changed: its shortest RTTs are others from then on.

One flow with BBR empties its queue at least every min_rtt_win_sec, in PROBE_RTT, so that the
shortest RTT of all spans that are longer is the path's. So is that from the flow's beginning on:
its first packets met no queue. A route that changes is another from one ACK to the next, where the
queue of others grows and ends packet by packet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .recorded_acks import Array, Columns, exact_rtts
from .world.world_setup import HOST_US

# min_rtt_win_sec and the time of PROBE_RTT, in windows of a second. A first round trip lasts for a
# few: a flow that begins with the queue of others loses it sooner.
_WINDOW_US, _PROBED, _LASTS = 1_000_000, 11, 3
# Less is noise of hosts, or a packet that is left.
_LEAST_SHARE, _LEAST_US = 0.05, 1500
# A step is so much longer than nearly all differences from ACK to ACK: overtaking and jitter make
# others. It makes about all of the difference between the shortest RTTs.
_USUAL, _BEYOND, _EXPLAINED = 0.99, 4, (0.7, 1.5)


@dataclass(frozen=True)
class RoundTripStep:
    """From `seen_us` on ACKs show another round trip, `rtt_us`, which began at `at_us`.

    `longer_us` is by how much their RTTs are longer than the first, `size_us` than before, or
    shorter. `is_told`: the flow emptied its
    queue since; else the round trip may be shorter.
    """

    seen_us: float
    at_us: int
    rtt_us: float
    longer_us: float
    size_us: float
    is_told: bool


def round_trip_steps(every: Columns) -> list[RoundTripStep]:
    """The changes of one flow's round trip; `every` are its ACKs."""
    exact = exact_rtts(every)
    t, near_us = every["t_us"][exact], every["near_us"][exact]
    if len(t) < 2:
        return []
    each = _shortest_us(t, every["rtt_us"][exact])
    shortest = _floor_us(each)
    usual = float(np.quantile(np.abs(np.diff(near_us)), _USUAL))
    steps: list[RoundTripStep] = []
    first = level = float(shortest[0])
    begun_in = 0
    for number, now in enumerate(map(float, shortest)):
        if now < level:
            # It fell within this window: the next has all of the shorter one.
            now = float(shortest[number : number + 2].min())
        apart = abs(now - level)
        if number < _LASTS or apart <= max(_LEAST_SHARE * level, _LEAST_US, _BEYOND * usual):
            continue
        before, after = each[begun_in:number], each[number : number + _LASTS]
        if not _is_met(now, after) and not (now < level and _is_met(level, before)):
            continue
        near = (t >= (number - 1) * _WINDOW_US) & (t < (number + 1) * _WINDOW_US)
        seen, size = _step(t[near], near_us[near], now > level)
        if not _EXPLAINED[0] <= size / apart <= _EXPLAINED[1]:
            continue
        is_told = now > level or len(shortest) - number >= _PROBED
        begun = max(0, int(seen - now))
        steps.append(RoundTripStep(seen, begun, now - HOST_US, now - first, apart, is_told))
        level, begun_in = now, number
    return steps


def _is_met(level: float, each: Array) -> bool:
    """Whether two windows and more have it as their shortest RTT: queues of others vary."""
    return bool(np.sum(np.abs(each - level) <= max(_LEAST_SHARE * level, _LEAST_US)) >= 2)


def _step(t: Array, rtts: Array, is_up: bool) -> tuple[float, float]:
    """When the RTT rose most from one ACK to the next, or fell most, and by how much [us].

    A queue ends no faster than time passes, so that only what the RTT fell beyond that is a step.
    """
    if len(t) < 2:
        return 0.0, 0.0
    ends = t + rtts
    by = np.append(0.0, np.diff(rtts)) if is_up else np.maximum.accumulate(ends) - ends
    place = int(by.argmax())
    return float(t[place]), float(by[place])


def _shortest_us(t: Array, rtts: Array) -> Array:
    """The shortest RTT in each window; inf: it has none."""
    each = np.full(int(t[-1] // _WINDOW_US) + 1, np.inf)
    np.minimum.at(each, (t // _WINDOW_US).astype(int), rtts)
    return each


def _floor_us(each: Array) -> Array:
    """The round trip in each window: the most that spans with it have as their shortest RTT."""
    count, floor = len(each), np.minimum.accumulate(each)
    for begin in range(count - _PROBED + 1):
        span = slice(begin, begin + _PROBED)
        floor[span] = np.maximum(floor[span], each[span].min())
    # Until the first ACK there is none.
    told: Array = floor[np.isfinite(floor)]
    return np.concatenate((np.full(count - len(told), told[0]), told))


def as_at_first(every: Columns, steps: list[RoundTripStep]) -> Columns:
    """The same ACKs with RTTs as on the first round trip.

    What timestamps tell, and what came while a step was seen, is left out.
    """
    if not steps:
        return every
    t = every["t_us"]
    longer = np.zeros(len(t))
    for step in steps:
        longer[t >= step.seen_us] = step.longer_us
    for step in steps:
        longer[np.abs(t - step.seen_us) <= step.size_us] = np.nan
    exact = np.where(exact_rtts(every), every["rtt_us"], np.nan)
    return every | {"rtt_us": exact - longer, "near_us": every["near_us"] - longer}
