"""The bottleneck's buffer: how long its queue was when packets were dropped.

A packet that is let in as the last of L finds L - 1 before it, and what is left of the one on the
link: its RTT tells of a queue of more than L - 1 and at most L packets. While SACKs are out the
receiver holds ACKs back, for up to 1.1 ms (tcp_comp_sack_delay_ns and tcp_comp_sack_slack_ns) or
until the next packet, so that such RTTs are longer by up to one packet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .random_loss import LEAST_LOSSES
from .recorded_acks import LONGEST, Array, Columns, exact_rtts

# How late an ACK may come by timers and caches alone [us]; what SACKs are held back for at most.
_ON_TIME_US, _HELD_BACK_US = 100, 1120
# Queues from this share of the longest on were full when packets were dropped; of these not the
# longest, which a late ACK makes.
_FULL, _USUAL = 0.9, 0.75


@dataclass(frozen=True)
class RecordedBuffer:
    """The buffer in packets; unless `is_full` it was never full: it has so many, or more."""

    packets: int
    is_full: bool


def recorded_buffer(
    every: Columns,
    packet_us: Array,
    base_us: float,
    together_us: float,
    at_random: float,
    silences: Array,
) -> RecordedBuffer:
    """The buffer from the RTTs and the losses of a run's ACKs.

    Args:
        packet_us: how long the link took for a packet when each ACK came.
        base_us: the RTT without a queue.
        together_us: the time between bursts of ACKs, 0: there are none.
        at_random: the share of packets that are lost anyway.
        silences: places of ACKs after timeouts; what these marked lost says nothing of the buffer.
    """
    lost = np.nan_to_num(every["lost"])
    lost[silences] = 0.0
    without_us = base_us + _held_us(every, packet_us, together_us)
    queue = np.where(exact_rtts(every), (every["rtt_us"] - without_us) / packet_us, np.nan)
    held_back = np.minimum(1.0, _HELD_BACK_US / packet_us)
    on_time = np.minimum(0.5, _ON_TIME_US / packet_us)
    in_order = (every["sacked"] == 0) & (lost == 0)
    least = queue - on_time - np.where(in_order, 0.0, held_back)
    there = np.isfinite(least)
    longest = float(np.quantile(least[there], LONGEST)) if there.any() else 0.0
    peaks, dropped = _before_losses(every, lost, least)
    full = peaks > _FULL * longest
    if full.any():
        longest = float(np.quantile(peaks[full], _USUAL))
    packets = max(1, int(np.ceil(longest)))
    beyond_chance = lost.sum() - at_random * np.nansum(every["acked"])
    is_full = min(beyond_chance, dropped[full].sum()) > LEAST_LOSSES
    return RecordedBuffer(packets, bool(is_full))


def _held_us(every: Columns, packet_us: Array, together_us: float) -> Array:
    """For how long at most each ACK waited for the burst that it came in [us].

    While there is a queue, what the later ones of a burst are for left the link in between, and
    what the next burst begins with was on it.
    """
    acked = np.nan_to_num(every["acked"])
    ends = np.diff(every["t_us"], append=np.inf) > together_us / 2
    got = np.cumsum(acked)
    until = (got + np.append(acked[1:], 0.0))[ends]
    later = until[np.cumsum(ends) - ends] - got
    held: Array = np.minimum(later * packet_us, together_us)
    return held


def _before_losses(every: Columns, lost: Array, queue: Array) -> tuple[Array, Array]:
    """Of each round trip with losses, the longest queue before these, and how many were lost."""
    t, round_us = every["t_us"], np.nan_to_num(every["near_us"])
    peaks: list[float] = []
    dropped: list[float] = []
    ends = -np.inf
    for place in np.flatnonzero(lost > 0):
        if t[place] < ends:
            dropped[-1] += lost[place]
            continue
        before = queue[np.searchsorted(t, t[place] - round_us[place]) : place + 1]
        before = before[np.isfinite(before)]
        if len(before):
            peaks.append(float(before.max()))
            dropped.append(float(lost[place]))
            ends = t[place] + round_us[place]
    return np.array(peaks), np.array(dropped)


def packet_times_us(
    every: Columns, rates: Sequence[tuple[int, str, float]], frame: int, settle_us: float
) -> Array:
    """How long the link took for a packet when each ACK came [us].

    Args:
        rates: changes to so many bit/s on the wire, and when; the first is of the beginning.
        settle_us: for so long before a change samples may tell of the faster rate when the queue
            leaves at the slower one.
    """
    rate = np.full(len(every["t_us"]), rates[0][2])
    for at, _, value in rates[1:]:
        before = every["t_us"] >= at - settle_us
        rate[before] = np.minimum(rate[before], value)
        rate[every["t_us"] >= at] = value
    return frame * 8e6 / rate
