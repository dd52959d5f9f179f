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


def _with_losses(acks: dict[str, Array]) -> Array:
    """Whether packets were lost while the hole that each ACK belongs to was open."""
    hole = np.cumsum(np.nan_to_num(acks["hole"])).astype(int)
    lost = np.bincount(hole, np.maximum(np.nan_to_num(acks["lost"]), 0.0))
    there: Array = lost[hole] > 0
    return there
