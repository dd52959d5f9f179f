"""BBRv3, net/ipv4/tcp_bbr.c of google/bbr v3: callbacks in the order the kernel runs them."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .aggregation import bbr_update_ack_aggregation
from .common import (
    bbr_calculate_bw_sample,
    bbr_check_drain,
    bbr_restart_from_idle,
    bbr_take_max_bw_sample,
    bbr_update_gains,
    bbr_update_round_start,
    count_rounds_since_probe,
)
from .cwnd import bbr_bound_cwnd_for_inflight_model, bbr_set_cwnd
from .ecn import bbr3_update_ecn_alpha, bbr_can_use_ecn, dctcp_ece_ack_update
from .fast_path import DONE, FULL_MODEL, bbr_run_fast_path
from .full_pipe import bbr3_check_full_bw_reached, bbr_check_loss_too_high_in_startup
from .ints import before, u32
from .log import note
from .lower_bounds import bbr_adapt_lower_bounds, start_inflight_lo_upon_rto
from .model import bbr_bw
from .pacing import bbr_set_pacing_rate
from .params import Params
from .phases import (
    bbr_reset_full_bw,
)
from .plb import tcp_plb_check_rehash, tcp_plb_update_state, tcp_plb_update_state_upon_rto
from .probe_bw import bbr_update_cycle_phase
from .probe_rtt import bbr_update_min_rtt
from .records import (
    CA_EVENT_ECN_IS_CE,
    CA_EVENT_ECN_NO_CE,
    CA_EVENT_TLP_RECOVERY,
    CA_EVENT_TX_START,
    CWND_EVENT,
    MAIN,
    SET_STATE,
    SKB_MARKED_LOST,
    SSTHRESH,
    TCP_CA_LOSS,
    UNDO_CWND,
    Bbr,
    Event,
    Log,
    RateSample,
    Socket,
)
from .recovery import bbr_ssthresh, bbr_undo_bounds, restore_cwnd, tcp_undo_cwnd_reduction
from .upper_bounds import (
    FROM_TLP,
    bbr_handle_inflight_too_high,
    bbr_is_inflight_too_high,
    bbr_note_loss,
    bbr_skb_marked_lost,
    loss_limit,
)


# tcp_bbr.c (v3) bbr_update_latest_delivery_signals(): before the fast path, unlike v2
@jit
def bbr_update_latest_delivery_signals(bbr: Bbr, tp: Socket, rs: RateSample, log: Log) -> None:
    bbr.loss_round_start = 0
    if rs.interval_us <= 0 or not rs.acked_sacked:
        return
    bbr.bw_latest = max(bbr.bw_latest, rs.sample_bw)
    bbr.inflight_latest = max(bbr.inflight_latest, u32(rs.delivered))
    if not before(rs.prior_delivered, bbr.loss_round_delivered):
        bbr.loss_round_delivered = tp.delivered
        bbr.loss_round_start = 1
        note(log, codes.LOSSROUND_START, tp.delivered, bbr.loss_in_round)


# tcp_bbr.c (v3) bbr_advance_latest_delivery_signals(): at the very end, and not on a TLP's ACK
@jit
def bbr_advance_latest_delivery_signals(bbr: Bbr, rs: RateSample) -> None:
    if bbr.loss_round_start and not rs.is_acking_tlp_retrans_seq:
        bbr.bw_latest = rs.sample_bw
        bbr.inflight_latest = u32(rs.delivered)


# tcp_bbr.c (v3) bbr_update_congestion_signals()
@jit
def bbr_update_congestion_signals(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> None:
    if rs.interval_us <= 0 or not rs.acked_sacked:
        return
    bbr_take_max_bw_sample(bbr, rs, p, log)
    bbr.loss_in_round |= 1 if rs.losses > 0 else 0
    if not bbr.loss_round_start:
        return
    bbr_adapt_lower_bounds(bbr, tp, p, log)
    bbr.loss_in_round = 0
    bbr.ecn_in_round = 0


# tcp_bbr.c (v3) bbr_update_model()
@jit
def bbr_update_model(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    bbr_update_congestion_signals(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    bbr_check_loss_too_high_in_startup(bbr, tp, rs, p, log)
    bbr3_check_full_bw_reached(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)


# tcp_bbr.c (v3) bbr_main()
@jit
def bbr_main(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    bbr_update_round_start(bbr, tp, rs)
    ce_ratio = -1
    if bbr.round_start:
        count_rounds_since_probe(bbr)
        ce_ratio = bbr3_update_ecn_alpha(bbr, tp, p, log)
        tcp_plb_update_state(bbr, ce_ratio, p, log)
    tcp_plb_check_rehash(bbr, tp, p, log)
    if bbr.ecn_eligible and rs.is_ece:
        bbr.ecn_in_round = 1
    bbr_calculate_bw_sample(bbr, rs)
    bbr_update_latest_delivery_signals(bbr, tp, rs, log)

    path = bbr_run_fast_path(bbr, tp, rs, p, log)
    if path == FULL_MODEL:
        bbr_update_model(bbr, tp, rs, p, log)
    if path != DONE:
        bbr_update_gains(bbr, p)
        bw = bbr_bw(bbr, p)
        bbr_set_pacing_rate(bbr, tp, bw, bbr.pacing_gain, p, log)
        bbr_set_cwnd(bbr, tp, rs, bw, bbr.cwnd_gain, p, log)
        bbr_bound_cwnd_for_inflight_model(bbr, tp, p, log)

    bbr_advance_latest_delivery_signals(bbr, rs)
    bbr.prev_ca_state = tp.icsk_ca_state
    bbr.loss_in_cycle |= 1 if rs.lost > 0 else 0
    bbr.ecn_in_cycle |= 1 if rs.delivered_ce > 0 else 0


# tcp_bbr.c (v3) bbr_run_loss_probe_recovery()
@jit
def bbr_run_loss_probe_recovery(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """A tail loss probe repaired a loss that was never marked."""
    bbr_note_loss(bbr, tp, log)
    if not bbr.bw_probe_samples:
        note(log, codes.HI_KEEP_SKB_NOT_PROBE, bbr.inflight_hi)
        return
    # The kernel builds this rate sample on its stack.
    rs.lost = 1
    rs.tx_in_flight = u32(bbr.inflight_latest + rs.lost)
    rs.is_app_limited = tp.tlp_orig_data_app_limited
    cause = bbr_is_inflight_too_high(bbr, rs, p)
    sent = rs.tx_in_flight
    if cause:
        bbr_handle_inflight_too_high(bbr, tp, rs, sent, cause, FROM_TLP, p, log)
    else:
        note(log, codes.LOSS_RIDES_PROBE, rs.lost, sent, loss_limit(sent, p))


# tcp_bbr.c (v3) bbr_cwnd_event()
@jit
def bbr_cwnd_event(bbr: Bbr, tp: Socket, rs: RateSample, event: int, p: Params, log: Log) -> None:
    if event == CA_EVENT_TX_START:
        bbr_restart_from_idle(bbr, tp, p, log)
    elif event in (CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE):
        if bbr_can_use_ecn(tp) and p.precise_ece_ack:
            dctcp_ece_ack_update(bbr, tp, event)
    elif event == CA_EVENT_TLP_RECOVERY and p.loss_probe_recovery:
        bbr_run_loss_probe_recovery(bbr, tp, rs, p, log)


# tcp_bbr.c (v3) bbr_undo_cwnd()
@jit
def bbr_undo_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    note(log, codes.FULLBW_RESET_UNDO, bbr.full_bw)
    bbr_reset_full_bw(bbr)
    bbr.loss_in_round = 0
    bbr_undo_bounds(bbr, log)
    bbr.try_fast_path = 0
    tcp_undo_cwnd_reduction(tp, bbr.prior_cwnd, log)


# tcp_bbr.c (v3) bbr_set_state()
@jit
def bbr_set_state(bbr: Bbr, tp: Socket, new_state: int, p: Params, log: Log) -> None:
    if new_state == TCP_CA_LOSS:
        bbr.prev_ca_state = TCP_CA_LOSS
        tcp_plb_update_state_upon_rto(bbr, tp, p, log)
        note(log, codes.FULLBW_RESET_RTO, bbr.full_bw)
        bbr_reset_full_bw(bbr)
        start_inflight_lo_upon_rto(bbr, tp, log)
    elif bbr.prev_ca_state == TCP_CA_LOSS:
        restore_cwnd(bbr, tp, log)
        bbr.try_fast_path = 0
    else:
        note(log, codes.CWND_KEEP_RECOVERY, tp.icsk_ca_state, new_state, tp.snd_cwnd)


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """Run the callback that the event records."""
    kind, tp, rs = ev.ctl.kind, ev.tp, ev.rs
    if kind == MAIN:
        bbr_main(bbr, tp, rs, p, log)
    elif kind == SET_STATE:
        bbr_set_state(bbr, tp, ev.ctl.arg, p, log)
    elif kind == CWND_EVENT:
        bbr_cwnd_event(bbr, tp, rs, ev.ctl.arg, p, log)
    elif kind == SSTHRESH:
        bbr_ssthresh(bbr, tp, p, log)
    elif kind == UNDO_CWND:
        bbr_undo_cwnd(bbr, tp, log)
    elif kind == SKB_MARKED_LOST:
        bbr_skb_marked_lost(bbr, tp, rs, ev.skb, p, log)
