"""Sending: net/ipv4/tcp_output.c. What may go now, in skbs of what size, and when the next may."""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.ints import i64
from ...bbr.records import (
    CA_EVENT_TX_START,
    TCP_CA_RECOVERY,
    TCP_ECN_OK,
    TCP_ECN_QUEUE_CWR,
)
from ...bbr.tcp import tcp_packets_in_flight
from ..world.coming import schedule
from ..world.path import enter_path
from ..world.places import Sim, event_of, flow_of, packet_of, params_of, seg_of, world_of
from ..world.world_records import (
    CC_BBR,
    COOKIE,
    EV_PACE,
    EVER_RETRANS,
    LOST,
    NS,
    RETRANS_OUT,
    SACKED,
    TIMER_REO,
    TIMER_RTO,
    TIMER_TLP,
    US,
)
from .estimator import EPOCH_NS, call_cwnd_event
from .loss_based import loss_based_tx_start
from .rate_sample import tcp_rate_skb_sent
from .sent_list import append
from .small_queue import (
    queue_in_host,
    skb_still_in_host_queue,
    tcp_small_queue_check,
    tcp_wfree,
)
from .timers import set_timer, tcp_rearm_rto, tcp_schedule_loss_probe
from .write_queue import in_head_skb, mark_push

_MS = 1_000_000
# tcp_update_skb_after_send(): the first ten segments are not paced.
_UNPACED = 10


@jit
def refresh_clock(s: Sim, i: int) -> None:
    """tcp_mstamp_refresh()."""
    f = flow_of(s, i)
    f.mstamp_ns = world_of(s).now


