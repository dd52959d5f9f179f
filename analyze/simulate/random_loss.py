"""The random loss of a recording: its share, and whether it takes single packets or whole skbs.

A hop of the network loses single packets; netem on the sender's own device loses an skb whole.
"""

from __future__ import annotations

import numpy as np

from .recorded_acks import LONGEST, Array, Columns, exact_rtts

# How much of the fullest queue is "hardly a queue".
_SHALLOW = 0.5
# Fewer losses than this at other times are chance; a tenth of the run with most of them is a burst.
LEAST_LOSSES, _TENTHS = 10, 10
_BEYOND_CHANCE = 4
_PAIR = 2  # segments of an skb (tcp_tso_autosize()), up to 20 Mbit/s and somewhat more


def is_lost_in_skbs(every: Columns, base_us: float, packet_us: Array | float = 1.0) -> bool:
    """Whether most packets that were lost without a queue were lost together with others."""
    lost = every["lost"][_is_shallow(every, base_us, packet_us)]
    lost = lost[lost > 0]
    return len(lost) >= LEAST_LOSSES and bool(2 * np.sum(lost > 1) > len(lost))


def is_in_whole_skbs(every: Columns) -> bool:
    """Whether skbs come to the receiver in one piece, as with GSO on a path of virtual devices.

    What comes first beyond a hole is acknowledged at once (tcp_sack_new_ofo_skb()): if its SACK is
    for two segments, they came as one. Two are an skb's at rates of which more fill no bucket.
    """
    first = every["sacked"][every["hole"] == 1]
    return len(first) >= LEAST_LOSSES and bool(2 * np.sum(first == _PAIR) > len(first))


def _is_shallow(every: Columns, base_us: float, packet_us: Array | float) -> Array:
    """Whether there was hardly a queue, in packets: a buffer's time changes with the link's rate.

    `base_us`: the shortest RTT; `packet_us`: the link's time for a packet at each ACK, or at all.
    """
    exact = exact_rtts(every)
    queue = (every["rtt_us"] - base_us) / packet_us
    shallow: Array = every["near_us"] - base_us < packet_us * (
        _SHALLOW * float(np.quantile(queue[exact], LONGEST))
    )
    return shallow


def is_uneven(every: Columns, base_us: float, packet_us: Array | float = 1.0) -> bool:
    """Whether losses without a queue come in bursts, or at some times only.

    Chance alone gives each share of what passed a number of them that varies as its mean.
    """
    shallow = _is_shallow(every, base_us, packet_us)
    passed = np.cumsum(np.where(shallow, np.nan_to_num(every["acked"]), 0.0))
    places = passed[shallow & (np.nan_to_num(every["lost"]) > 0)]
    if len(places) < 2 * LEAST_LOSSES:
        return False
    shares = len(places) // 2
    counts = np.histogram(places, shares, (0.0, float(passed[-1])))[0]
    # Of a Poisson's index of dispersion, by chi-square: so many standard deviations beyond 1.
    return bool(counts.var() / counts.mean() > 1 + _BEYOND_CHANCE * (2 / shares) ** 0.5)


def random_loss(every: Columns, base_us: float, packet_us: Array | float = 1.0) -> float:
    """Return the share of packets that are lost without a queue; arguments as of `_is_shallow`."""
    shallow = _is_shallow(every, base_us, packet_us)
    lost = np.where(shallow, np.nan_to_num(every["lost"]), 0.0)
    passed = np.where(shallow, np.nan_to_num(every["acked"]), 0.0)
    tenths = np.array_split(np.arange(len(lost)), _TENTHS)
    each = np.array([lost[tenth].sum() for tenth in tenths])
    if 2 * each.max() > each.sum():
        kept = np.ones(len(lost), bool)
        kept[tenths[int(each.argmax())]] = False
        lost, passed = lost * kept, passed * kept
    if np.sum(lost > 0) < LEAST_LOSSES:
        return 0.0
    return float(lost.sum() / (lost.sum() + passed.sum()))
