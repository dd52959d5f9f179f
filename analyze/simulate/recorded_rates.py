"""The rate of a recording's path, and how it changed: the fastest delivery while it had a queue.

A sender cannot deliver more than the path carries. Where no queue ever was it may carry more: the
application, the receiver's window or a limit of the pacing came first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .path_ends import Change
from .recorded_acks import Array, Columns

# A rate sample of fewer packets is of a burst, not of the path.
_LEAST_PACKETS, _COUNTED = 10, 40
# Rates that differ by less are one; a rate lasts for two windows or more.
OTHER_RATE, _LEAST_WINDOWS, WINDOW_US = 1.25, 2, 1_000_000
LEAST_SAMPLES = 10
# ACKs that come within this share of their packets' usual time come together; most ACKs do where
# the path aggregates them. Rates are then of so many of its periods.
_CLOSE_SHARE, _MOST_CLOSE, _PERIODS = 0.25, 0.5, 10
# So many ACKs in a row, and the share of them that come as fast as only a higher rate lets them.
_CLOSE, _OFTEN, FAST = 20, 0.3, 0.9


@dataclass(frozen=True)
class RecordedRates:
    """The first rate and those that it changed to [bit/s on the wire], and when each began [us].

    `is_told`: there was a queue at some time; else the path may carry more than the one rate here.
    """

    changes: list[Change]
    is_told: bool


def recorded_rates(
    every: Columns,
    base_us: float,
    together_us: float,
    frame: int,
    flows: int,
    is_limited: bool,
) -> RecordedRates | None:
    """The rates that a run's ACKs show; None: there are no samples.

    Args:
        base_us: the RTT without a queue.
        together_us: the time between bursts of ACKs, see `aggregation_us`.
        frame: bytes of a full segment on the wire.
        flows: how many the ACKs are of; changes are looked for in those of one.
        is_limited: the application wrote less than the path takes.
    """
    counted = _counted(every, together_us, flows, is_limited)
    rates = _rates_bps(every, frame, counted, together_us)
    if not np.isfinite(rates).any():
        return None
    # RTTs of ACKs that come together do not tell of a queue.
    windows = _windows(every, rates, frame, math.inf if together_us else base_us)
    fastest = _fastest(windows) if windows else float(np.nanquantile(rates, FAST))
    is_told = bool(together_us) or not windows or any(one.is_told for one in windows)
    if flows > 1 or not windows or not is_told:
        return RecordedRates([(0, "rate", fastest)], is_told)
    return RecordedRates(_changes(every, rates, frame, windows), is_told)


def _counted(every: Columns, together_us: float, flows: int, is_limited: bool) -> float:
    """Over how many packets ACKs are counted where the kernel's samples do not tell; 0: they do.

    Where a round trip has hardly more packets than a sample needs, those that have enough came in
    bursts; so do all where ACKs come together, and where the application writes now and then: what
    it sent before a pause began a sample. And a sample is of one flow's share of the path.
    """
    if together_us:
        t, acked = every["t_us"], np.nan_to_num(every["acked"])
        return float(_PERIODS * together_us * acked.sum() / max(t[-1] - t[0], 1.0))
    short = not np.nanmedian(every["delivered"]) > _LEAST_PACKETS
    return flows * _COUNTED if short or is_limited or flows > 1 else 0.0


def _rates_bps(every: Columns, frame: int, counted: float, together_us: float) -> Array:
    """Each sample's rate on the wire; NaN: of too few packets.

    `counted`: count ACKs over so many packets; 0: as the kernel's samples do. `together_us`: the
    time between bursts of ACKs, 0: there are none.
    """
    count, interval = every["delivered"], every["interval_us"]
    if counted:
        got, t = np.cumsum(np.nan_to_num(every["acked"])), every["t_us"]
        before = np.maximum(np.searchsorted(got, got - counted, side="right") - 1, 0)
        if together_us:
            # From the end of a burst to that of another: within them ACKs do not tell the time.
            ends = np.diff(t, append=np.inf) > together_us / 2
            last = np.maximum.accumulate(np.where(ends, np.arange(len(t)), 0))
            before = last[before]
        count, interval = got - got[before], t - t[before]
    usable = (count > _LEAST_PACKETS) & (interval > 0)
    if together_us:
        usable &= ends
    return np.where(usable, count * frame * 8e6 / np.where(usable, interval, 1.0), np.nan)


def aggregation_us(every: Columns) -> float:
    """The time between bursts of ACKs, if most ACKs come in bursts; 0: they do not."""
    acked, t = np.nan_to_num(every["acked"]), every["t_us"]
    gaps = np.diff(t, prepend=t[:1])
    usual = float(np.median(every["interval_us"] / np.maximum(every["delivered"], 1)))
    close = gaps < _CLOSE_SHARE * acked * usual
    apart = gaps[~close]
    if np.mean(close) < _MOST_CLOSE or len(apart) < LEAST_SAMPLES:
        return 0.0
    period = float(np.median(apart))
    return period if period > 4 * usual else 0.0


@dataclass(frozen=True)
class _Window:
    """A second of the recording: its fastest delivery, and whether there was a queue.

    `is_told`: there was one for long enough to tell the path's rate; `is_queued`: most of the time.
    """

    number: int
    rate_bps: float
    is_told: bool
    is_queued: bool


def _windows(every: Columns, rates: Array, frame: int, empty_us: float) -> list[_Window]:
    """Windows with enough samples; where some were taken with a queue, these tell the rate."""
    found = []
    # Two packets' time: less is no queue.
    queued = every["near_us"] > empty_us + 16e6 * frame / float(np.nanquantile(rates, FAST))
    numbers = every["t_us"] // WINDOW_US
    for inside in np.split(np.arange(len(rates)), np.flatnonzero(np.diff(numbers)) + 1):
        usable = inside[np.isfinite(rates[inside])]
        if len(usable) < LEAST_SAMPLES:
            continue
        with_queue = usable[queued[usable]]
        is_told = len(with_queue) >= LEAST_SAMPLES
        rate = float(np.quantile(rates[with_queue if is_told else usable], FAST))
        is_queued = 2 * len(with_queue) > len(usable)
        found.append(_Window(int(numbers[inside[0]]), rate, is_told, is_queued))
    return found


def _changes(every: Columns, rates: Array, frame: int, windows: list[_Window]) -> list[Change]:
    """The first rate and those that it changed to, on the wire, and when each began [us].

    A sender cannot deliver more than the path, so that a higher rate is the path's; a lower one is
    if there is a queue.
    """
    levels = _levels(windows)
    made: list[Change] = [(0, "rate", levels[0][1])]
    for (_, before), (number, after) in pairwise(levels):
        made.append((_when_us(every, rates, frame, number, before, after), "rate", after))
    return made


def _levels(windows: list[_Window]) -> list[tuple[int, float]]:
    """Rates that last, each with the window that it began in."""
    levels = [[windows[0]]]
    for place, window in enumerate(windows[1:], 1):
        usual = float(np.median([one.rate_bps for one in levels[-1]]))
        ahead = windows[place : place + _LEAST_WINDOWS]
        faster = all(one.rate_bps > usual * OTHER_RATE for one in ahead)
        slower = all(one.rate_bps < usual / OTHER_RATE for one in ahead)
        slower &= any(one.is_queued for one in ahead)
        if len(ahead) == _LEAST_WINDOWS and (faster or slower):
            # The sender, or on the way from one rate to the next.
            was_path = any(one.is_told for one in levels[-1])
            if len(levels[-1]) < _LEAST_WINDOWS or (faster and not was_path):
                levels.pop()
            levels.append([window])
        elif usual / OTHER_RATE <= window.rate_bps <= usual * OTHER_RATE:
            levels[-1].append(window)
    return [(one[0].number, _fastest(one)) for one in levels]


def _fastest(windows: Sequence[_Window]) -> float:
    """The rate of windows of one path, by those with a queue; others may have had less to send."""
    told = [one.rate_bps for one in windows if one.is_told]
    rates = told or [one.rate_bps for one in windows]
    return float(np.quantile(rates, FAST, method="nearest"))


def _when_us(
    every: Columns, rates: Array, frame: int, number: int, before: float, after: float
) -> int:
    """When the rate changed, around the beginning of a window.

    The last sample that is faster than the lower rate allows, or the first ACKs that follow each
    other as only the higher rate lets them, though the sender did not use it yet.
    """
    between, t = (before * after) ** 0.5, every["t_us"]
    near = (t >= (number - _LEAST_WINDOWS) * WINDOW_US) & (t < (number + 1) * WINDOW_US)
    fast = near & (rates > between)
    if after < before:
        return int(t[np.flatnonzero(fast)[-1]]) if fast.any() else number * WINDOW_US
    close = (
        np.nan_to_num(every["acked"]) * frame * 8e6 / np.maximum(every["silent_us"], 1) > between
    )
    often = np.convolve(close, np.ones(_CLOSE) / _CLOSE)[: len(t)] > _OFTEN
    seen = np.flatnonzero(near & (often | fast))
    return int(t[seen[0]]) if len(seen) else number * WINDOW_US
