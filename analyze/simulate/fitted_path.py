"""The path of a recording that nobody described, fitted from what its ACKs show.

The shortest RTT is the path's; the fastest delivery its rate, in time where it changes; the
longest queue its buffer. Packets that are lost while their neighbours met hardly a queue are lost
at random: their share of what was delivered then is the random loss, unless they come in a burst.
A rate that falls for a queue that never ends is that of a path with others on it, taken for CUBIC.
Losses without a queue, while a bucket was empty, are a policer's (recorded_policer.py). Silences
beyond two retransmission timeouts are outages; holes in SACKs without losses are reordering; CE
marks tell the threshold; samples that are limited by the application its rate.
`tests/analyze/simulate/test_fitted_path.py` and README.md compare this with what is known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...collect.store.query import first_row
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from .path_ends import FITTED_OF_SILENCE, Change, PathEnd, path_ends
from .random_loss import is_lost_in_skbs, random_loss
from .recorded_acks import Array, Columns, longest_rtt_us, recorded_acks, rtts_us
from .recorded_buffer import packet_times_us, recorded_buffer
from .recorded_marks import marks_us
from .recorded_policer import recorded_policer
from .recorded_reordering import recorded_reordering
from .world.world_setup import HOST_US, PathSetup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

    from ..replay.run_info import RunInfo

# A rate sample of fewer packets is of a burst, not of the path.
_LEAST_PACKETS, _COUNTED = 10, 40
# TCP_RTO_MIN: two timeouts in a row last it three times, and a round trip each.
_RTO_MIN_US = 200_000
# Rates that differ by less are one; a rate lasts for two windows or more.
_OTHER_RATE, _LEAST_WINDOWS, _WINDOW_US = 1.25, 2, 1_000_000
_LEAST_SAMPLES = 10
# ACKs that come within this share of their packets' usual time come together; most ACKs do where
# the path aggregates them. Rates are then of so many of its periods.
_CLOSE_SHARE, _MOST_CLOSE, _PERIODS = 0.25, 0.5, 10
# So many ACKs in a row, and the share of them that come as fast as only a higher rate lets them.
_CLOSE, _OFTEN, _FAST = 20, 0.3, 0.9
# A queue that never ends: a tenth of its RTTs at most lie below this share of the longest.
# BBR alone would have probed for the RTT in the meantime, which takes 10 s.
_STANDING, _PROBED_US = 0.3, 11_000_000
# Samples limited by the application, beyond what pauses of its writes make.
_APP_LIMITED = 0.2
# Holes in SACKs, beside losses, that say that packets overtake each other.
_LEAST_HOLES, _HOLES_PER_LOSS = 20, 2
# This share of the packets that wait while others overtake them meets no queue.
_WAITED = 0.025


@dataclass(frozen=True)
class FittedPath:
    """A path, and the payload rate at which the application wrote [bit/s], 0: as fast as it could.

    `others_us`: since when others have used the path, too, in us since the recording's first flow
    began; None: nobody did. `least_packets`: the queue was never full, and the buffer has so many
    packets or more; 0: it was full. `ends`: paths that the recording does not tell from it, see
    path_ends.py. `uncovered`: what the recording shows, but the fit does not
    have.
    """

    path: PathSetup
    limited_bps: int
    others_us: int | None
    least_packets: int = 0
    ends: tuple[PathEnd, ...] = ()
    uncovered: tuple[str, ...] = ()


def fitted_path(
    con: duckdb.DuckDBPyConnection,
    info: RunInfo,
    flows: Sequence[int],
    origin: int,
    mss: int,
    headers: int,
) -> FittedPath:
    """Fit the path of a run; its changes are in us since `origin` [ns, CLOCK_MONOTONIC].

    Args:
        flows: the run's flows with data.
        mss, headers: bytes of a full segment's payload, and of what it has before that on the wire.

    Raises:
        BbrscopeError: there are no rate samples.
    """
    frame = mss + headers
    every = recorded_acks(con, info.run_id, flows, origin)
    if not ((every["rtt_us"] > 0) & (every["delivered"] > 0)).any():
        raise _no_samples(info, len(every["rtt_us"]))
    together_us = _aggregation_us(every)
    counted = _counted(every, together_us, len(flows))
    rates = _rates_bps(every, frame, counted, together_us)
    if not np.isfinite(rates).any():
        raise _no_samples(info, len(every["rtt_us"]))
    reordered, again, wait_us = _overtaking(con, info.run_id, flows[0], every)
    base_us = float(rtts_us(every).min()) - HOST_US + wait_us
    policer = None if together_us or reordered else recorded_policer(every, base_us, frame)
    if policer:
        link = round(policer.rate_bps), round(base_us)
        path = PathSetup(*link, policer=True, burst_bytes=round(policer.burst_bytes))
        return FittedPath(path, 0, None)
    # RTTs of ACKs that come together do not tell of a queue.
    windows = _windows(every, rates, frame, math.inf if together_us else base_us)
    if windows and len(flows) == 1:
        changes = _changes(every, rates, frame, windows)
    else:
        rate = _fastest(windows) if windows else float(np.nanquantile(rates, _FAST))
        changes = [(0, "rate", rate)]
    others_us = _others_since_us(every, changes, base_us)
    if others_us is not None:
        changes = changes[:1]
    packet_us = packet_times_us(every, changes, frame, _WINDOW_US)
    at_random = random_loss(every, base_us, packet_us)
    silences = _silences(every, base_us)
    buffer = recorded_buffer(every, packet_us, base_us, together_us, at_random, silences)
    path = PathSetup(
        round(changes[0][2]),
        round(base_us),
        # A queue that was never full may be longer than it was.
        limit_packets=buffer.packets if buffer.is_full else max(4, 2 * buffer.packets),
        loss=at_random,
        in_skbs=bool(reordered) or is_lost_in_skbs(every, base_us, packet_us),
        aggregation_us=round(together_us),
        reorder=reordered,
        reorder_us=round(wait_us),
        reorder_again=again,
        marks_us=marks_us(every, base_us),
        ecn=bool((every["marked"] > 0).any()),
        unresolved=_is_unresolved(con, info, base_us),
    )
    outages = _outages(every, base_us) if len(flows) == 1 else ()
    path = replace(path, changes=tuple(sorted([*changes[1:], *outages])))
    limited_bps = _limited_bps(every, mss) if len(flows) == 1 else 0
    uncovered = tuple(_uncovered(every, base_us, others_us)) if len(flows) == 1 else ()
    least = 0 if buffer.is_full else buffer.packets
    ends = path_ends(path, every, packet_us, least, len(flows) + (others_us is not None))
    return FittedPath(path, limited_bps, others_us, least, ends, uncovered)


def _is_unresolved(con: duckdb.DuckDBPyConnection, info: RunInfo, base_us: float) -> bool:
    """Whether the first SYN took two round trips: ARP's question and answer take the other."""
    row = first_row(
        con,
        "SELECT first(tp_srtt_us ORDER BY ns) FILTER (kind = 'init' AND tp_delivered <= 1) >> 3"
        " FROM events WHERE run_id = ?",
        info.run_id,
    )
    return bool(row and row[0] and row[0] >= 2 * base_us)


