"""A course counted in equal steps of time, and the band over many seeds: for charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .course import UNSET
from .world.world_records import MSS

Array = np.ndarray[Any, Any]
# Steps of time in us; the first that makes at most MOST_STEPS of a run is taken.
STEPS_US = tuple(n * 10**k for k in range(2, 9) for n in (1, 2, 5))
MOST_STEPS = 400
# Of all flows together, and of each flow.
TOGETHER = ("rate_kbps", "rtt_us", "lost")
OF_FLOW = ("inflight", "cwnd", "inflight_hi", "inflight_lo")


@dataclass(frozen=True)
class OverTime:
    """One run in steps of time.

    Attributes:
        step_us: length of a step.
        together: TOGETHER by name, [steps], NaN: no value. Payload delivered, the median RTT, and
            packets lost so far.
        flows: per flow OF_FLOW by name, [steps], as a step ends, and the mean of inflight.
        phases: per flow [steps], index in PHASES as a step ends, UNSET: not begun, or over.
    """

    step_us: int
    together: dict[str, Array]
    flows: list[dict[str, Array]]
    phases: list[Array]


@dataclass(frozen=True)
class Band:
    """A quantity over the seeds, [steps] each: 5 %, median and 95 %; NaN: most have no value."""

    low: Array
    middle: Array
    high: Array


def step_of(duration_us: int) -> int:
    """The length of a step for a run of this length, in us.

    >>> step_of(25_000_000)
    100000
    """
    fitting = [one for one in STEPS_US if duration_us <= one * MOST_STEPS]
    return int(fitting[0] if fitting else STEPS_US[-1])


def over_time(course: Array, flows: int, duration_us: int, mss: int = MSS) -> OverTime:
    """Count a course (course.COURSE) of so many flows in steps; `mss` is a packet's payload."""
    step_us = step_of(duration_us)
    n = -(-duration_us // step_us)
    of_flow = [course[course["flow"] == flow] for flow in range(flows)]
    ends = step_us * np.arange(1, n + 1)
    places = [np.searchsorted(one["t_us"], ends) - 1 for one in of_flow]
    counted = [(one, place) for one, place in zip(of_flow, places, strict=True) if len(one)]
    delivered = sum((_held(*each, "delivered", 0.0) for each in counted), np.zeros(n))
    together = {
        "rate_kbps": np.diff(delivered, prepend=0.0) * mss * 8 * 1000 / step_us,
        "rtt_us": _medians(course, step_us, n),
        "lost": sum((_held(*each, "lost", 0.0) for each in counted), np.zeros(n)),
    }
    held = []
    for one, place in zip(of_flow, places, strict=True):
        held.append({"inflight": _means(one, ends)})
        for name in OF_FLOW[1:]:
            values = _held(one, place, name, np.nan)
            held[-1][name] = _while_active(one, ends, values, np.nan)
    phases = [
        _while_active(one, ends, _held(one, place, "phase", UNSET), UNSET).astype(np.int64)
        for one, place in zip(of_flow, places, strict=True)
    ]
    return OverTime(step_us, together, held, phases)


def _held(course: Array, place: Array, name: str, before: float) -> Array:
    """What a column holds as each step ends; `before` its first row, and NaN while unset."""
    if not len(course):
        return np.full(len(place), before)
    values = course[name].astype(float)
    values[values == UNSET] = np.nan
    return np.where(place < 0, before, values[np.maximum(place, 0)])


def _while_active(course: Array, ends: Array, values: Array, other: float) -> Array:
    """The values up to the step of a flow's last callback, then `other`."""
    last = course["t_us"][-1] if len(course) else 0
    return np.where(np.append(0, ends[:-1]) <= last, values, other)


def _means(course: Array, ends: Array) -> Array:
    """The mean of inflight over the callbacks of each step, NaN where there are none."""
    step = np.searchsorted(ends, course["t_us"], side="right")
    inside = step < len(ends)
    count = np.bincount(step[inside], minlength=len(ends))
    total = np.bincount(step[inside], course["inflight"][inside], len(ends))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _medians(course: Array, step_us: int, n: int) -> Array:
    """The median RTT of each step, NaN where there is no sample."""
    sampled = course[(course["rtt_us"] > 0) & (course["t_us"] < n * step_us)]
    step, rtt = sampled["t_us"] // step_us, sampled["rtt_us"]
    order = np.lexsort((rtt, step))
    count = np.bincount(step, minlength=n)
    first = np.cumsum(count) - count
    medians = np.full(n, np.nan)
    some = count > 0
    medians[some] = rtt[order][(first + count // 2)[some]]
    return medians


def band(values: Sequence[Array]) -> Band:
    """The band of one quantity over the seeds; each of `values` is [steps]."""
    stacked = np.sort(np.stack(values), axis=0)  # NaN last
    there = np.isfinite(stacked).sum(axis=0)
    low, middle, high = (_quantile(stacked, there, share) for share in (0.05, 0.5, 0.95))
    return Band(low, middle, high)


def _quantile(rising: Array, there: Array, share: float) -> Array:
    """Of each column that has a value in at least half of its rows, by linear interpolation."""
    place = share * np.maximum(there - 1, 0)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(there - 1, 0))
    columns = np.arange(rising.shape[1])
    low, high = rising[below, columns], rising[above, columns]
    return np.where(2 * there >= len(rising), low + (high - low) * (place - below), np.nan)
