"""Congestion states: tcp_fastretrans_alert() and what it calls, of net/ipv4/tcp_input.c."""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import (
    CA_EVENT_LOSS,
    TCP_CA_CWR,
    TCP_CA_DISORDER,
    TCP_CA_LOSS,
    TCP_CA_OPEN,
    TCP_CA_RECOVERY,
    TCP_ECN_OK,
    TCP_ECN_QUEUE_CWR,
)
from ...bbr.tcp import tcp_packets_in_flight
from ..world.places import Sim, event_of, flow_of, seg_of, world_of
from ..world.timestamps import timestamp_ms
from ..world.world_records import (
    CC_BBR,
    EVER_RETRANS,
    F_ECE,
    F_LOST_RETRANS,
    F_ORIG_SACK,
    F_SACKED,
    F_UNA,
    LOST,
    REXMIT_LOST,
    REXMIT_NEW,
    SACKED,
    TIMER_RTO,
    US,
)
from .estimator import call_cwnd_event, call_set_state, call_ssthresh, call_undo_cwnd
from .loss_based import (
    loss_based_loss,
    loss_based_ssthresh,
    loss_based_timeout,
    loss_based_undo,
    tcp_end_cwnd_reduction,
)
from .output import refresh_clock, tcp_retransmit_skb
from .rack import mark_lost, tcp_identify_packet_loss
from .sacktag import tcp_check_sack_reordering
from .timers import set_timer

_PERSIST = 16
_RTO_MAX_US = 120_000_000


@jit
def tcp_any_retrans_done(s: Sim, i: int) -> bool:
    """Is a retransmission outstanding, or the first segment one?"""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tp.retrans_out:
        return True
    bits = world_of(s).bits
    head = seg_of(s, (i << bits) + (f.una & ((1 << bits) - 1)))
    return f.una < f.nxt and head.flags & EVER_RETRANS != 0


@jit
def _packet_delayed(s: Sim, i: int) -> bool:
    """tcp_packet_delayed(): the ACK echoes a time before the first retransmission.

    Or nothing was sent again yet, since pacing holds it back (e37ab7373696: 6.12, 6.6.55, 6.1.113).
    """
    f = flow_of(s, i)
    if f.retrans_stamp == 0:
        return True
    return f.ack_tsecr >= 0 and timestamp_ms(s, f.ack_tsecr) < timestamp_ms(s, f.retrans_stamp)


@jit
def tcp_may_undo(s: Sim, i: int) -> bool:
    """Was the recovery spurious, by D-SACKs or by timestamps?"""
    f = flow_of(s, i)
    return f.undo_marker >= 0 and (f.undo_retrans == 0 or _packet_delayed(s, i))


@jit
def tcp_undo_cwnd_reduction(s: Sim, i: int, unmark: bool) -> None:
    """Undo the reduction; with `unmark`, also take the lost marks off all segments."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if unmark:
        bits = world_of(s).bits
        for seq in range(f.una, f.nxt):
            seg = seg_of(s, (i << bits) + (seq & ((1 << bits) - 1)))
            seg.flags = seg.flags & ~LOST
        tp.lost_out = 0
        f.retrans_hint = f.nxt
    if f.prior_ssthresh:
        if f.cc == CC_BBR:
            call_undo_cwnd(s, i)
        else:
            loss_based_undo(s, i)
        tp.snd_ssthresh = max(tp.snd_ssthresh, f.prior_ssthresh)
    f.undo_marker = -1
    f.rack_advanced = 1


@jit
def _ssthresh(s: Sim, i: int) -> None:
    """The control's own ssthresh(), icsk_ca_ops->ssthresh."""
    f = flow_of(s, i)
    if f.cc == CC_BBR:
        call_ssthresh(s, i)
    else:
        loss_based_ssthresh(s, i)


@jit
def tcp_init_cwnd_reduction(s: Sim, i: int) -> None:
    """Begin a reduction of cwnd: note where it ends, and ask for ssthresh."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    f.high_seq = f.nxt
    f.tlp_high_seq = -1
    f.snd_cwnd_cnt = 0
    tp.prior_cwnd = tp.snd_cwnd
    f.prr_delivered = 0
    f.prr_out = 0
    _ssthresh(s, i)
    if tp.ecn_flags & TCP_ECN_OK:
        tp.ecn_flags |= TCP_ECN_QUEUE_CWR


@jit
def tcp_current_ssthresh(s: Sim, i: int) -> int:
    """Three quarters of cwnd, unless it has been reduced."""
    tp = event_of(s, i).tp
    if tp.icsk_ca_state == TCP_CA_CWR or tp.icsk_ca_state == TCP_CA_RECOVERY:
        return tp.snd_ssthresh
    return max(tp.snd_ssthresh, (tp.snd_cwnd >> 1) + (tp.snd_cwnd >> 2))


@jit
def _init_undo(s: Sim, i: int) -> None:
    """tcp_init_undo()."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    f.undo_marker = f.una
    f.undo_retrans = tp.retrans_out if tp.retrans_out else -1


