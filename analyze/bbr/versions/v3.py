"""BBRv3, net/ipv4/tcp_bbr.c of google/bbr v3: callbacks in the order the kernel runs them."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.plb import (
    tcp_plb_check_rehash,
    tcp_plb_update_state,
    tcp_plb_update_state_upon_rto,
)
from ..control.recovery import undo_bounds
from ..ints import before, u32
from ..log import note
from ..model.aggregation import bbr_update_ack_aggregation
from ..model.bandwidth import bbr_calculate_bw_sample, bbr_take_max_bw_sample
from ..model.ecn import (
    NO_RATIO,
    bbr_can_use_ecn,
    become_eligible,
    dctcp_ece_ack_update,
    delivered_since_update,
    move_alpha,
)
from ..model.full_pipe import bbr_reset_full_bw, plateau_of_samples
from ..model.lower_bounds import bbr_adapt_lower_bounds, start_inflight_lo_upon_rto
from ..model.rounds import (
    bbr_note_loss,
    bbr_update_round_start,
    count_rounds_since_probe,
    start_loss_round,
)
from ..model.upper_bounds import FROM_TLP, bbr_is_inflight_too_high
from ..modes.probe_bw import bbr_update_cycle_phase
from ..modes.probe_feedback import (
    bbr_handle_inflight_too_high,
    bbr_skb_marked_lost,
    note_loss_within_limit,
)
from ..modes.startup import (
    bbr_check_ecn_too_high_in_startup,
    bbr_check_loss_too_high_in_startup,
)
from ..params import Params
from ..records import (
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


# v3 bbr_init()
@jit
def bbr_init(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    """`min_rtt_us` is tcp_min_rtt(), which recordings do not carry.

    pacing_gain, cwnd_gain and plb.consec_cong_rounds keep the values from before init().
    """
    init_recovery_and_probes(bbr, tp, min_rtt_us, p)
    init_common(bbr, tp, min_rtt_us)
    init_bounds(bbr, tp, log)
    init_pacing(bbr, tp, min_rtt_us, p, log)


# v3 bbr_update_ecn_alpha()
@jit
def bbr_update_ecn_alpha(bbr: Bbr, tp: Socket, p: Params, log: Log) -> int:
    """Once per round: follow the CE ratio, which may end STARTUP.

    Returns the round's CE ratio [1/256], or NO_RATIO if it is not wanted or not known.
    """
    can_use_ecn = bbr_can_use_ecn(tp)
    if not bbr.ecn_eligible and can_use_ecn and p.ecn_factor:
        become_eligible(bbr, p, log)
    if not bbr.ecn_eligible and not (can_use_ecn and p.plb_enabled):
        return NO_RATIO
    delivered = delivered_since_update(bbr, tp)
    if not delivered:
        return NO_RATIO
    ce_ratio = move_alpha(bbr, tp, delivered, p, log)
    bbr_check_ecn_too_high_in_startup(bbr, tp, ce_ratio, p, log)
    return ce_ratio


# v3 bbr_update_latest_delivery_signals()
@jit
def bbr_update_latest_delivery_signals(bbr: Bbr, tp: Socket, rs: RateSample, log: Log) -> None:
    """What was delivered: before the fast path, unlike v2."""
    bbr.loss_round_start = 0
    if rs.interval_us <= 0 or not rs.acked_sacked:
        return
    bbr.bw_latest = max(bbr.bw_latest, rs.sample_bw)
    bbr.inflight_latest = max(bbr.inflight_latest, u32(rs.delivered))
    if not before(rs.prior_delivered, bbr.loss_round_delivered):
        start_loss_round(bbr, tp, rs, log)


# v3 bbr_advance_latest_delivery_signals()
@jit
def bbr_advance_latest_delivery_signals(bbr: Bbr, rs: RateSample) -> None:
    """Start the latest signals anew: at the very end, and not on the ACK of a TLP."""
    if bbr.loss_round_start and not rs.is_acking_tlp_retrans_seq:
        bbr.bw_latest = rs.sample_bw
        bbr.inflight_latest = u32(rs.delivered)


# v3 bbr_update_congestion_signals()
@jit
def bbr_update_congestion_signals(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> None:
    """What was lost; once per round, what that says of the lower bounds."""
    if rs.interval_us <= 0 or not rs.acked_sacked:
        return
    bbr_take_max_bw_sample(bbr, rs, p, log)
    bbr.loss_in_round |= 1 if rs.losses > 0 else 0
    if not bbr.loss_round_start:
        return
    bbr_adapt_lower_bounds(bbr, tp, p, log)
    bbr.loss_in_round = 0
    bbr.ecn_in_round = 0


# v3 bbr_update_model()
@jit
def bbr_update_model(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """All of the model, and the modes that follow from it."""
    bbr_update_congestion_signals(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    bbr_check_loss_too_high_in_startup(bbr, tp, rs, p, log)
    plateau_of_samples(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)


# v3 bbr_main()
@jit
def bbr_main(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """An ACK."""
    bbr_update_round_start(bbr, tp, rs)
    if bbr.round_start:
        count_rounds_since_probe(bbr)
        ce_ratio = bbr_update_ecn_alpha(bbr, tp, p, log)
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
        update_control(bbr, tp, rs, p, log)

    bbr_advance_latest_delivery_signals(bbr, rs)
    remember_ack(bbr, tp, rs)


# v3 bbr_run_loss_probe_recovery()
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
    if cause:
        bbr_handle_inflight_too_high(bbr, tp, rs, rs.tx_in_flight, cause, FROM_TLP, p, log)
    else:
        note_loss_within_limit(rs, p, log)


# v3 bbr_cwnd_event()
@jit
def bbr_cwnd_event(bbr: Bbr, tp: Socket, rs: RateSample, event: int, p: Params, log: Log) -> None:
    """Sending restarts from idle, the receiver's ECN state changed, or a TLP repaired a loss."""
    if event == CA_EVENT_TX_START:
        tx_start(bbr, tp, p, log)
    elif event in (CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE):
        if bbr_can_use_ecn(tp) and p.precise_ece_ack:
            dctcp_ece_ack_update(bbr, tp, event)
    elif event == CA_EVENT_TLP_RECOVERY and p.loss_probe_recovery:
        bbr_run_loss_probe_recovery(bbr, tp, rs, p, log)


