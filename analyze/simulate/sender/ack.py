"""tcp_ack() of net/ipv4/tcp_input.c: what the sender makes of an ACK, in the kernel's order."""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import (
    CA_EVENT_TLP_RECOVERY,
    TCP_CA_CWR,
    TCP_CA_OPEN,
)
from ..world.coming import free_packet
from ..world.places import Sim, event_of, flow_of, packet_of, world_of
from ..world.processor import work_before_sending
from ..world.world_records import (
    APP_SIZE,
    CC_BBR,
    F_ACKED,
    F_DELAYED,
    F_DSACK,
    F_DSACK_TLP,
    F_ECE,
    F_SACKED,
    F_SET_TIMER,
    F_UNA,
    F_WIN,
    REXMIT_NEW,
    REXMIT_NONE,
)
from .estimator import call_cwnd_event, call_main, call_set_state
from .fast_recovery import tcp_fastretrans_alert, tcp_init_cwnd_reduction, tcp_try_keep_open
from .loss_based import (
    loss_based_cong_control,
    loss_based_in_ack_event,
    tcp_end_cwnd_reduction,
)
from .output import refresh_clock, tcp_write_xmit, tcp_xmit_retransmit_queue
from .rack import tcp_rack_update_reo_wnd
from .rate_sample import start_sample, tcp_rate_gen
from .sacktag import highest_sack, tcp_clean_rtx_queue, tcp_sacktag_write_queue
from .timers import tcp_set_xmit_timer
from .write_queue import write_more


@jit
def _process_tlp_ack(s: Sim, i: int, ack: int) -> None:
    """tcp_process_tlp_ack(): did the probe repair a loss?"""
    f, ev = flow_of(s, i), event_of(s, i)
    if ack < f.tlp_high_seq:
        return
    if not f.tlp_retrans or f.flag & F_DSACK_TLP:
        f.tlp_high_seq = -1
    elif ack > f.tlp_high_seq:
        if f.cc == CC_BBR and f.version == 3:
            ev.rs.is_acking_tlp_retrans_seq = 1
            call_cwnd_event(s, i, CA_EVENT_TLP_RECOVERY)
        tcp_init_cwnd_reduction(s, i)
        call_set_state(s, i, TCP_CA_CWR)
        tcp_end_cwnd_reduction(s, i)
        tcp_try_keep_open(s, i)
    elif not f.flag & (F_UNA | F_ACKED | F_WIN | F_SACKED):
        f.tlp_high_seq = -1


@jit
def _start_ack(s: Sim, i: int) -> None:
    """Clear what tcp_ack() knows of one ACK (struct tcp_sacktag_state), and begin a sample."""
    f = flow_of(s, i)
    f.flag = 0
    f.first_ackt = -1
    f.last_ackt = -1
    f.first_sackt = -1
    f.last_sackt = -1
    f.reord = f.nxt
    f.rexmit = REXMIT_NONE
    start_sample(s, i)


@jit
def tcp_ack(s: Sim, k: int) -> None:
    """An ACK arrives: scoreboard, RACK, state, rate sample, BBR, and then what may be sent."""
    packet = packet_of(s, k)
    i = packet.flow
    f, ev, w = flow_of(s, i), event_of(s, i), world_of(s)
    tp = ev.tp
    refresh_clock(s, i)
    _start_ack(s, i)
    ack, prior_una = packet.ack, f.una
    if ack > f.nxt:
        free_packet(s, k)
        return
    prior_delivered, prior_lost, prior_ce = tp.delivered, tp.lost, tp.delivered_ce
    prior_fack = highest_sack(s, i)
    f.max_window = max(f.max_window, (packet.right - ack) * w.mss)
    if packet.right > f.wnd_end:
        f.wnd_end = packet.right
        f.flag |= F_WIN
    f.ack_tsecr = packet.echo
    f.acked_stamp = packet.stamp
    if packet.ece:
        f.flag |= F_ECE
        ev.rs.is_ece = 1
    if ack < prior_una:
        # An old ACK says nothing but what its SACK blocks do.
        ack = prior_una
    had_packets = tp.packets_out > 0
    if packet.blocks and had_packets:
        tcp_sacktag_write_queue(s, i, packet)
    if ack > prior_una:
        f.una = ack
        f.retransmits = 0
    sacked = tp.delivered - prior_delivered
    loss_based_in_ack_event(s, i, prior_ce + (sacked if packet.ece else 0))
    free_packet(s, k)
    if had_packets:
        _after_tagging(s, i, prior_una, prior_fack)
    else:
        return
    delivered = tp.delivered - prior_delivered
    lost = tp.lost - prior_lost
    if packet.ece:
        tp.delivered_ce = prior_ce + delivered
    ev.rs.is_ack_delayed = 1 if f.flag & F_DELAYED else 0
    tcp_rate_gen(s, i, delivered, lost)
    if f.cc == CC_BBR:
        call_main(s, i)
        work_before_sending(s, f.version)
    else:
        loss_based_cong_control(s, i, delivered, lost)
    if f.rexmit != REXMIT_NONE:
        if f.rexmit == REXMIT_NEW:
            tcp_write_xmit(s, i, 0)
        if f.rexmit != REXMIT_NEW or f.nxt <= f.high_seq:
            if f.rexmit == REXMIT_NEW:
                f.frto = 0
            tcp_xmit_retransmit_queue(s, i)
    if f.app == APP_SIZE and f.done_ns == 0 and f.una >= f.app_segments:
        f.done_ns = w.now
    tcp_write_xmit(s, i, 0)
    write_more(s, i)


@jit
def _after_tagging(s: Sim, i: int, prior_una: int, prior_fack: int) -> None:
    """The rest of tcp_ack(), from tcp_clean_rtx_queue() on."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    tcp_clean_rtx_queue(s, i, prior_una, prior_fack)
    tcp_rack_update_reo_wnd(s, i)
    if f.tlp_high_seq >= 0:
        _process_tlp_ack(s, i, f.una)
    dubious = not f.flag & (F_WIN | F_ACKED) or f.flag & (F_SACKED | F_ECE | F_DSACK)
    if dubious or tp.icsk_ca_state != TCP_CA_OPEN:
        tcp_fastretrans_alert(s, i, prior_una)
    if f.flag & F_SET_TIMER:
        tcp_set_xmit_timer(s, i)
