"""BBRv2, net/ipv4/tcp_bbr2.c of google/bbr v2alpha: callbacks in the order the kernel runs them."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.recovery import undo_bounds
from ..debug_event import EVENT_NONE
from ..ints import before, u32
from ..log import note
from ..model.aggregation import bbr_update_ack_aggregation
from ..model.bandwidth import bbr_calculate_bw_sample, bbr_take_max_bw_sample
from ..model.ecn import (
    become_eligible,
    dctcp_ece_ack_update,
    delivered_since_update,
    move_alpha,
)
from ..model.full_pipe import plateau_of_max_bw
from ..model.lower_bounds import bbr_adapt_lower_bounds, start_inflight_lo_upon_rto
from ..model.rounds import bbr_update_round_start, count_rounds_since_probe, start_loss_round
from ..modes.probe_bw import bbr_update_cycle_phase
from ..modes.probe_feedback import bbr_skb_marked_lost
from ..modes.startup import (
    bbr_check_ecn_too_high_in_startup,
    bbr_check_loss_too_high_in_startup,
)
from ..params import Params
from ..records import (
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
from ..tcp import tcp_undo_cwnd_reduction
from .callbacks import init_common, init_pacing
from .v2_v3 import (
    DONE,
    FULL_MODEL,
    bbr_check_drain,
    bbr_run_fast_path,
    bbr_ssthresh,
    bbr_update_min_rtt,
    init_bounds,
    init_recovery_and_probes,
    leave_state,
    remember_ack,
    tx_start,
    update_control,
)


# v2 bbr_init(), bbr2_init()
@jit
def bbr_init(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    """`min_rtt_us` is tcp_min_rtt(), which recordings do not carry.

    pacing_gain, cwnd_gain and debug.event keep the values from before init().
    """
    init_recovery_and_probes(bbr, tp, min_rtt_us, p)
    init_common(bbr, tp, min_rtt_us)
    bbr.next_rtt_delivered = 0
    init_bounds(bbr, tp, log)
    init_pacing(bbr, tp, min_rtt_us, p, log)


# v2 bbr2_update_ecn_alpha()
@jit
def bbr_update_ecn_alpha(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Once per round: follow the CE ratio, which may end STARTUP."""
    if p.ecn_factor == 0:
        return
    delivered = delivered_since_update(bbr, tp)
    if not delivered:
        return
    if not bbr.ecn_eligible and p.ecn_enable:
        become_eligible(bbr, p, log)
    ce_ratio = move_alpha(bbr, tp, delivered, p, log)
    bbr_check_ecn_too_high_in_startup(bbr, tp, ce_ratio, p, log)


# v2 bbr2_update_congestion_signals(), until the round's signals are used
@jit
def gather_congestion_signals(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    """Take what was delivered and lost; True if the loss round is over."""
    bbr.loss_round_start = 0
    if rs.interval_us <= 0 or not rs.acked_sacked:
        return False
    bbr_take_max_bw_sample(bbr, rs, p, log)
    bbr.loss_in_round |= 1 if rs.losses > 0 else 0
    bbr.bw_latest = max(bbr.bw_latest, rs.sample_bw)
    bbr.inflight_latest = max(bbr.inflight_latest, u32(rs.delivered))
    if before(rs.prior_delivered, bbr.loss_round_delivered):
        return False
    start_loss_round(bbr, tp, rs, log)
    return True


# v2 bbr2_update_congestion_signals(), after that
@jit
def reset_congestion_signals(bbr: Bbr, rs: RateSample) -> None:
    """Begin a round's signals anew, with the sample that began it."""
    bbr.loss_in_round = 0
    bbr.ecn_in_round = 0
    bbr.bw_latest = rs.sample_bw
    bbr.inflight_latest = u32(rs.delivered)


# v2 bbr2_update_congestion_signals()
@jit
def bbr_update_congestion_signals(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> None:
    """What was delivered and lost; once per round, what that says of the lower bounds."""
    if gather_congestion_signals(bbr, tp, rs, p, log):
        bbr_adapt_lower_bounds(bbr, tp, p, log)
        reset_congestion_signals(bbr, rs)


# v2 bbr2_update_model()
@jit
def bbr_update_model(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """All of the model, and the modes that follow from it."""
    bbr_update_congestion_signals(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    bbr_check_loss_too_high_in_startup(bbr, tp, rs, p, log)
    plateau_of_max_bw(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)


# v2 bbr2_main()
@jit
def bbr_main(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """An ACK."""
    bbr.debug_event = EVENT_NONE
    bbr_update_round_start(bbr, tp, rs)
    if bbr.round_start:
        count_rounds_since_probe(bbr)
        bbr_update_ecn_alpha(bbr, tp, p, log)
    bbr.ecn_in_round |= rs.is_ece
    bbr_calculate_bw_sample(bbr, rs)

    path = bbr_run_fast_path(bbr, tp, rs, p, log)
    if path == FULL_MODEL:
        bbr_update_model(bbr, tp, rs, p, log)
    if path != DONE:
        update_control(bbr, tp, rs, p, log)

    remember_ack(bbr, tp, rs)


# v2 bbr_cwnd_event()
@jit
def bbr_cwnd_event(bbr: Bbr, tp: Socket, event: int, p: Params, log: Log) -> None:
    """Sending restarts from idle, or the receiver's ECN state changed."""
    if event == CA_EVENT_TX_START:
        tx_start(bbr, tp, p, log)
    elif event in (CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE) and p.ecn_enable and p.precise_ece_ack:
        dctcp_ece_ack_update(bbr, tp, event)


# v2 bbr2_undo_cwnd()
@jit
def bbr_undo_cwnd(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """The recovery was spurious: take it back, if v2's parameter `undo` says so."""
    note(log, codes.FULLBW_RESET_UNDO, bbr.full_bw)
    bbr.full_bw = 0
    bbr.full_bw_cnt = 0
    bbr.loss_in_round = 0
    returned = tp.snd_cwnd
    if p.undo:
        undo_bounds(bbr, log)
        returned = bbr.prior_cwnd
    tcp_undo_cwnd_reduction(tp, returned, log)


# v2 bbr2_set_state()
@jit
def bbr_set_state(bbr: Bbr, tp: Socket, new_state: int, log: Log) -> None:
    """A new congestion state; Loss is the retransmission timeout."""
    if new_state == TCP_CA_LOSS:
        bbr.prev_ca_state = TCP_CA_LOSS
        note(log, codes.FULLBW_RESET_RTO, bbr.full_bw)
        bbr.full_bw = 0
        start_inflight_lo_upon_rto(bbr, tp, log)
    else:
        leave_state(bbr, tp, new_state, bbr.prev_ca_state == TCP_CA_LOSS, log)


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """Run the callback that the event records."""
    kind, tp, rs = ev.ctl.kind, ev.tp, ev.rs
    if kind == MAIN:
        bbr_main(bbr, tp, rs, p, log)
    elif kind == SET_STATE:
        bbr_set_state(bbr, tp, ev.ctl.arg, log)
    elif kind == CWND_EVENT:
        bbr_cwnd_event(bbr, tp, ev.ctl.arg, p, log)
    elif kind == SSTHRESH:
        bbr_ssthresh(bbr, tp, log)
    elif kind == UNDO_CWND:
        bbr_undo_cwnd(bbr, tp, p, log)
    elif kind == SKB_MARKED_LOST:
        bbr_skb_marked_lost(bbr, tp, rs, ev.skb, p, log)
