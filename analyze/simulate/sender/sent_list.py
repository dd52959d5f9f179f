"""tp->tsorted_sent_queue: segments in the order of their last transmission, which RACK walks."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..world.places import Sim, flow_of, seg_of


@jit
def append(s: Sim, i: int, index: int) -> None:
    """tcp_tsorted_anchor to the end of tsorted_sent_queue: a segment, away from where it was."""
    remove(s, i, index)
    f, seg = flow_of(s, i), seg_of(s, index)
    seg.has = 1
    seg.following = -1
    seg.previous = f.sent_tail
    if f.sent_tail >= 0:
        last = seg_of(s, f.sent_tail)
        last.following = index
    else:
        f.sent_head = index
    f.sent_tail = index


@jit
def remove(s: Sim, i: int, index: int) -> None:
    """tcp_tsorted_anchor out of tsorted_sent_queue: a segment, if it is there."""
    f, seg = flow_of(s, i), seg_of(s, index)
    if not seg.has:
        return
    seg.has = 0
    if seg.previous >= 0:
        before = seg_of(s, seg.previous)
        before.following = seg.following
    else:
        f.sent_head = seg.following
    if seg.following >= 0:
        after = seg_of(s, seg.following)
        after.previous = seg.previous
    else:
        f.sent_tail = seg.previous
