"""A policer in a recording: packets lost where no queue ever was, while its bucket was empty.

Between two moments at which the bucket of a policer is empty no more passes than its rate, and less
where it was full in between: the fastest delivery from loss to loss is the rate. What passes in any
time is at most that and the bucket: what passed beyond the rate, at most, is the bucket's size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .random_loss import LEAST_LOSSES
from .recorded_acks import Array, Columns

# Two packets' time, and what receivers hold back ACKs with SACKs (net.ipv4.tcp_comp_sack_delay_ns),
# are no queue; all but so many RTTs tell.
_QUEUE_PACKETS, _HELD_US, _MOST_RTTS = 2, 1000, 0.95
# Rates are from loss to loss over a second and more, so that a packet more is nothing.
_APART_US, _FAST = 1_000_000, 0.9
# A bucket is empty at a loss if this share of it, or fewer packets, is there.
_EMPTY_SHARE, _EMPTY_PACKETS, _MOST_EMPTY = 0.2, 10, 0.8


@dataclass(frozen=True)
class Policer:
    """Its rate [bit/s on the wire], and its bucket [bytes on the wire]."""

    rate_bps: float
    burst_bytes: float


def recorded_policer(every: Columns, base_us: float, frame: int) -> Policer | None:
    """Return the policer that a recording's losses and deliveries show; None: they show none.

    Args:
        base_us: the shortest RTT.
        frame: bytes of a full segment on the wire.
    """
    acked, t = np.nan_to_num(every["acked"]), every["t_us"]
    losses = np.flatnonzero(np.nan_to_num(every["lost"]) > 0)
    if len(losses) < LEAST_LOSSES:
        return None
    rate = _rate(np.cumsum(acked)[losses], t[losses])
    near = every["near_us"][np.isfinite(every["near_us"])]
    if not rate or np.quantile(near, _MOST_RTTS) > base_us + _HELD_US + _QUEUE_PACKETS / rate:
        return None
    bucket = _bucket(acked, t, rate)
    level = _levels(acked, t, rate, bucket)[losses]
    if np.mean(level < max(_EMPTY_SHARE * bucket, _EMPTY_PACKETS)) < _MOST_EMPTY:
        return None
    return Policer(rate * frame * 8e6, bucket * frame)


def _rate(passed: Array, t: Array) -> float:
    """Packets per us from loss to loss: the rate but for pairs between which it was full."""
    later = np.searchsorted(t, t + _APART_US)
    pairs = np.flatnonzero(later < len(t))
    if not len(pairs):
        return 0.0
    rates = (passed[later[pairs]] - passed[pairs]) / (t[later[pairs]] - t[pairs])
    return float(np.quantile(rates, _FAST))


def _bucket(acked: Array, t: Array, rate: float) -> float:
    """The most packets that passed in any time beyond the rate."""
    after = np.cumsum(acked) - rate * t
    before = after - acked
    return float(np.max(after - np.minimum.accumulate(before)))


def _levels(acked: Array, t: Array, rate: float, bucket: float) -> Array:
    """The bucket after each ACK [packets]: it never has more than all."""
    used = np.cumsum(acked) - rate * t
    level: Array = bucket - (used - np.minimum.accumulate(used - acked))
    return level
