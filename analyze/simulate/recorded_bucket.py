"""A bottleneck's token bucket: how much passes at once after a pause, seen where queues begin.

What a token bucket filter of rate r and size B has let out up to a time t is the least, over all
times u before it, of what had arrived at u, B, and r (t - u). So the first packets after the link
was idle leave as they come until the bucket is empty; and each later one, while there is a queue,
B / r earlier than a link of that rate alone would have sent it. Packets are sent an RTT before
their ACK comes, so that recordings have both times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .recorded_acks import Array, Columns, exact_rtts
from .recorded_rates import OTHER_RATE
from .world.world_setup import HOST_US

# Packets that make a queue, and after which it has a rate; ACKs of a queue's beginning that tell of
# the bucket, and that are needed.
_QUEUE, _LASTING, _FIRST, _LEAST = 3, 40, 20, 20
# Busy hosts make no queue of packets, nor timers and caches [us].
_BUSY_US, _ON_TIME_US = 1000, 100
# A bucket of two packets is tbf's least, which all paths have; up to three are found for that.
_LEAST_BUCKET = 3.5
# Half of what ACKs tell of a bucket lies within such a share of it, or within two packets.
_SPREAD, _SPREAD_PACKETS = 0.15, 2


@dataclass(frozen=True)
class Bucket:
    """The rate at which it fills [bit/s on the wire], and its size [bytes on the wire]."""

    rate_bps: float
    burst_bytes: float


def recorded_bucket(every: Columns, base_us: float, packet_us: float, frame: int) -> Bucket | None:
    """Return the bucket that one flow's queues show; None: they show none beyond two packets.

    Args:
        every: the flow's ACKs, on a path that nobody else used and whose rate did not change.
        base_us: the RTT without a queue.
        packet_us: about how long the link takes for a packet.
        frame: bytes of a full segment on the wire.
    """
    empty_us = base_us + HOST_US
    about_us, packet_us = packet_us, _draining_us(every, empty_us, packet_us)
    if not about_us / OTHER_RATE < packet_us < about_us * OTHER_RATE:
        return None
    acked, lost = np.nan_to_num(every["acked"]), np.nan_to_num(every["lost"])
    in_order = (every["rtt_us"] > 0) & (every["sacked"] == 0) & (lost == 0)
    queue_us = every["rtt_us"] - empty_us
    sent_us = every["t_us"] - every["rtt_us"]
    got = np.cumsum(acked)
    # When a link without a bucket, idle before, would have begun with this packet; less its place.
    begun = np.where(exact_rtts(every), sent_us - (got - acked) * packet_us, -np.inf)
    latest = np.maximum.accumulate(begun)
    place = np.maximum.accumulate(np.where(begun >= latest, np.arange(len(got)), 0))
    told = in_order & _is_queued(every, empty_us, packet_us)
    told &= queue_us[place] < packet_us + _ON_TIME_US
    count = np.cumsum(told)
    told &= count - count[place] <= _FIRST
    if told.sum() < _LEAST:
        return None
    earlier = ((latest + got * packet_us - sent_us - queue_us) / packet_us)[told]
    low, size, high = np.quantile(earlier, (0.25, 0.5, 0.75))
    if size < _LEAST_BUCKET or high - low > max(_SPREAD * size, _SPREAD_PACKETS):
        return None
    return Bucket(frame * 8e6 / packet_us, float(size) * frame)


def _is_queued(every: Columns, empty_us: float, packet_us: float) -> Array:
    """Which ACKs are of packets that met a queue."""
    queued: Array = every["near_us"] > empty_us + max(_QUEUE * packet_us, _BUSY_US)
    return queued


def _draining_us(every: Columns, empty_us: float, packet_us: float) -> float:
    """How long the link takes for a packet while there is a queue; 0: there is none that lasts.

    Samples of the rate begin a round trip before, perhaps with a full bucket.
    """
    queued = _is_queued(every, empty_us, packet_us)
    edges = np.flatnonzero(np.diff(queued.astype(int), prepend=0, append=0))
    got, t = np.cumsum(np.nan_to_num(every["acked"])), every["t_us"]
    each: list[Array] = []
    for first, end in zip(edges[::2], edges[1::2], strict=True):
        count = got[end - 1] - got[first]
        if count >= _LASTING:
            each.append(np.array([(t[end - 1] - t[first]) / count, count]))
    if not each:
        return 0.0
    times, counts = np.array(sorted(map(tuple, each))).T
    return float(times[np.searchsorted(np.cumsum(counts), counts.sum() / 2)])