def _uncovered(every: Columns, base_us: float, others_us: int | None) -> Iterator[str]:
    """What one flow's recording shows that no fit has: pauses, and others from the beginning on."""
    silent = np.where(every["out"] == 0, np.nan_to_num(every["silent_us"]), 0.0)
    pauses = silent[silent > _RTO_MIN_US + base_us]
    if len(pauses):
        yield (
            f"the application paused {plural(len(pauses), 'time')}, {pauses.sum() / 1e6:.1f} s"
            " in all, which"
            " no simulation of it does"
        )
    t = every["t_us"]
    if others_us is None and t[-1] - t[0] >= _PROBED_US:
        near = every["near_us"][(t > _WINDOW_US) & np.isfinite(every["near_us"])]
        least = float(np.quantile(near, 1 - _FAST)) if len(near) else base_us
        if least > base_us + _STANDING * (longest_rtt_us(every) - base_us):
            yield (
                "its queue never ended: others may have used the path from the beginning on, which"
                " makes it slower here"
            )


def _no_samples(info: RunInfo, acks: int) -> BbrscopeError:
    fact = f"{info.run}: the path cannot be fitted: no rate samples"
    if not acks:
        return BbrscopeError(fact, "main() was never recorded: bbrscope doctor says what can be")
    return BbrscopeError(fact, "record a longer run")