@jit
def tcp_enter_recovery(s: Sim, i: int, ece: bool) -> None:
    """Enter Recovery: save what an undo needs, and begin the reduction; tcp_ack() retransmits."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if not tcp_any_retrans_done(s, i):
        f.retrans_stamp = 0  # that of an earlier recovery
    f.prior_ssthresh = 0
    _init_undo(s, i)
    if tp.icsk_ca_state != TCP_CA_CWR and tp.icsk_ca_state != TCP_CA_RECOVERY:
        if not ece:
            f.prior_ssthresh = tcp_current_ssthresh(s, i)
        tcp_init_cwnd_reduction(s, i)
    loss_based_loss(s, i)
    call_set_state(s, i, TCP_CA_RECOVERY)


@jit
def tcp_enter_cwr(s: Sim, i: int) -> None:
    """ECE: reduce without retransmitting."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    f.prior_ssthresh = 0
    if tp.icsk_ca_state < TCP_CA_CWR:
        f.undo_marker = -1
        tcp_init_cwnd_reduction(s, i)
        call_set_state(s, i, TCP_CA_CWR)


@jit
def tcp_try_keep_open(s: Sim, i: int) -> None:
    """Open, or Disorder while something is SACKed, lost or retransmitted."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    left = tp.sacked_out + tp.lost_out > 0 or tcp_any_retrans_done(s, i)
    state = TCP_CA_DISORDER if left else TCP_CA_OPEN
    if tp.icsk_ca_state != state:
        call_set_state(s, i, state)
        f.high_seq = f.nxt


@jit
def _try_to_open(s: Sim, i: int) -> None:
    """tcp_try_to_open()."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if not tcp_any_retrans_done(s, i):
        f.retrans_stamp = 0
    if f.flag & F_ECE:
        tcp_enter_cwr(s, i)
    if tp.icsk_ca_state != TCP_CA_CWR:
        tcp_try_keep_open(s, i)


@jit
def _try_undo_recovery(s: Sim, i: int) -> None:
    """tcp_try_undo_recovery()."""
    f = flow_of(s, i)
    if tcp_may_undo(s, i):
        tcp_undo_cwnd_reduction(s, i, False)
    elif f.rack_persist:
        f.rack_persist -= 1
    call_set_state(s, i, TCP_CA_OPEN)


@jit
def _try_undo_dsack(s: Sim, i: int) -> bool:
    """tcp_try_undo_dsack()."""
    f = flow_of(s, i)
    if f.undo_marker < 0 or f.undo_retrans != 0:
        return False
    f.rack_persist = min(_PERSIST, f.rack_persist + 1)
    tcp_undo_cwnd_reduction(s, i, False)
    return True


@jit
def _try_undo_partial(s: Sim, i: int, prior_una: int) -> bool:
    """tcp_try_undo_partial(): the original came, but retransmissions are out."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if f.undo_marker < 0 or not _packet_delayed(s, i):
        return False
    tcp_check_sack_reordering(s, i, prior_una)
    if tp.retrans_out:
        return True
    if not tcp_any_retrans_done(s, i):
        f.retrans_stamp = 0
    tcp_undo_cwnd_reduction(s, i, True)
    tcp_try_keep_open(s, i)
    return False


@jit
def _try_undo_loss(s: Sim, i: int, frto: bool) -> bool:
    """tcp_try_undo_loss()."""
    f = flow_of(s, i)
    if not frto and not tcp_may_undo(s, i):
        return False
    tcp_undo_cwnd_reduction(s, i, True)
    f.retransmits = 0
    call_set_state(s, i, TCP_CA_OPEN)
    return True


@jit
def _process_loss(s: Sim, i: int) -> None:
    """tcp_process_loss(): F-RTO and the way out of Loss."""
    f = flow_of(s, i)
    recovered = f.una >= f.high_seq
    if f.flag & F_UNA and _try_undo_loss(s, i, False):
        return
    if f.frto:
        if f.flag & F_ORIG_SACK and _try_undo_loss(s, i, True):
            return
        if f.nxt > f.high_seq:
            if f.flag & F_SACKED:
                f.frto = 0
        elif f.flag & F_UNA and not recovered:
            f.high_seq = f.nxt
            if f.nxt < f.written and f.wnd_end > f.nxt:
                f.rexmit = REXMIT_NEW
                return
            f.frto = 0
    if recovered:
        _try_undo_recovery(s, i)
        return
    f.rexmit = REXMIT_LOST


@jit
def _leave_states(s: Sim, i: int) -> None:
    """Step D of tcp_fastretrans_alert(): all up to high_seq is acked, CWR and Recovery are over."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    state = tp.icsk_ca_state
    if state == TCP_CA_CWR and f.una != f.high_seq:
        tcp_end_cwnd_reduction(s, i)
        call_set_state(s, i, TCP_CA_OPEN)
    elif state == TCP_CA_RECOVERY:
        _try_undo_recovery(s, i)
        tcp_end_cwnd_reduction(s, i)


