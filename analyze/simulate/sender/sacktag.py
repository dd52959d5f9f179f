"""The SACK scoreboard: tcp_sacktag_write_queue() and tcp_clean_rtx_queue() of tcp_input.c."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..world.places import Sim, event_of, flow_of, seg_of, world_of
from ..world.timestamps import timestamp_ms
from ..world.world_records import (
    EVER_RETRANS,
    F_ACKED,
    F_DELAYED,
    F_DSACK,
    F_DSACK_TLP,
    F_ORIG_SACK,
    F_RETRANS_ACKED,
    F_SACKED,
    F_SET_TIMER,
    F_UNA,
    LOST,
    RETRANS_OUT,
    SACKED,
    Packet,
)
from .rack import tcp_rack_advance
from .rate_sample import at_us, tcp_rate_skb_delivered
from .sent_list import remove
from .timers import tcp_rtt_estimator

_MAX_REORDERING = 300


@jit
def highest_sack(s: Sim, i: int) -> int:
    """tcp_highest_sack_seq(): what follows the highest SACKed segment."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    return min(f.fack, f.nxt) if tp.sacked_out else f.una


@jit
def tcp_check_sack_reordering(s: Sim, i: int, low: int) -> None:
    """Something below what was SACKed arrived late: widen what counts as reordering."""
    f = flow_of(s, i)
    distance = highest_sack(s, i) - low
    if distance <= 0:
        return
    if distance > f.reordering:
        f.reordering = min(distance, _MAX_REORDERING)
    f.reord_seen += 1


@jit
def _tag(s: Sim, i: int, seq: int, dup: bool) -> None:
    """tcp_sacktag_one() for one segment."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    bits = world_of(s).bits
    index = (i << bits) + (seq & ((1 << bits) - 1))
    seg = seg_of(s, index)
    flags = seg.flags
    if dup and flags & EVER_RETRANS:
        if f.undo_marker >= 0 and f.undo_retrans > 0 and seq >= f.undo_marker:
            f.undo_retrans -= 1
        if flags & SACKED:
            f.reord = min(f.reord, seq)
    if not flags & SACKED:
        tcp_rack_advance(s, i, flags, seq, seg.sent_ns)
        if flags & RETRANS_OUT:
            if flags & LOST:
                flags &= ~(LOST | RETRANS_OUT)
                tp.lost_out -= 1
                tp.retrans_out -= 1
        else:
            if not flags & EVER_RETRANS:
                if seq < highest_sack(s, i):
                    f.reord = min(f.reord, seq)
                if seq < f.high_seq:
                    f.flag = f.flag | F_ORIG_SACK
                if f.first_sackt < 0:
                    f.first_sackt = seg.sent_ns
                f.last_sackt = seg.sent_ns
            if flags & LOST:
                flags &= ~LOST
                tp.lost_out -= 1
        flags |= SACKED
        seg.flags = flags
        f.flag = f.flag | F_SACKED
        tcp_rate_skb_delivered(s, i, seq, index)
        remove(s, i, index)
        tp.sacked_out += 1
        tp.delivered += 1
        if tp.sacked_out == 1:
            f.fack = seq + 1
        f.fack = max(f.fack, seq + 1)
    elif dup and flags & RETRANS_OUT:
        seg.flags = flags & ~RETRANS_OUT
        tp.retrans_out -= 1


@jit
def _tag_block(s: Sim, i: int, start: int, end: int) -> None:
    """tcp_sacktag_walk(), but for what recv_sack_cache of the last ACK covers."""
    f = flow_of(s, i)
    start, end = max(start, f.una), min(end, f.nxt)
    if start >= f.cache_s0 and start < f.cache_e0:
        start = f.cache_e0
    elif start >= f.cache_s1 and start < f.cache_e1:
        start = f.cache_e1
    elif start >= f.cache_s2 and start < f.cache_e2:
        start = f.cache_e2
    for seq in range(start, end):
        _tag(s, i, seq, False)


@jit
def _dsack(s: Sim, i: int, start: int, end: int, prior_una: int) -> None:
    """tcp_check_dsack(): the receiver got these twice. What was sent again in vain, arrived."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    tp.delivered += end - start
    f.flag = f.flag | F_DSACK
    if f.tlp_high_seq >= 0 and f.tlp_retrans and end == f.tlp_high_seq:
        f.flag = f.flag | F_DSACK_TLP
    else:
        f.rack_dsack = 1
    if f.undo_retrans > 0 and end <= prior_una and end > f.undo_marker:
        f.undo_retrans = max(0, f.undo_retrans - (end - start))
    for seq in range(max(start, f.una), min(end, f.nxt)):
        _tag(s, i, seq, True)