def _counted(every: Columns, together_us: float, flows: int) -> float:
    """Over how many packets ACKs are counted where the kernel's samples do not tell; 0: they do.

    Where a round trip has hardly more packets than a sample needs, those that have enough came in
    bursts; so do all where ACKs come together. And a sample is of one flow's share of the path.
    """
    if together_us:
        t, acked = every["t_us"], np.nan_to_num(every["acked"])
        return float(_PERIODS * together_us * acked.sum() / max(t[-1] - t[0], 1.0))
    short = not np.nanmedian(every["delivered"]) > _LEAST_PACKETS
    return flows * _COUNTED if short or flows > 1 else 0.0


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


def _aggregation_us(every: Columns) -> float:
    """The time between bursts of ACKs, if most ACKs come in bursts; 0: they do not."""
    acked, t = np.nan_to_num(every["acked"]), every["t_us"]
    gaps = np.diff(t, prepend=t[:1])
    usual = float(np.median(every["interval_us"] / np.maximum(every["delivered"], 1)))
    close = gaps < _CLOSE_SHARE * acked * usual
    apart = gaps[~close]
    if np.mean(close) < _MOST_CLOSE or len(apart) < _LEAST_SAMPLES:
        return 0.0
    period = float(np.median(apart))
    return period if period > 4 * usual else 0.0


def _overtaking(
    con: duckdb.DuckDBPyConnection, run_id: int, flow: int, every: Columns
) -> tuple[float, float, float]:
    """What share overtakes others, and again, and how long these wait [us]; zeros: none does.

    SACKs tell of holes without losses then.
    """
    holes = float(np.nansum(every["hole"]))
    losses = float(np.sum(every["lost"] > 0))
    if holes < _LEAST_HOLES or holes < _HOLES_PER_LOSS * losses:
        return 0.0, 0.0, 0.0
    share, again = recorded_reordering(con, run_id, flow)
    rtts = rtts_us(every)
    waited = float(np.quantile(rtts, share + _WAITED * (1 - share)) - rtts.min())
    return share, again, waited


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
    queued = every["near_us"] > empty_us + 16e6 * frame / float(np.nanquantile(rates, _FAST))
    numbers = every["t_us"] // _WINDOW_US
    for inside in np.split(np.arange(len(rates)), np.flatnonzero(np.diff(numbers)) + 1):
        usable = inside[np.isfinite(rates[inside])]
        if len(usable) < _LEAST_SAMPLES:
            continue
        with_queue = usable[queued[usable]]
        is_told = len(with_queue) >= _LEAST_SAMPLES
        rate = float(np.quantile(rates[with_queue if is_told else usable], _FAST))
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


def _others_since_us(every: Columns, changes: Sequence[Change], base_us: float) -> int | None:
    """Since when others have a part of the path: its rate fell, and its queue never ended.

    BBR alone empties the queue of a slower path now and then: to probe for the RTT, or to drain.
    """
    longest = longest_rtt_us(every)
    for number, ((_, _, before), (at, _, after)) in enumerate(pairwise(changes)):
        risen = [later for later, _, rate in changes[number + 2 :] if rate * _OTHER_RATE > before]
        end = min(risen, default=float(every["t_us"][-1]))  # a further fall: others take more
        inside = (every["t_us"] > at + _WINDOW_US) & (every["t_us"] <= end)
        near = every["near_us"][inside & np.isfinite(every["near_us"])]
        if after < before and end - at >= _PROBED_US and len(near) >= _LEAST_SAMPLES:
            least = float(np.quantile(near, 1 - _FAST))
            if least > base_us + _STANDING * (longest - base_us):
                return at
    return None