@jit
def tcp_fastretrans_alert(s: Sim, i: int, prior_una: int) -> None:
    """What an ACK that is not plain progress means for the congestion state."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    if f.flag & F_ECE:
        f.prior_ssthresh = 0
    if tp.icsk_ca_state == TCP_CA_OPEN:
        f.retrans_stamp = 0
    elif f.una >= f.high_seq:
        _leave_states(s, i)
    state = tp.icsk_ca_state
    if state == TCP_CA_RECOVERY:
        if f.flag & F_UNA and _try_undo_partial(s, i, prior_una):
            return
        if _try_undo_dsack(s, i):
            _try_to_open(s, i)
        tcp_identify_packet_loss(s, i)
        if tp.icsk_ca_state != TCP_CA_RECOVERY:
            if tp.lost_out == 0:
                return
            tcp_enter_recovery(s, i, False)
        f.rexmit = REXMIT_LOST
        return
    if state == TCP_CA_LOSS:
        _process_loss(s, i)
        tcp_identify_packet_loss(s, i)
        if tp.icsk_ca_state != TCP_CA_OPEN and not f.flag & F_LOST_RETRANS:
            return
    else:
        if state <= TCP_CA_DISORDER:
            _try_undo_dsack(s, i)
        tcp_identify_packet_loss(s, i)
    if tp.lost_out == 0:
        _try_to_open(s, i)
        return
    tcp_enter_recovery(s, i, f.flag & F_ECE != 0)
    f.rexmit = REXMIT_LOST


@jit
def tcp_enter_loss(s: Sim, i: int) -> None:
    """The retransmission timer fired: everything outstanding may be lost."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    new_recovery = tp.icsk_ca_state < TCP_CA_RECOVERY
    _timeout_mark_lost(s, i)
    state = tp.icsk_ca_state
    if (
        state <= TCP_CA_DISORDER
        or f.high_seq <= f.una
        or (state == TCP_CA_LOSS and f.retransmits == 0)
    ):
        f.prior_ssthresh = tcp_current_ssthresh(s, i)
        tp.prior_cwnd = tp.snd_cwnd
        _ssthresh(s, i)
        call_cwnd_event(s, i, CA_EVENT_LOSS)
        loss_based_loss(s, i)
        _init_undo(s, i)
    tp.snd_cwnd = tcp_packets_in_flight(tp) + 1
    f.snd_cwnd_cnt = 0
    call_set_state(s, i, TCP_CA_LOSS)
    loss_based_timeout(s, i)
    f.high_seq = f.nxt
    f.frto = 1 if new_recovery or f.retransmits else 0


@jit
def _timeout_mark_lost(s: Sim, i: int) -> None:
    """tcp_timeout_mark_lost(): the first segment, and all that were sent an RTT ago."""
    f = flow_of(s, i)
    bits = world_of(s).bits
    base, mask = i << bits, (1 << bits) - 1
    seq = f.una
    while seq < f.nxt:
        index = base + (seq & mask)
        head = seg_of(s, index)
        count = 1
        while seq + count < f.nxt:
            other = seg_of(s, base + ((seq + count) & mask))
            if other.skb != head.skb or other.flags != head.flags:
                break
            count += 1
        old = f.rack_rtt - (f.mstamp_ns - head.sent_ns) // US <= 0
        if not head.flags & SACKED and (seq == f.una or old):
            mark_lost(s, i, seq, count)
        seq += count


@jit
def retransmit_timer(s: Sim, i: int) -> None:
    """tcp_retransmit_timer()."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    refresh_clock(s, i)
    if tp.packets_out == 0:
        return
    f.tlp_high_seq = -1
    tcp_enter_loss(s, i)
    f.retransmits += 1
    tcp_retransmit_skb(s, i, f.una, 1, True)
    f.rto_us = min(f.rto_us << 1, _RTO_MAX_US)
    set_timer(s, i, TIMER_RTO, f.rto_us)
