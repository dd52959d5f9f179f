"""RACK: net/ipv4/tcp_recovery.c. Lost is what was sent a reordering window before what arrived."""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import TCP_CA_RECOVERY
from ..world.places import Sim, event_of, flow_of, seg_of, world_of
from ..world.world_records import (
    EVER_RETRANS,
    F_LOST_RETRANS,
    F_SET_TIMER,
    LOST,
    RETRANS_OUT,
    SACKED,
    TIMER_REO,
    US,
)
from .estimator import call_marked_lost
from .rate_sample import tcp_skb_sent_after
from .sent_list import remove
from .timers import jiffies_us, set_timer

_RECOVERY_THRESH = 16


@jit
def tcp_rack_advance(s: Sim, i: int, flags: int, seq: int, sent_ns: int) -> None:
    """Remember the segment sent last of those delivered; it was retransmitted if `flags` say so."""
    f = flow_of(s, i)
    rtt_us = (f.mstamp_ns - sent_ns) // US
    if f.min_rtt >= 0 and rtt_us < f.min_rtt and flags & EVER_RETRANS:
        return  # the original was acked, not the retransmission
    f.rack_advanced = 1
    f.rack_rtt = rtt_us
    if tcp_skb_sent_after(sent_ns, f.rack_mstamp, seq + 1, f.rack_end):
        f.rack_mstamp = sent_ns
        f.rack_end = seq + 1


@jit
def tcp_rack_reo_wnd(s: Sim, i: int) -> int:
    """The reordering window in us."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if not f.reord_seen and (tp.icsk_ca_state >= TCP_CA_RECOVERY or tp.sacked_out >= f.reordering):
        return 0
    return min((max(f.min_rtt, 0) >> 2) * f.rack_steps, tp.srtt_us >> 3)


@jit
def mark_lost(s: Sim, i: int, seq: int, segments: int) -> None:
    """tcp_mark_skb_lost() of an skb: lost for the first time, or its retransmission is."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    bits = world_of(s).bits
    base, mask = i << bits, (1 << bits) - 1
    head = seg_of(s, base + (seq & mask))
    if head.flags & SACKED or (head.flags & LOST and not head.flags & RETRANS_OUT):
        return
    again = head.flags & LOST
    for k in range(seq, seq + segments):
        seg = seg_of(s, base + (k & mask))
        if again:
            seg.flags = seg.flags & ~RETRANS_OUT
        else:
            seg.flags = seg.flags | LOST
    if again:
        tp.retrans_out -= segments
    else:
        tp.lost_out += segments
    f.retrans_hint = min(f.retrans_hint, seq)
    tp.lost += segments
    call_marked_lost(s, i, seq, segments)


@jit
def tcp_rack_detect_loss(s: Sim, i: int) -> int:
    """Mark what is lost by now; returns for how long [us] others may still be waited for."""
    f = flow_of(s, i)
    bits = world_of(s).bits
    mask = (1 << bits) - 1
    reo_wnd = tcp_rack_reo_wnd(s, i)
    timeout = 0
    index = f.sent_head
    while index >= 0:
        seg = seg_of(s, index)
        if seg.flags & LOST and not seg.flags & RETRANS_OUT:
            index = seg.following  # a timeout marked it, and it was not sent again
            continue
        seq = _sequence(f.una, index, mask)
        if not tcp_skb_sent_after(f.rack_mstamp, seg.sent_ns, f.rack_end, seq + 1):
            break
        following = seg.following
        remaining = f.rack_rtt + reo_wnd - (f.mstamp_ns - seg.sent_ns) // US
        if remaining > 0:
            timeout = max(timeout, remaining)
            index = following
            continue
        skb, segments = seg.skb, 1
        remove(s, i, index)
        while following >= 0:  # the rest of the same skb
            other = seg_of(s, following)
            if other.skb != skb or _sequence(f.una, following, mask) != seq + segments:
                break
            index, following = following, other.following
            remove(s, i, index)
            segments += 1
        mark_lost(s, i, seq, segments)
        index = following
    return timeout


@jit
def _sequence(una: int, index: int, mask: int) -> int:
    """The sequence number of the segment at an index of the ring."""
    return una + ((index - una) & mask)


@jit
def tcp_rack_mark_lost(s: Sim, i: int) -> bool:
    """Mark what is lost if RACK advanced; True if the timer was set for the rest."""
    f = flow_of(s, i)
    if not f.rack_advanced:
        return False
    f.rack_advanced = 0
    timeout = tcp_rack_detect_loss(s, i)
    if timeout:
        set_timer(s, i, TIMER_REO, timeout + jiffies_us(2, f.hz))
    return timeout > 0


@jit
def tcp_identify_packet_loss(s: Sim, i: int) -> None:
    """Ask RACK, unless nothing is outstanding."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tp.packets_out == 0:
        return
    before = tp.retrans_out
    if tcp_rack_mark_lost(s, i):
        f.flag = f.flag & ~F_SET_TIMER
    if before > tp.retrans_out:
        f.flag = f.flag | F_LOST_RETRANS


@jit
def tcp_rack_update_reo_wnd(s: Sim, i: int) -> None:
    """A D-SACK widens the window, at most once a round; 16 recoveries without one narrow it."""
    f, ev = flow_of(s, i), event_of(s, i)
    if ev.rs.prior_delivered == 0:
        return
    if ev.rs.prior_delivered < f.rack_delivered:
        f.rack_dsack = 0
    if f.rack_dsack:
        f.rack_steps = min(0xFF, f.rack_steps + 1)
        f.rack_dsack = 0
        f.rack_delivered = ev.tp.delivered
        f.rack_persist = _RECOVERY_THRESH
    elif f.rack_persist == 0:
        f.rack_steps = 1
