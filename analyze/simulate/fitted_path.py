"""The path of a recording that nobody described, fitted from what its ACKs show.

The shortest RTT is the path's; the fastest delivery its rate, in time where it changes; the
longest queue its buffer. Packets that are lost while their neighbours met hardly a queue are lost
at random: their share of what was delivered then is the random loss, unless they come in a burst.
A rate that falls for a queue that never ends is that of a path with others on it, taken for CUBIC.
Losses without a queue, while a bucket was empty, are a policer's (recorded_policer.py); packets
that left before a link of that rate could have sent them, a token bucket's (recorded_bucket.py).
Silences beyond two retransmission timeouts are outages; holes in SACKs without losses are
reordering; CE marks tell the threshold; samples that are limited by the application its rate.
`tests/analyze/simulate/test_fitted_path.py` and README.md compare this with what is known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...collect.store.query import first_row
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from .path_ends import FITTED_OF_SILENCE, UNTOLD_RATE, Change, PathEnd, path_ends
from .random_loss import is_in_whole_skbs, is_lost_in_skbs, is_uneven, random_loss
from .recorded_acks import Array, Columns, longest_rtt_us, recorded_acks, rtts_us
from .recorded_bucket import recorded_bucket
from .recorded_buffer import packet_times_us, recorded_buffer
from .recorded_marks import marks_us
from .recorded_policer import recorded_policer
from .recorded_rates import (
    FAST,
    LEAST_SAMPLES,
    OTHER_RATE,
    WINDOW_US,
    aggregation_us,
    recorded_rates,
)
from .recorded_reordering import recorded_reordering, wait_us
from .recorded_round_trips import RoundTripStep, as_at_first, round_trip_steps
from .world.world_setup import HOST_US, PathSetup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb

    from ..replay.run_info import RunInfo

# TCP_RTO_MIN: two timeouts in a row last it three times, and a round trip each.
_RTO_MIN_US = 200_000
_TWO_TIMEOUTS_US = 3 * _RTO_MIN_US
# TCP_DELACK_MIN, for which an ACK may wait; packets out that a delayed one is not for.
_DELACK_US, _SOME_OUT = 40_000, 8
# A queue that never ends: a tenth of its RTTs at most lie below this share of the longest.
# BBR alone would have probed for the RTT in the meantime, which takes 10 s.
_STANDING, _PROBED_US = 0.3, 11_000_000
# Samples limited by the application, beyond what pauses of its writes make.
_APP_LIMITED = 0.2
# Holes in SACKs, beside losses, that say that packets overtake each other.
_LEAST_HOLES, _HOLES_PER_LOSS = 20, 2
# If more do, none of them are the others.
_SOME = 0.5


@dataclass(frozen=True)
class FittedPath:
    """A path, and the payload rate at which the application wrote [bit/s], 0: as fast as it could.

    `others_us`: since when others have used the path, too, in us since the recording's first flow
    began; None: nobody did. `least_packets`: the queue was never full, and the buffer has so many
    packets or more, and is taken for twice as many; 0: it was full. `ends`: paths that the
    recording does not tell from it, see path_ends.py. `uncovered`: what the recording shows, but
    the fit does not have.
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
    frame, is_one = mss + headers, len(flows) == 1
    every = recorded_acks(con, info.run_id, flows, origin)
    if not ((every["rtt_us"] > 0) & (every["delivered"] > 0)).any():
        raise _no_samples(info, len(every["rtt_us"]))
    together_us = aggregation_us(every)
    limited_bps = _limited_bps(every, mss) if is_one else 0
    steps = round_trip_steps(every) if is_one and not together_us else []
    every = as_at_first(every, steps)
    reordered, again, waited_us = _overtaking(con, info.run_id, flows[0], every)
    base_us = float(rtts_us(every).min()) - HOST_US + waited_us
    policed = None if together_us or reordered else _policed(every, base_us, frame)
    if policed:
        return policed
    rates = recorded_rates(every, base_us, together_us, frame, len(flows), limited_bps > 0)
    if rates is None:
        raise _no_samples(info, len(every["rtt_us"]))
    changes, burst_bytes = rates.changes, PathSetup.burst_bytes
    others_us = _others_since_us(every, changes, base_us)
    if others_us is not None:
        changes = changes[:1]
    if is_one and not (together_us or steps or reordered):
        changes, burst_bytes = _bucketed(_before(every, others_us), changes, base_us, frame)
    packet_us = packet_times_us(every, changes, frame, WINDOW_US)
    at_random = random_loss(every, base_us, packet_us)
    silences = _silences(every, base_us)
    buffer = recorded_buffer(every, packet_us, base_us, together_us, at_random, silences)
    path = PathSetup(
        round(changes[0][2] * (1 if rates.is_told else UNTOLD_RATE)),
        round(base_us),
        limit_packets=buffer.packets if buffer.is_full else max(4, 2 * buffer.packets),
        burst_bytes=burst_bytes,
        loss=at_random,
        in_skbs=bool(reordered) or is_lost_in_skbs(every, base_us, packet_us),
        aggregation_us=round(together_us),
        reorder=reordered,
        reorder_us=round(waited_us),
        reorder_again=again,
        marks_us=marks_us(every, base_us),
        ecn=bool((every["marked"] > 0).any()),
        unresolved=_is_unresolved(con, info, base_us),
    )
    uncovered = [*_not_even(every, path, packet_us)]
    if is_one:
        changes += [*_outages(every, base_us, path), *((s.at_us, "rtt", s.rtt_us) for s in steps)]
        uncovered += _uncovered(every, base_us, others_us, limited_bps, steps)
    path = replace(path, changes=tuple(sorted(changes[1:])), whole_skbs=is_in_whole_skbs(every))
    least = 0 if buffer.is_full else buffer.packets
    sharing = len(flows) + (others_us is not None)
    ends = path_ends(path, every, packet_us, least, sharing, is_told=rates.is_told)
    if not rates.is_told:
        path = replace(path, limit_packets=ends[1].limit_packets)
    return FittedPath(path, limited_bps, others_us, least, ends, tuple(uncovered))