def _levels(windows: list[_Window]) -> list[tuple[int, float]]:
    """Rates that last, each with the window that it began in."""
    levels = [[windows[0]]]
    for place, window in enumerate(windows[1:], 1):
        usual = float(np.median([one.rate_bps for one in levels[-1]]))
        ahead = windows[place : place + _LEAST_WINDOWS]
        faster = all(one.rate_bps > usual * _OTHER_RATE for one in ahead)
        slower = all(one.rate_bps < usual / _OTHER_RATE for one in ahead)
        slower &= any(one.is_queued for one in ahead)
        if len(ahead) == _LEAST_WINDOWS and (faster or slower):
            # The sender, or on the way from one rate to the next.
            was_path = any(one.is_told for one in levels[-1])
            if len(levels[-1]) < _LEAST_WINDOWS or (faster and not was_path):
                levels.pop()
            levels.append([window])
        elif usual / _OTHER_RATE <= window.rate_bps <= usual * _OTHER_RATE:
            levels[-1].append(window)
    return [(one[0].number, _fastest(one)) for one in levels]


def _fastest(windows: Sequence[_Window]) -> float:
    """The rate of windows of one path, by those with a queue; others may have had less to send."""
    told = [one.rate_bps for one in windows if one.is_told]
    rates = told or [one.rate_bps for one in windows]
    return float(np.quantile(rates, _FAST, method="lower"))


def _when_us(
    every: Columns, rates: Array, frame: int, number: int, before: float, after: float
) -> int:
    """When the rate changed, around the beginning of a window.

    The last sample that is faster than the lower rate allows, or the first ACKs that follow each
    other as only the higher rate lets them, though the sender did not use it yet.
    """
    between, t = (before * after) ** 0.5, every["t_us"]
    near = (t >= (number - _LEAST_WINDOWS) * _WINDOW_US) & (t < (number + 1) * _WINDOW_US)
    fast = near & (rates > between)
    if after < before:
        return int(t[np.flatnonzero(fast)[-1]]) if fast.any() else number * _WINDOW_US
    close = (
        np.nan_to_num(every["acked"]) * frame * 8e6 / np.maximum(every["silent_us"], 1) > between
    )
    often = np.convolve(close, np.ones(_CLOSE) / _CLOSE)[: len(t)] > _OFTEN
    seen = np.flatnonzero(near & (often | fast))
    return int(t[seen[0]]) if len(seen) else number * _WINDOW_US


def _silences(every: Columns, base_us: float) -> Array:
    """Which ACKs end a silence with packets on their way that outlasts two timeouts."""
    silent = np.where(every["out"] > 0, np.nan_to_num(every["silent_us"]), 0.0)
    return np.flatnonzero(silent > 3 * _RTO_MIN_US + 2 * base_us)


def _outages(every: Columns, base_us: float) -> Iterator[Change]:
    """What was lost in each silence: all, or the ACKs.

    Where the first ACK after it is for all of them, data arrived: ACKs alone were lost, from the
    round trip before on, in which the last that arrived was made.
    """
    for place in _silences(every, base_us):
        silent_us = float(every["silent_us"][place])
        begun, lasted = every["t_us"][place] - silent_us, FITTED_OF_SILENCE * silent_us
        if not every["out"][place + 1 : place + 2].any():
            yield max(0, int(begun - base_us)), "acks", lasted
        else:
            yield max(0, int(begun)), "down", lasted


def _limited_bps(every: Columns, mss: int) -> int:
    """The rate of an application that wrote less than the path takes [bit/s], 0: it did not."""
    acked = np.nan_to_num(every["acked"])
    if np.sum(acked * every["app_limited"]) < _APP_LIMITED * acked.sum():
        return 0
    t, got = every["t_us"], np.cumsum(acked)
    first, last = np.searchsorted(got, (0.1 * got[-1], 0.9 * got[-1]))
    return round(float((got[last] - got[first]) * mss * 8e6 / max(t[last] - t[first], 1.0)))
