"""What a recording does not tell of its path: the ends between which this lies.

Another version meets what the recorded one never did: a buffer that was never full, a rate that
had risen before it was used, an end of an outage between two attempts. It is simulated on each end,
and with what the path is taken for in between: the RTT of v1 is longest where the buffer is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from .recorded_acks import Array, Columns
from .world.world_setup import PathSetup
from .world.world_size import RMEM

Change = tuple[int, str, float]
# An outage's length beside the silence that it made, which is what is fitted. The first timeout's
# packet goes after a third of the silence of two (each lasts twice the one before), later ones
# after more: it was lost. The last was not, a round trip before the silence ended.
FITTED_OF_SILENCE, _LEAST_OF_SILENCE = 0.75, 1 / 3
# Packets that make a queue.
_QUEUE = 2


# Where no queue ever was: a link as fast as the fastest delivery would have had one under BBR's
# gains of 1.25; and nobody uses ten times that. In between the path is taken for twice that.
_UNTOLD_RATES = 1.25, 2.0, 10.0
UNTOLD_RATE = _UNTOLD_RATES[1]


@dataclass(frozen=True)
class PathEnd:
    """One of the paths that a recording does not tell apart: its buffer, changes, first rate."""

    limit_packets: int
    changes: tuple[Change, ...]
    rate_bps: int


def later(changes: tuple[Change, ...], by_us: int) -> tuple[Change, ...]:
    """The same changes of a path, later by so much."""
    return tuple((at + by_us, what, value) for at, what, value in changes)


def path_ends(
    path: PathSetup,
    every: Columns,
    packet_us: Array,
    least_packets: int,
    flows: int,
    *,
    is_told: bool = True,
) -> tuple[PathEnd, ...]:
    """The ends of a fitted path; empty: the recording tells all of it.

    Args:
        every: the run's ACKs.
        packet_us: how long the link took for a packet when each of them came.
        least_packets: what the buffer has at least; 0: it is known.
        flows: how many share the path.
        is_told: there was a queue, so that the path's rate is known; else it is UNTOLD_RATE times
            the fastest delivery.
    """
    most = max(flows * (RMEM // path.mss), path.limit_packets)
    if not is_told:
        buffers = [path.limit_packets, most, most]
        return tuple(
            PathEnd(packets, path.changes, round(path.rate_bps * times / UNTOLD_RATE))
            for packets, times in zip(buffers, _UNTOLD_RATES, strict=True)
        )
    buffers = [path.limit_packets]
    if least_packets:
        buffers = [least_packets, path.limit_packets, most]
    spans = list(_spans(path, every, packet_us))
    changes = [tuple(early for early, _ in spans), tuple(late for _, late in spans)]
    if changes[0] == changes[1]:
        changes = [path.changes]
    ends = tuple(PathEnd(*each, path.rate_bps) for each in product(buffers, changes))
    return ends if len(ends) > 1 else ()


def _spans(path: PathSetup, every: Columns, packet_us: Array) -> Iterator[tuple[Change, Change]]:
    """Each change with the most, and with the least, that it may have carried."""
    rate = float(path.rate_bps)
    for change in path.changes:
        at, what, value = change
        if what == "rate" and value > rate:
            yield (_last_slow_us(path, every, packet_us, at), what, value), change
        elif what in ("down", "acks"):
            silent = value / FITTED_OF_SILENCE
            short, long = _LEAST_OF_SILENCE * silent, silent - path.rtt_us
            yield (at, what, short), (at, what, max(short, long))
        else:
            yield change, change
        rate = value if what == "rate" else rate


def _last_slow_us(path: PathSetup, every: Columns, packet_us: Array, found: int) -> int:
    """When the link was last as slow as before: packets queued in the round trip before an ACK."""
    queued = every["near_us"] > path.rtt_us + _QUEUE * packet_us
    sent_us = every["t_us"] - every["near_us"]
    seen = sent_us[queued & (every["t_us"] < found - every["near_us"])]
    return max(0, int(seen[-1])) if len(seen) else 0


def untold(ends: tuple[PathEnd, ...]) -> Iterator[str]:
    """What its ends say is not told of a path, in words."""
    if not ends:
        return
    slowest, fastest = (least_or_most(end.rate_bps for end in ends) for least_or_most in (min, max))
    if slowest != fastest:
        yield (
            "no queue ever was: what it carries is taken as between"
            f" {slowest / 1e6:.3g} and {fastest / 1e6:.3g} Mbit/s"
        )
        return
    least = min(end.limit_packets for end in ends)
    if least != max(end.limit_packets for end in ends):
        yield (
            f"its queue was never full: its buffer is taken as the longest queue, {least}, and"
            " as more than any window"
        )
    for early, late in zip(ends[0].changes, ends[-1].changes, strict=True):
        begun, ended = early[0] / 1e6, late[0] / 1e6
        if begun != ended:
            yield f"its rate rose between {begun:.1f} and {ended:.1f} s, when nothing used it"
        elif early != late:
            yield (
                f"its outage at {begun:.1f} s lasted between {early[2] / 1e6:.1f} and"
                f" {late[2] / 1e6:.1f} s, as attempts show"
            )