# v3 bbr_undo_cwnd()
@jit
def bbr_undo_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    """The recovery was spurious: take it back."""
    note(log, codes.FULLBW_RESET_UNDO, bbr.full_bw)
    bbr_reset_full_bw(bbr)
    bbr.loss_in_round = 0
    undo_bounds(bbr, log)
    bbr.try_fast_path = 0
    tcp_undo_cwnd_reduction(tp, bbr.prior_cwnd, log)


# v3 bbr_set_state()
@jit
def bbr_set_state(bbr: Bbr, tp: Socket, new_state: int, p: Params, log: Log) -> None:
    """A new congestion state; Loss is the retransmission timeout."""
    if new_state == TCP_CA_LOSS:
        bbr.prev_ca_state = TCP_CA_LOSS
        tcp_plb_update_state_upon_rto(bbr, tp, p, log)
        note(log, codes.FULLBW_RESET_RTO, bbr.full_bw)
        bbr_reset_full_bw(bbr)
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
        bbr_set_state(bbr, tp, ev.ctl.arg, p, log)
    elif kind == CWND_EVENT:
        bbr_cwnd_event(bbr, tp, rs, ev.ctl.arg, p, log)
    elif kind == SSTHRESH:
        bbr_ssthresh(bbr, tp, log)
    elif kind == UNDO_CWND:
        bbr_undo_cwnd(bbr, tp, log)
    elif kind == SKB_MARKED_LOST:
        bbr_skb_marked_lost(bbr, tp, rs, ev.skb, p, log)
