"""Delivery rate samples: net/ipv4/tcp_rate.c, with what the v2 and v3 patches add."""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.tcp import tcp_packets_in_flight
from ..world.places import Sim, event_of, flow_of, seg_of, world_of
from ..world.world_records import EVER_RETRANS, SACKED, US
from .estimator import EPOCH_NS

_TRUESIZE_OF_1 = 577  # SKB_TRUESIZE(1): with struct sk_buff (256) and skb_shared_info (320)


@jit
def at_us(ns: int) -> int:
    """tcp_mstamp, the kernel's clock [us], at a time of the world."""
    return (EPOCH_NS + ns) // US


@jit
def tcp_skb_sent_after(t1: int, t2: int, seq1: int, seq2: int) -> bool:
    """Was the first sent after the second? Of one time, the later sequence was."""
    return t1 > t2 or (t1 == t2 and seq1 > seq2)


@jit
def tcp_rate_skb_sent(s: Sim, i: int, first: int, segments: int, sent_ns: int) -> None:
    """Note the delivery state at the transmission of an skb in each of its segments."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    bits = world_of(s).bits
    mask = (1 << bits) - 1
    base = i << bits
    if tp.packets_out == 0:
        f.first_tx = at_us(sent_ns)
        tp.delivered_mstamp = f.first_tx
    in_flight = tcp_packets_in_flight(tp) + segments
    for seq in range(first, first + segments):
        seg = seg_of(s, base + (seq & mask))
        seg.tx_first = f.first_tx
        seg.tx_mstamp = tp.delivered_mstamp
        seg.tx_delivered = tp.delivered
        seg.tx_ce = tp.delivered_ce
        seg.tx_app = 1 if tp.app_limited else 0
        seg.tx_in_flight = in_flight
        seg.tx_lost = tp.lost
        seg.sent_ns = sent_ns


@jit
def tcp_rate_skb_delivered(s: Sim, i: int, seq: int, index: int) -> None:
    """Take the sample from the segment if it was sent last of those that this ACK delivers."""
    f, ev, seg = flow_of(s, i), event_of(s, i), seg_of(s, index)
    rs = ev.rs
    if seg.tx_mstamp == 0:
        return
    sent_us = at_us(seg.sent_ns)
    if rs.prior_delivered == 0 or tcp_skb_sent_after(sent_us, f.first_tx, seq + 1, f.rs_last_end):
        rs.prior_delivered = seg.tx_delivered
        f.rs_prior_ce = seg.tx_ce
        f.rs_prior_lost = seg.tx_lost
        f.rs_prior_mstamp = seg.tx_mstamp
        rs.is_app_limited = seg.tx_app
        rs.tx_in_flight = seg.tx_in_flight
        f.rs_is_retrans = 1 if seg.flags & EVER_RETRANS else 0
        f.rs_last_end = seq + 1
        f.first_tx = sent_us
        rs.interval_us = max(sent_us - seg.tx_first, 0)
    if seg.flags & SACKED:
        seg.tx_mstamp = 0  # its information is used up


@jit
def start_sample(s: Sim, i: int) -> None:
    """An empty struct rate_sample, as tcp_ack() begins with."""
    f, ev = flow_of(s, i), event_of(s, i)
    rs = ev.rs
    rs.prior_delivered = 0
    rs.delivered = 0
    rs.interval_us = 0
    rs.rtt_us = -1
    rs.losses = 0
    rs.acked_sacked = 0
    rs.is_app_limited = 0
    rs.is_ack_delayed = 0
    rs.tx_in_flight = 0
    rs.lost = 0
    rs.delivered_ce = 0
    rs.is_ece = 0
    rs.is_acking_tlp_retrans_seq = 0
    rs.sample_bw = 0
    rs.prior_in_flight = tcp_packets_in_flight(ev.tp)
    f.rs_prior_mstamp = 0
    f.rs_prior_lost = 0
    f.rs_prior_ce = 0
    f.rs_is_retrans = 0
    f.rs_last_end = 0
    f.rs_snd_us = 0
    f.rs_rcv_us = 0


@jit
def tcp_rate_gen(s: Sim, i: int, delivered: int, lost: int) -> None:
    """Finish the sample: delivered and lost over the longer of its two intervals."""
    f, ev = flow_of(s, i), event_of(s, i)
    tp, rs = ev.tp, ev.rs
    if tp.app_limited and tp.delivered > tp.app_limited:
        tp.app_limited = 0
    now_us = at_us(f.mstamp_ns)
    if delivered:
        tp.delivered_mstamp = now_us
    rs.acked_sacked = delivered
    rs.losses = lost
    if f.rs_prior_mstamp == 0:
        rs.delivered = -1
        rs.interval_us = -1
        return
    rs.delivered = tp.delivered - rs.prior_delivered
    rs.lost = tp.lost - f.rs_prior_lost
    rs.delivered_ce = tp.delivered_ce - f.rs_prior_ce
    f.rs_snd_us = rs.interval_us
    f.rs_rcv_us = max(now_us - f.rs_prior_mstamp, 0)
    rs.interval_us = max(f.rs_snd_us, f.rs_rcv_us)
    if f.min_rtt >= 0 and rs.interval_us < f.min_rtt:
        rs.interval_us = -1


@jit
def tcp_rate_check_app_limited(s: Sim, i: int) -> None:
    """At a write: was there nothing left to send, and room to send it, and no skb in the host?"""
    f, tp = flow_of(s, i), event_of(s, i).tp
    in_flight = tcp_packets_in_flight(tp)
    if (
        f.written - f.nxt < 1
        and f.wmem < _TRUESIZE_OF_1
        and in_flight < tp.snd_cwnd
        and tp.lost_out <= tp.retrans_out
    ):
        limited = tp.delivered + in_flight
        tp.app_limited = limited if limited else 1