@jit
def tcp_sacktag_write_queue(s: Sim, i: int, ack: Packet) -> None:
    """Tag what an ACK's blocks say, in the order of sequence as the kernel sorts them."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    blocks = ack.blocks
    if ack.dsack:
        _dsack(s, i, ack.s0, ack.e0, f.una)
        _tag_sorted(s, i, ack.s1, ack.e1, ack.s2, ack.e2, -1, -1)
    elif blocks:
        _tag_sorted(s, i, ack.s0, ack.e0, ack.s1, ack.e1, ack.s2, ack.e2)
    start = 1 if ack.dsack else 0
    f.cache_s0, f.cache_e0 = (ack.s1, ack.e1) if start else (ack.s0, ack.e0)
    f.cache_s1, f.cache_e1 = (ack.s2, ack.e2) if start else (ack.s1, ack.e1)
    f.cache_s2, f.cache_e2 = (-1, -1) if start else (ack.s2, ack.e2)
    if tp.icsk_ca_state != 4 or f.undo_marker >= 0:
        tcp_check_sack_reordering(s, i, f.reord)


@jit
def _tag_sorted(s: Sim, i: int, s0: int, e0: int, s1: int, e1: int, s2: int, e2: int) -> None:
    """The loop of tcp_sacktag_write_queue() over up to three blocks, the lowest first; -1: none."""
    if s1 >= 0 and s0 > s1:
        s0, e0, s1, e1 = s1, e1, s0, e0
    if s2 >= 0 and s1 > s2:
        s1, e1, s2, e2 = s2, e2, s1, e1
    if s1 >= 0 and s0 > s1:
        s0, e0, s1, e1 = s1, e1, s0, e0
    if s0 >= 0:
        _tag_block(s, i, s0, e0)
    if s1 >= 0:
        _tag_block(s, i, s1, e1)
    if s2 >= 0:
        _tag_block(s, i, s2, e2)


@jit
def tcp_clean_rtx_queue(s: Sim, i: int, prior_una: int, prior_fack: int) -> None:
    """Take off the queue what is acked, then take the RTT."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    bits = world_of(s).bits
    base, mask = i << bits, (1 << bits) - 1
    prior_sacked = tp.sacked_out
    reord, acked = f.nxt, 0
    for seq in range(prior_una, f.una):
        index = base + (seq & mask)
        seg = seg_of(s, index)
        flags = seg.flags
        if flags & EVER_RETRANS:
            if flags & RETRANS_OUT:
                tp.retrans_out -= 1
            f.flag = f.flag | F_RETRANS_ACKED
        elif not flags & SACKED:
            f.last_ackt = seg.sent_ns
            if f.first_ackt < 0:
                f.first_ackt = seg.sent_ns
            reord = min(reord, seq)
            if seq < f.high_seq:
                f.flag = f.flag | F_ORIG_SACK
        if flags & SACKED:
            tp.sacked_out -= 1
        else:
            tp.delivered += 1
            tcp_rack_advance(s, i, flags, seq, seg.sent_ns)
        if flags & LOST:
            tp.lost_out -= 1
        tp.packets_out -= 1
        tcp_rate_skb_delivered(s, i, seq, index)
        remove(s, i, index)
        seg.flags = 0
        seg.push = 0
        acked += 1
    if acked:
        f.flag = f.flag | F_ACKED | F_UNA
        f.retrans_hint = max(f.retrans_hint, f.una)
    runt = acked == 1 and prior_una == 0 and not prior_sacked
    _take_rtt(s, i, runt)
    if acked:
        f.flag = f.flag | F_SET_TIMER
        if reord < prior_fack:
            tcp_check_sack_reordering_from(s, i, reord, prior_fack)


@jit
def tcp_check_sack_reordering_from(s: Sim, i: int, low: int, fack: int) -> None:
    """A hole that was never retransmitted is filled: that is reordering."""
    f = flow_of(s, i)
    distance = max(fack, highest_sack(s, i)) - low
    if distance > f.reordering:
        f.reordering = min(distance, _MAX_REORDERING)
    f.reord_seen += 1


@jit
def _take_rtt(s: Sim, i: int, runt: bool) -> None:
    """tcp_ack_update_rtt(): from the segments acked, else from those SACKed."""
    f, ev = flow_of(s, i), event_of(s, i)
    now = at_us(f.mstamp_ns)
    seq_rtt, ca_rtt = -1, -1
    if f.first_ackt >= 0 and not f.flag & F_RETRANS_ACKED:
        seq_rtt = now - at_us(f.first_ackt)
        ca_rtt = now - at_us(f.last_ackt)
        if runt:
            f.flag = f.flag | F_DELAYED
    sack_rtt = -1
    if f.first_sackt >= 0:
        sack_rtt = now - at_us(f.first_sackt)
        ca_rtt = now - at_us(f.last_sackt)
    if seq_rtt < 0:
        seq_rtt = sack_rtt
    if seq_rtt < 0 and f.flag & F_ACKED and f.ack_tsecr >= 0:
        # Timestamps count milliseconds.
        seq_rtt = max(timestamp_ms(s, f.mstamp_ns) - timestamp_ms(s, f.ack_tsecr), 1) * 1000
        ca_rtt = seq_rtt
    ev.rs.rtt_us = ca_rtt
    if seq_rtt < 0:
        return
    if f.min_rtt < 0 or ca_rtt < f.min_rtt:
        f.min_rtt = max(ca_rtt, 1)
    tcp_rtt_estimator(s, i, seq_rtt)
