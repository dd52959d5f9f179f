"""How often a recording's packets overtake others, and how often several in a row do.

netem's "reorder 20% 50%" draws from a number that is half the one before (get_crandom() of
net/sched/sch_netem.c): about 3 % of the skbs overtake, and every fourth that follows one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .recorded_acks import Array, recorded_acks

if TYPE_CHECKING:
    import duckdb

# Between an skb that overtakes and the next one that does, one that waited has its turn.
_NEXT = 1.5
# At least this share of the packets that wait meets no queue, and hosts add no more than this to
# their RTTs.
_WAITED, _ON_TIME_US = 0.025, 100


def recorded_reordering(
    con: duckdb.DuckDBPyConnection, run_id: int, flow: int
) -> tuple[float, float]:
    """The share of packets that overtake others, and of the skbs after one that did.

    While no packet is lost what SACKs tell of has overtaken others. Its ACKs come in a row for each
    skb; the skb sent next, if it overtakes, too, comes after about as many packets that waited.
    """
    acks = recorded_acks(con, run_id, [flow], 0)
    acked, sacked = np.nan_to_num(acks["acked"]), np.nan_to_num(acks["sacked"])
    tagged = np.maximum(np.diff(sacked, prepend=0.0), 0.0) * ~_with_losses(acks)
    begins = np.flatnonzero((tagged > 0) & (np.append(0.0, tagged[:-1]) == 0))
    if not len(begins) or acked.sum() <= tagged.sum():
        return 0.0, 0.0
    in_order = np.cumsum(acked - tagged)
    # What came in order since the skb before began, of which SACKs count nothing.
    since = np.diff(in_order[begins])
    same_hole = np.nan_to_num(acks["hole"])[begins[1:]] == 0
    follows = same_hole & (since <= _NEXT * tagged.sum() / len(begins))
    return float(tagged.sum() / acked.sum()), float(follows.sum() / len(begins))


def wait_us(rtts: Array, share: float) -> float:
    """How long packets wait while a `share` of them overtakes these: where their RTTs begin [us].

    Below that place there are RTTs of packets that overtook, with all queues that there were; from
    it on there are suddenly more. It is where the number of RTTs within _ON_TIME_US is least
    likely, as densely as they lie below (the deviance of Poisson's law); and no higher than the
    quantile below which _WAITED of the packets that waited have theirs.
    """
    rtts = np.sort(rtts)
    most = float(np.quantile(rtts, share + _WAITED * (1 - share)))
    begins = rtts[(rtts > rtts[0] + _ON_TIME_US) & (rtts <= most)]
    if not len(begins):
        return most - float(rtts[0])
    before = np.searchsorted(rtts, begins)
    within = np.searchsorted(rtts, begins + _ON_TIME_US) - before
    like_before = before * _ON_TIME_US / (begins - rtts[0])
    deviance = within * np.log(within / like_before) - (within - like_before)
    there = np.where(within > like_before, deviance, 0.0)
    return float(begins[np.argmax(there)] - rtts[0])


def _with_losses(acks: dict[str, Array]) -> Array:
    """Whether packets were lost while the hole that each ACK belongs to was open."""
    hole = np.cumsum(np.nan_to_num(acks["hole"])).astype(int)
    lost = np.bincount(hole, np.maximum(np.nan_to_num(acks["lost"]), 0.0))
    there: Array = lost[hole] > 0
    return there