@jit
def tcp_tso_segs(s: Sim, i: int) -> int:
    """Segments of a burst: tcp_tso_autosize(), or the callback tso_segs of v2 and v3, alike."""
    f, tp, p = flow_of(s, i), event_of(s, i).tp, params_of(s, i)
    size = i64(tp.sk_pacing_rate) >> tp.sk_pacing_shift
    shift = max(f.min_rtt, 0) >> 9 if f.min_rtt >= 0 else 32
    if shift < 32:
        size += p.gso_max_size >> shift
    size = min(size, p.gso_max_size - 1 - p.max_tcp_header)
    least = 2
    if f.cc == CC_BBR and not p.min_tso_segs and i64(tp.sk_pacing_rate) < p.min_tso_rate >> 3:
        least = 1
    return max(size // tp.mss_cache, least)


@jit
def tcp_pacing_check(s: Sim, i: int) -> bool:
    """True if the next packet's time has not come; the pacing timer then wakes the sender."""
    f, tp, w = flow_of(s, i), event_of(s, i).tp, world_of(s)
    due = tp.tcp_wstamp_ns - EPOCH_NS
    if f.cc != CC_BBR or due <= f.mstamp_ns:
        return False
    if f.pace_ns < 0:
        f.pace_ns = due
        schedule(s, max(due, w.now), EV_PACE, i)
    return True


@jit
def _transmit(s: Sim, i: int, first: int, segments: int) -> None:
    """__tcp_transmit_skb(): stamp the skb, send it, and set the time of the next."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tcp_packets_in_flight(tp) == 0:
        call_cwnd_event(s, i, CA_EVENT_TX_START)
        loss_based_tx_start(s, i)
    f.last_sent_ns = f.mstamp_ns
    prior = tp.tcp_wstamp_ns
    now = max(prior, EPOCH_NS + f.mstamp_ns)
    tp.tcp_wstamp_ns = now
    f.data_segs += segments
    f.skb += 1
    bits = world_of(s).bits
    mask = (1 << bits) - 1
    for seq in range(first, first + segments):
        seg = seg_of(s, (i << bits) + (seq & mask))
        seg.skb = f.skb
    if segments > 1:
        # __tcp_transmit_skb() of an skb of several segments; the flag stays with the last of them.
        seg = seg_of(s, (i << bits) + ((first + segments - 1) & mask))
        seg.push = 1
    tcp_rate_skb_sent(s, i, first, segments, now - EPOCH_NS)
    for seq in range(first, first + segments):
        append(s, i, (i << bits) + (seq & mask))
    rate = i64(tp.sk_pacing_rate) if f.cc == CC_BBR else 0
    if rate > 0 and f.data_segs >= _UNPACED:
        size = segments * tp.mss_cache
        size -= 0 if first else tp.mss_cache - COOKIE
        length = size * NS // rate
        length -= min(length // 2, now - prior)
        tp.tcp_wstamp_ns = now + length
    fresh = first >= f.nxt
    cwr = 1 if fresh and tp.ecn_flags & TCP_ECN_QUEUE_CWR else 0
    if cwr:
        tp.ecn_flags &= ~TCP_ECN_QUEUE_CWR
    ect, w = _is_ect(s, i, fresh), world_of(s)
    if w.host_bps:
        queue_in_host(s, i, first, segments, ect, cwr)
    else:
        enter_path(s, i, first, segments, ect, cwr, w.now, f.acked_stamp)


@jit
def _is_ect(s: Sim, i: int, fresh: bool) -> int:
    """tcp_ecn_send(): data are ECT; a retransmission is where the flow's ECN is permanent."""
    flags = event_of(s, i).tp.ecn_flags
    return 1 if flags & TCP_ECN_OK and (fresh or flow_of(s, i).ect_again) else 0


@jit
def _defers(s: Sim, i: int, in_skb: int, max_segs: int) -> int:
    """tcp_tso_should_defer(): 0: it sends; else what it waits for: 1 cwnd, 2 window, 3 data."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tp.icsk_ca_state >= TCP_CA_RECOVERY:
        return 0
    if EPOCH_NS + f.mstamp_ns - tp.tcp_wstamp_ns - _MS > 0:
        return 0
    cong = tp.snd_cwnd - tcp_packets_in_flight(tp)
    room = f.wnd_end - f.nxt
    limit = min(room, cong)
    more = f.written - f.nxt > in_skb
    if limit >= max_segs or (more and limit >= in_skb):
        return 0
    if limit >= min(f.wnd_end - f.una, tp.snd_cwnd) // 3:
        return 0
    if tp.packets_out == 0:
        return 0
    bits = world_of(s).bits
    head = seg_of(s, (i << bits) + (f.una & ((1 << bits) - 1)))
    # Since 295ce1eb36ae (6.18, 6.12.55, 6.1.157): not if the next ACK is a while away.
    srtt_ns = US * tp.srtt_us >> 3
    if head.sent_ns + srtt_ns - f.mstamp_ns > min(srtt_ns >> 1, _MS):
        return 0
    if cong < room:
        return 1 if cong <= in_skb else 3
    return 2 if room <= in_skb else 3


@jit
def tcp_write_xmit(s: Sim, i: int, push_one: int) -> bool:
    """Send new data; with push_one 2, one skb whatever cwnd says. True if nothing was sent."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    refresh_clock(s, i)
    max_segs = tcp_tso_segs(s, i)
    sent, limited = 0, False
    ring = (1 << world_of(s).bits) - 1
    while f.nxt < f.written and f.nxt - f.una < ring:
        if tcp_pacing_check(s, i):
            break
        in_skb = min(in_head_skb(s, i), f.written - f.nxt)
        if f.nxt == 0:
            in_skb = 1
        room = tp.snd_cwnd - tcp_packets_in_flight(tp)
        quota = min(max(tp.snd_cwnd >> 1, 1), room)
        if room <= 0:
            if push_one != 2:
                break
            quota = 1
        if f.grows and f.nxt > 0:  # tcp_grow_skb(), since 6.11
            in_skb = max(in_skb, min(min(quota, max_segs), f.written - f.nxt))
        if f.nxt >= f.wnd_end:
            break
        if in_skb > 1 and push_one == 0:
            why = _defers(s, i, in_skb, max_segs)
            limited = limited or why == 1
            if why:
                break
        # What is not acknowledged must stay in the ring.
        fits = min(f.wnd_end - f.nxt, f.una + ring - f.nxt)
        segments = min(min(in_skb, fits), min(quota, max_segs))
        first = f.nxt
        if world_of(s).host_bps and tcp_small_queue_check(s, i, first, segments, 0):
            break
        mark_push(s, i, first + segments)
        _transmit(s, i, first, segments)
        prior_packets = tp.packets_out
        f.nxt = first + segments
        tp.packets_out += segments
        if prior_packets == 0 or f.timer == TIMER_TLP:
            tcp_rearm_rto(s, i)
        sent += segments
        if push_one:
            break
    limited = limited or tcp_packets_in_flight(tp) >= tp.snd_cwnd
    if sent or limited:
        _tcp_cwnd_validate(s, i, limited)
    if sent:
        if f.cc != CC_BBR and tp.icsk_ca_state >= 2 and tp.icsk_ca_state <= 3:
            f.prr_out += sent
        if push_one != 2:
            tcp_schedule_loss_probe(s, i, False)
        return False
    return tp.packets_out == 0 and f.nxt < f.written


@jit
def _tcp_cwnd_validate(s: Sim, i: int, limited: bool) -> None:
    """How far cwnd is used: is_cwnd_limited and max_packets_out, of the last window."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if (
        f.una >= f.cwnd_usage_seq
        or limited
        or (not tp.is_cwnd_limited and tp.packets_out > tp.max_packets_out)
    ):
        tp.is_cwnd_limited = 1 if limited else 0
        tp.max_packets_out = tp.packets_out
        f.cwnd_usage_seq = f.nxt


@jit
def tcp_retransmit_skb(s: Sim, i: int, first: int, segments: int, counts: bool) -> bool:
    """Send an skb again, and say whether it was: it is not while it waits in the host (-EBUSY).

    A loss probe's (`counts` false) is of __tcp_retransmit_skb(): it does not count as outstanding,
    and no undo waits for it.
    """
    f, tp = flow_of(s, i), event_of(s, i).tp
    bits = world_of(s).bits
    mask = (1 << bits) - 1
    if counts:
        if f.retrans_stamp == 0:
            f.retrans_stamp = f.mstamp_ns
        if f.undo_retrans < 0:
            f.undo_retrans = 0
        f.undo_retrans += segments
    if world_of(s).host_bps and skb_still_in_host_queue(s, i, first):
        return False
    f.retrans_segs += segments
    _transmit(s, i, first, segments)
    for seq in range(first, first + segments):
        seg = seg_of(s, (i << bits) + (seq & mask))
        seg.flags = seg.flags | EVER_RETRANS
        if counts:
            seg.flags = seg.flags | RETRANS_OUT
    if counts:
        tp.retrans_out += segments
    return True


@jit
def tcp_xmit_retransmit_queue(s: Sim, i: int) -> None:
    """Send again what is marked lost, as far as cwnd and pacing allow."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tp.packets_out == 0:
        return
    bits = world_of(s).bits
    base, mask = i << bits, (1 << bits) - 1
    max_segs = tcp_tso_segs(s, i)
    rearm, hole = False, False
    seq = max(f.retrans_hint, f.una)
    while seq < f.nxt:
        if tcp_pacing_check(s, i):
            break
        if not hole:
            f.retrans_hint = seq
        room = tp.snd_cwnd - tcp_packets_in_flight(tp)
        if room <= 0 or tp.retrans_out >= tp.lost_out:
            break
        seg = seg_of(s, base + (seq & mask))
        if not seg.flags & LOST:
            hole = hole or not seg.flags & (RETRANS_OUT | SACKED)
            seq += 1
            continue
        if seg.flags & (SACKED | RETRANS_OUT):
            seq += 1
            continue
        if world_of(s).host_bps and tcp_small_queue_check(
            s, i, seq, _same_skb(s, i, seq, f.nxt - seq), 1
        ):
            break
        segments = _same_skb(s, i, seq, min(room, max_segs))
        if not tcp_retransmit_skb(s, i, seq, segments, True):
            break
        if f.cc != CC_BBR:
            f.prr_out += segments
        if seq == f.una and f.timer != TIMER_REO:
            rearm = True
        seq += segments
    if rearm:
        set_timer(s, i, TIMER_RTO, f.rto_us)


@jit
def _same_skb(s: Sim, i: int, first: int, most: int) -> int:
    """How many segments from `first` on are one skb that is lost, `most` at most."""
    f = flow_of(s, i)
    bits = world_of(s).bits
    base, mask = i << bits, (1 << bits) - 1
    head = seg_of(s, base + (first & mask))
    count = 1
    while count < most and first + count < f.nxt:
        seg = seg_of(s, base + ((first + count) & mask))
        if seg.skb != head.skb or seg.flags != head.flags:
            break
        count += 1
    return count


@jit
def pacing_timer(s: Sim, i: int) -> None:
    """tcp_pace_kick(): the time of the next packet has come."""
    f = flow_of(s, i)
    f.pace_ns = -1
    tcp_tsq_write(s, i)


@jit
def leave_host(s: Sim, k: int) -> None:
    """tcp_tasklet_func(): an skb leaves the host, and what waited for that goes on."""
    i = packet_of(s, k).flow
    if tcp_wfree(s, k):
        tcp_tsq_write(s, i)


@jit
def tcp_tsq_write(s: Sim, i: int) -> None:
    """Send what may go: retransmissions first, then new data."""
    tp = event_of(s, i).tp
    if tp.lost_out > tp.retrans_out and tp.snd_cwnd > tcp_packets_in_flight(tp):
        refresh_clock(s, i)
        tcp_xmit_retransmit_queue(s, i)
    tcp_write_xmit(s, i, 0)


@jit
def tcp_send_loss_probe(s: Sim, i: int) -> None:
    """A tail loss probe: new data if there is any, else the last segment again."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    refresh_clock(s, i)
    if f.tlp_high_seq >= 0 or tp.packets_out == 0:
        tcp_rearm_rto(s, i)
        return
    f.tlp_retrans = 0
    bits = world_of(s).bits
    mask = (1 << bits) - 1
    if f.nxt < f.written and f.nxt < f.wnd_end:
        before = tp.packets_out
        tcp_write_xmit(s, i, 2)
        if tp.packets_out == before:
            tcp_rearm_rto(s, i)
            return
        index = (i << bits) + ((f.nxt - 1) & mask)
    else:
        index = (i << bits) + ((f.nxt - 1) & mask)
        seg = seg_of(s, index)
        if world_of(s).host_bps and skb_still_in_host_queue(s, i, f.nxt - 1):
            tcp_rearm_rto(s, i)
            return
        tp.tlp_orig_data_app_limited = seg.tx_app
        tcp_retransmit_skb(s, i, f.nxt - 1, 1, False)
        f.tlp_retrans = 1
    f.tlp_high_seq = f.nxt
    tcp_rearm_rto(s, i)
