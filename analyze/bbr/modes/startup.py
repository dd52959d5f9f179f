"""STARTUP: fill the pipe; besides a plateau in bandwidth, loss and CE marks say that it is full."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..debug_event import EVENT_STARTUP_ECN, EVENT_STARTUP_LOSS
from ..kernel_units import BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.inflight import bbr_inflight
from ..model.upper_bounds import bbr_is_inflight_too_high, loss_limit_of
from ..params import Params
from ..records import BBR_STARTUP, TCP_CA_RECOVERY, Bbr, Log, RateSample, Socket
from .transition import transition_to


# v1 bbr_reset_startup_mode(); v2 bbr_init(), bbr2_exit_probe_rtt(); v3 bbr_reset_startup_mode()
@jit
def enter_startup(bbr: Bbr) -> None:
    """From init, or from a PROBE_RTT that came before the pipe was full."""
    transition_to(bbr, BBR_STARTUP)


# v2 bbr2_handle_queue_too_high_in_startup(); v3 bbr_handle_queue_too_high_in_startup()
@jit
def bbr_handle_queue_too_high_in_startup(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """The pipe is more than full: set inflight_hi to the BDP (v3: or inflight_latest if larger)."""
    old = bbr.inflight_hi
    bbr.full_bw_reached = 1
    bdp = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    new = max(bdp, bbr.inflight_latest) if p.startup_exit_keeps_latest else bdp
    bbr.inflight_hi = new
    note(log, codes.HI_SET_STARTUP_EXIT, old, new, bdp, bbr.inflight_latest)


# v2 bbr2_check_loss_too_high_in_startup(); v3 bbr_check_loss_too_high_in_startup()
@jit
def bbr_check_loss_too_high_in_startup(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> None:
    """Exit at the end of a round of recovery with many loss events and a high loss rate."""
    if bbr.full_bw_reached:
        return
    # Loss events: ACKs that report loss, a stand-in for ranges of lost sequence numbers.
    if rs.losses and bbr.loss_events_in_round < 0xF:
        bbr.loss_events_in_round += 1
        loss_events, loss_events_limit = bbr.loss_events_in_round, p.full_loss_cnt
        note(log, codes.STARTUP_LOSS_EVENT, loss_events, loss_events_limit)
    if (
        p.full_loss_cnt
        and bbr.loss_round_start
        and tp.icsk_ca_state == TCP_CA_RECOVERY
        and bbr.loss_events_in_round >= p.full_loss_cnt
        and bbr_is_inflight_too_high(bbr, rs, p)
    ):
        bbr.debug_event = EVENT_STARTUP_LOSS
        loss_events = bbr.loss_events_in_round
        loss_limit = loss_limit_of(rs.tx_in_flight, p)
        note(log, codes.FULLBW_REACHED_LOSS, loss_events, rs.lost, rs.tx_in_flight, loss_limit)
        bbr_handle_queue_too_high_in_startup(bbr, tp, p, log)
        return
    if bbr.loss_round_start:
        bbr.loss_events_in_round = 0


# v2 bbr2_check_ecn_too_high_in_startup(); v3 bbr_check_ecn_too_high_in_startup()
@jit
def bbr_check_ecn_too_high_in_startup(
    bbr: Bbr, tp: Socket, ce_ratio: int, p: Params, log: Log
) -> None:
    """Exit after full_ecn_cnt rounds in a row with a CE ratio [1/256] of ecn_thresh or more."""
    if bbr.full_bw_reached or not bbr.ecn_eligible or not p.full_ecn_cnt or not p.ecn_thresh:
        return
    rounds = 0
    if ce_ratio >= p.ecn_thresh:
        rounds = (bbr.startup_ecn_rounds + 1) & 3
        note(log, codes.STARTUP_ECN_ROUND, ce_ratio, rounds)
    bbr.startup_ecn_rounds = rounds
    if rounds >= p.full_ecn_cnt:
        bbr.debug_event = EVENT_STARTUP_ECN
        note(log, codes.FULLBW_REACHED_ECN, ce_ratio, rounds)
        bbr_handle_queue_too_high_in_startup(bbr, tp, p, log)
