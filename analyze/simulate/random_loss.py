"""The random loss of a recording: its share, and whether it takes single packets or whole skbs.

A hop of the network loses single packets; netem on the sender's own device loses an skb whole.
"""

from __future__ import annotations

import numpy as np

from .recorded_acks import Array, Columns, longest_rtt_us

# How much of the fullest queue is "hardly a queue".
_SHALLOW = 0.5
# Fewer losses than this at other times are chance; a tenth of the run with most of them is a burst.
LEAST_LOSSES, _TENTHS = 10, 10


def is_lost_in_skbs(every: Columns, base_us: float) -> bool:
    """Whether most packets that were lost without a queue were lost together with others."""
    lost = every["lost"][_is_shallow(every, base_us)]
    lost = lost[lost > 0]
    return len(lost) >= LEAST_LOSSES and bool(2 * np.sum(lost > 1) > len(lost))


def _is_shallow(every: Columns, base_us: float) -> Array:
    """Whether there was hardly a queue; `base_us`: the shortest RTT."""
    limit_us = base_us + _SHALLOW * (longest_rtt_us(every) - base_us)
    shallow: Array = every["near_us"] < limit_us
    return shallow


def random_loss(every: Columns, base_us: float) -> float:
    """Return the share of packets that are lost without a queue."""
    shallow = _is_shallow(every, base_us)
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