def _policed(every: Columns, base_us: float, frame: int) -> FittedPath | None:
    """The path of a policer, of which nothing else is fitted; None: there is none."""
    policer = recorded_policer(every, base_us, frame)
    if policer is None:
        return None
    link = round(policer.rate_bps), round(base_us)
    path = PathSetup(*link, policer=True, burst_bytes=round(policer.burst_bytes))
    return FittedPath(path, 0, None)


def _before(every: Columns, others_us: int | None) -> Columns:
    """The ACKs of the time for which the flow surely had the path alone; None: of all of it."""
    if others_us is None:
        return every
    alone = every["t_us"] < others_us - WINDOW_US
    return {name: values[alone] for name, values in every.items()}


def _bucketed(
    every: Columns, changes: list[Change], base_us: float, frame: int
) -> tuple[list[Change], int]:
    """The rate and the bytes of a path's token bucket; as it was, if it shows none."""
    packet_us = frame * 8e6 / changes[0][2]
    bucket = recorded_bucket(every, base_us, packet_us, frame) if len(changes) == 1 else None
    if bucket is None:
        return changes, PathSetup.burst_bytes
    return [(0, "rate", bucket.rate_bps)], round(bucket.burst_bytes)


def _is_unresolved(con: duckdb.DuckDBPyConnection, info: RunInfo, base_us: float) -> bool:
    """Whether the first SYN took two round trips: ARP's question and answer take the other."""
    row = first_row(
        con,
        "SELECT first(tp_srtt_us ORDER BY ns) FILTER (kind = 'init' AND tp_delivered <= 1) >> 3"
        " FROM events WHERE run_id = ?",
        info.run_id,
    )
    return bool(row and row[0] and row[0] >= 2 * base_us)


def _not_even(every: Columns, path: PathSetup, packet_us: Array) -> Iterator[str]:
    """What a recording shows of its losses and its order that no fit has."""
    if path.loss and is_uneven(every, path.rtt_us, packet_us):
        yield "its random losses come in bursts, or at some times only, which no fit has"
    if path.reorder > _SOME:
        yield "its packets come in any order, as with jitter of the data, which no fit has"


