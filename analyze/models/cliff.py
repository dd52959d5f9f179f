"""At which random loss BBRv1's goodput collapses: the cliff of Cao et al. (IMC 2019).

BBRv1 sends gain x BtlBw while it probes. If more than 1 - 1/gain of that is lost, the probe
delivers less than BtlBw: the estimate falls with every filter window, and never rises again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

PROBE_GAIN = 1.25
# tcp_bbr.c bbr_pacing_margin_percent: kernels since 4.20 pace 1 % below the estimate.
PACING_MARGIN = 0.01
# tcp_bbr.c bbr_lt_loss_thresh over BBR_UNIT: packets lost per packet delivered, above which BBRv1
# takes the path for a policed one.
POLICER_LOSS = 50 / 256


def cliff(gain: float = PROBE_GAIN, margin: float = 0.0) -> float:
    """Return the loss rate, packets lost over packets sent, where the probe no longer gains.

    gain x (1 - margin) x (1 - p) = 1; below 0 if the gain is too small to probe at all.

    >>> f"{cliff(1.25):.2f} {cliff(1.25, PACING_MARGIN):.4f}"
    '0.20 0.1919'
    """
    return 1 - 1 / (gain * (1 - margin))


def policer_loss() -> float:
    """Return the loss rate, lost over sent, from which on BBRv1 may see a policer.

    With a gain so high that `cliff` is above it, this comes first.

    >>> f"{policer_loss():.4f}"
    '0.1634'
    """
    return POLICER_LOSS / (1 + POLICER_LOSS)


@dataclass(frozen=True)
class Point:
    """A sweep's point: random loss (share of packets), goodput and retransmissions, run means."""

    loss: float
    goodput: float
    retransmits: float


@dataclass(frozen=True)
class Observed:
    """The cliff that a sweep shows; None: it shows none.

    Attributes:
        last_good: the largest loss before the collapse, share of packets.
        collapsed: the smallest loss with less than half of the goodput one point before.
        most_retransmits: the loss with the most retransmissions; near the cliff if it is one.
    """

    last_good: float | None
    collapsed: float | None
    most_retransmits: float | None


def observed(points: Sequence[Point]) -> Observed:
    """Return where goodput collapses along a sweep of random loss, in any order."""
    rising = sorted(points, key=lambda point: point.loss)
    most = max(rising, key=lambda point: point.retransmits, default=None)
    for before, after in itertools.pairwise(rising):
        if after.goodput < before.goodput / 2:
            return Observed(before.loss, after.loss, most.loss if most else None)
    return Observed(None, None, most.loss if most else None)
