"""BBRv2, net/ipv4/tcp_bbr2.c of google/bbr v2alpha: callbacks in the order the kernel runs them."""

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
from .ecn import bbr2_update_ecn_alpha, dctcp_ece_ack_update
from .fast_path import DONE, FULL_MODEL, bbr_run_fast_path
from .full_pipe import bbr_check_full_bw_reached, bbr_check_loss_too_high_in_startup
from .ints import before, u32
from .log import note
from .lower_bounds import bbr_adapt_lower_bounds, start_inflight_lo_upon_rto
from .model import bbr_bw
from .pacing import bbr_set_pacing_rate
from .params import Params
from .phases import (
    EVENT_NONE,
)
from .probe_bw import bbr_update_cycle_phase
from .probe_rtt import bbr_update_min_rtt
from .records import (
    CA_EVENT_ECN_IS_CE,
    CA_EVENT_ECN_NO_CE,
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
from .upper_bounds import bbr_skb_marked_lost


# tcp_bbr2.c bbr2_update_congestion_signals()
@jit
def bbr2_update_congestion_signals(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> None:
    bbr.loss_round_start = 0
    if rs.interval_us <= 0 or not rs.acked_sacked:
        return
    bbr_take_max_bw_sample(bbr, rs, p, log)
    bbr.loss_in_round |= 1 if rs.losses > 0 else 0
    bbr.bw_latest = max(bbr.bw_latest, rs.sample_bw)
    bbr.inflight_latest = max(bbr.inflight_latest, u32(rs.delivered))
    if before(rs.prior_delivered, bbr.loss_round_delivered):
        return
    bbr.loss_round_delivered = tp.delivered
    bbr.loss_round_start = 1
    note(log, codes.LOSSROUND_START, tp.delivered, bbr.loss_in_round)
    bbr_adapt_lower_bounds(bbr, tp, p, log)
    bbr.loss_in_round = 0
    bbr.ecn_in_round = 0
    bbr.bw_latest = rs.sample_bw
    bbr.inflight_latest = u32(rs.delivered)


# tcp_bbr2.c bbr2_update_model()
@jit
def bbr2_update_model(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    bbr2_update_congestion_signals(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    bbr_check_loss_too_high_in_startup(bbr, tp, rs, p, log)
    bbr_check_full_bw_reached(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)


# tcp_bbr2.c bbr2_main()
@jit
def bbr2_main(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    bbr.debug_event = EVENT_NONE
    bbr_update_round_start(bbr, tp, rs)
    if bbr.round_start:
        count_rounds_since_probe(bbr)
        bbr2_update_ecn_alpha(bbr, tp, p, log)
    bbr.ecn_in_round |= rs.is_ece
    bbr_calculate_bw_sample(bbr, rs)

    path = bbr_run_fast_path(bbr, tp, rs, p, log)
    if path == FULL_MODEL:
        bbr2_update_model(bbr, tp, rs, p, log)
    if path != DONE:
        bbr_update_gains(bbr, p)
        bw = bbr_bw(bbr, p)
        bbr_set_pacing_rate(bbr, tp, bw, bbr.pacing_gain, p, log)
        bbr_set_cwnd(bbr, tp, rs, bw, bbr.cwnd_gain, p, log)
        bbr_bound_cwnd_for_inflight_model(bbr, tp, p, log)

    bbr.prev_ca_state = tp.icsk_ca_state
    bbr.loss_in_cycle |= 1 if rs.lost > 0 else 0
    bbr.ecn_in_cycle |= 1 if rs.delivered_ce > 0 else 0


# tcp_bbr.c bbr_cwnd_event(), as in tcp_bbr2.c
@jit
def bbr_cwnd_event(bbr: Bbr, tp: Socket, event: int, p: Params, log: Log) -> None:
    if event == CA_EVENT_TX_START:
        bbr_restart_from_idle(bbr, tp, p, log)
    elif event in (CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE):
        wanted = p.ecn_enable and p.precise_ece_ack
        if wanted:
            dctcp_ece_ack_update(bbr, tp, event)


# tcp_bbr2.c bbr2_undo_cwnd()
@jit
def bbr2_undo_cwnd(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    note(log, codes.FULLBW_RESET_UNDO, bbr.full_bw)
    bbr.full_bw = 0
    bbr.full_bw_cnt = 0
    bbr.loss_in_round = 0
    returned = tp.snd_cwnd
    if p.undo:
        bbr_undo_bounds(bbr, log)
        returned = bbr.prior_cwnd
    tcp_undo_cwnd_reduction(tp, returned, log)


# tcp_bbr2.c bbr2_set_state()
@jit
def bbr2_set_state(bbr: Bbr, tp: Socket, new_state: int, log: Log) -> None:
    if new_state == TCP_CA_LOSS:
        bbr.prev_ca_state = TCP_CA_LOSS
        note(log, codes.FULLBW_RESET_RTO, bbr.full_bw)
        bbr.full_bw = 0
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
        bbr2_main(bbr, tp, rs, p, log)
    elif kind == SET_STATE:
        bbr2_set_state(bbr, tp, ev.ctl.arg, log)
    elif kind == CWND_EVENT:
        bbr_cwnd_event(bbr, tp, ev.ctl.arg, p, log)
    elif kind == SSTHRESH:
        bbr_ssthresh(bbr, tp, p, log)
    elif kind == UNDO_CWND:
        bbr2_undo_cwnd(bbr, tp, p, log)
    elif kind == SKB_MARKED_LOST:
        bbr_skb_marked_lost(bbr, tp, rs, ev.skb, p, log)