def _uncovered(
    every: Columns,
    base_us: float,
    others_us: int | None,
    limited_bps: int,
    steps: Sequence[RoundTripStep],
) -> Iterator[str]:
    """What one flow's recording shows that no fit has: pauses, and others from the beginning on."""
    silent = np.where(every["out"] == 0, np.nan_to_num(every["silent_us"]), 0.0)
    pauses = silent[silent > _RTO_MIN_US + base_us]
    if len(pauses) and not limited_bps:
        yield (
            f"the application paused {plural(len(pauses), 'time')}, {pauses.sum() / 1e6:.1f} s"
            " in all, which"
            " no simulation of it does"
        )
    for step in steps:
        if not step.is_told:
            yield (
                f"its round trip fell at {step.at_us / 1e6:.1f} s to {step.rtt_us / 1e3:.1f} ms or"
                " less: its queue did not end since"
            )
    t = every["t_us"]
    if others_us is None and t[-1] - t[0] >= _PROBED_US:
        near = every["near_us"][(t > WINDOW_US) & np.isfinite(every["near_us"])]
        least = float(np.quantile(near, 1 - FAST)) if len(near) else base_us
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
    return share, again, wait_us(rtts_us(every), share)


def _others_since_us(every: Columns, changes: Sequence[Change], base_us: float) -> int | None:
    """Since when others have a part of the path: its rate fell, and its queue never ended.

    BBR alone empties the queue of a slower path now and then: to probe for the RTT, or to drain.
    """
    longest = longest_rtt_us(every)
    for number, ((_, _, before), (at, _, after)) in enumerate(pairwise(changes)):
        risen = [later for later, _, rate in changes[number + 2 :] if rate * OTHER_RATE > before]
        end = min(risen, default=float(every["t_us"][-1]))  # a further fall: others take more
        inside = (every["t_us"] > at + WINDOW_US) & (every["t_us"] <= end)
        near = every["near_us"][inside & np.isfinite(every["near_us"])]
        if after < before and end - at >= _PROBED_US and len(near) >= LEAST_SAMPLES:
            least = float(np.quantile(near, 1 - FAST))
            if least > base_us + _STANDING * (longest - base_us):
                return at
    return None


def _silent_us(every: Columns) -> Array:
    """How long before each ACK there was none, with packets on their way; else 0."""
    return np.where(every["out"] > 0, np.nan_to_num(every["silent_us"]), 0.0)


def _silences(every: Columns, base_us: float) -> Array:
    """Which ACKs end a silence with packets on their way that outlasts two timeouts."""
    return np.flatnonzero(_silent_us(every) > _TWO_TIMEOUTS_US + 2 * base_us)


def _lost_acks(every: Columns, base_us: float) -> Iterator[Change]:
    """Where ACKs were lost for less than timeouts need: the first after it is for all, none lost.

    None came through that was made before what this acknowledges last was sent.
    """
    silent = _silent_us(every)
    is_short = (silent > base_us + _DELACK_US) & (silent <= _TWO_TIMEOUTS_US + 2 * base_us)
    for_all = (every["out"] >= _SOME_OUT) & (every["acked"] >= every["out"])
    whole = (every["lost"] == 0) & (every["sacked"] == 0) & (every["rtt_us"] > 0)
    for place in np.flatnonzero(is_short & for_all & whole):
        begun = every["t_us"][place] - silent[place]
        lasted = silent[place] + base_us - every["rtt_us"][place]
        yield max(0, int(begun - base_us)), "acks", float(lasted)


def _outages(every: Columns, base_us: float, path: PathSetup) -> Iterator[Change]:
    """What was lost in each silence: all, or the ACKs; in a short one no more than these.

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
    if not path.aggregation_us:
        yield from _lost_acks(every, base_us)


def _limited_bps(every: Columns, mss: int) -> int:
    """The rate of an application that wrote less than the path takes [bit/s], 0: it did not."""
    acked = np.nan_to_num(every["acked"])
    if np.sum(acked * every["app_limited"]) < _APP_LIMITED * acked.sum():
        return 0
    t, got = every["t_us"], np.cumsum(acked)
    first, last = np.searchsorted(got, (0.1 * got[-1], 0.9 * got[-1]))
    return round(float((got[last] - got[first]) * mss * 8e6 / max(t[last] - t[first], 1.0)))
