"""The PROBE_BW cycle of v2 and v3: when to cruise, refill, probe up, and stop probing."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..debug_event import EVENT_ALL_CLEAR, EVENT_DANGER, EVENT_QUEUE
from ..ints import i64, ilog2, mul_shift, tcp_stamp_us_delta, u64
from ..kernel_units import BBR_SCALE, BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.full_pipe import restart_plateau_search
from ..model.inflight import (
    bbr_inflight,
    bbr_inflight_with_headroom,
    bbr_packets_in_net_at_edt,
    bbr_target_inflight,
)
from ..params import Params
from ..records import (
    BBR_BW_PROBE_CRUISE,
    BBR_BW_PROBE_DOWN,
    BBR_BW_PROBE_REFILL,
    BBR_BW_PROBE_UP,
    BBR_PROBE_BW,
    TCP_CA_OPEN,
    Bbr,
    Log,
    RateSample,
    Socket,
)
from .phases import (
    bbr_has_elapsed_in_phase,
    bbr_start_bw_probe_cruise,
    bbr_start_bw_probe_down,
    bbr_start_bw_probe_refill,
    bbr_start_bw_probe_up,
)
from .probe_feedback import bbr_adapt_upper_bounds


# v2 bbr2_is_reno_coexistence_probe_time(); v3 bbr_is_reno_coexistence_probe_time()
@jit
def reno_coexistence_rounds(bbr: Bbr, tp: Socket, p: Params) -> int:
    """The rounds after which Reno would have probed, bw_probe_max_rounds at most."""
    rounds = p.bw_probe_max_rounds
    if p.bw_probe_reno_gain:
        target = bbr_target_inflight(bbr, tp, p)
        rounds = min(rounds, mul_shift(target, p.bw_probe_reno_gain, BBR_SCALE))
    return rounds


@jit
def _have_marks_ceased(bbr: Bbr, tp: Socket, p: Params) -> bool:
    """CE marks but no loss in this cycle, and congestion is over."""
    if not p.ecn_reprobe_gain or not bbr.ecn_eligible or not bbr.ecn_in_cycle:
        return False
    return bbr.loss_in_cycle == 0 and tp.icsk_ca_state == TCP_CA_OPEN


# v2 bbr2_check_time_to_probe_bw(); v3 bbr_check_time_to_probe_bw()
@jit
def bbr_check_time_to_probe_bw(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """In CRUISE and DOWN: start REFILL if it is time to, and return whether it is."""
    if _have_marks_ceased(bbr, tp, p):
        bbr.debug_event = EVENT_ALL_CLEAR
        slope = ilog2(i64(u64(u64(bbr.inflight_hi) * u64(p.ecn_reprobe_gain)) >> u64(BBR_SCALE)))
        note(log, codes.REFILL_BY_ECN_CLEAR, slope, bbr.inflight_hi)
        bbr_start_bw_probe_refill(bbr, tp, slope, p, log)
        return True
    elapsed_us = tcp_stamp_us_delta(tp.tcp_mstamp, bbr.cycle_mstamp)
    if bbr_has_elapsed_in_phase(bbr, tp, bbr.probe_wait_us):
        note(log, codes.REFILL_BY_CLOCK, elapsed_us, bbr.probe_wait_us)
        bbr_start_bw_probe_refill(bbr, tp, 0, p, log)
        return True
    rounds = reno_coexistence_rounds(bbr, tp, p)
    if bbr.rounds_since_probe >= rounds:
        target = bbr_target_inflight(bbr, tp, p) if log is not None else 0
        note(log, codes.REFILL_BY_RENO_ROUNDS, bbr.rounds_since_probe, rounds, target)
        bbr_start_bw_probe_refill(bbr, tp, 0, p, log)
        return True
    note(log, codes.CRUISE_STAY, elapsed_us, bbr.probe_wait_us, bbr.rounds_since_probe, rounds)
    return False


# v2 bbr2_check_time_to_cruise(); v3 bbr_check_time_to_cruise()
@jit
def bbr_check_time_to_cruise(
    bbr: Bbr, tp: Socket, in_net: int, bw: int, p: Params, log: Log
) -> bool:
    """Is inflight below both the bound with headroom and the BDP?"""
    headroom = bbr_inflight_with_headroom(bbr, p)
    if in_net > headroom:
        note(log, codes.DOWN_STAY_HEADROOM, in_net, headroom)
        return False
    bdp = bbr_inflight(bbr, tp, bw, BBR_UNIT, p)
    if in_net <= bdp or (
        not p.drain_to_target and bbr_has_elapsed_in_phase(bbr, tp, bbr.min_rtt_us)  # v2 option
    ):
        note(log, codes.CRUISE_ENTER, in_net, headroom, bdp)
        return True
    note(log, codes.DOWN_STAY_BDP, in_net, bdp)
    return False


# v2 bbr2_update_cycle_phase(); v3 not, see probe_up_to_plateau
@jit
def _is_queue_building(bbr: Bbr, tp: Socket, in_net: int, bw: int, p: Params, log: Log) -> bool:
    """v2's end of a probe: a queue of a quarter BDP, after a min_rtt."""
    if not bbr_has_elapsed_in_phase(bbr, tp, bbr.min_rtt_us):
        return False
    target = bbr_inflight(bbr, tp, bw, p.bw_probe_pif_gain, p)
    if in_net < target:
        return False
    bbr.debug_event = EVENT_QUEUE
    note(log, codes.DOWN_BY_QUEUE, in_net, target)
    return True


# v2 not, see probe_up_to_plateau; v3 bbr_update_cycle_phase()
@jit
def _is_plateau_reached(bbr: Bbr, tp: Socket, rs: RateSample, log: Log) -> bool:
    """v3's end of a probe: bandwidth stopped growing for three rounds."""
    if tp.is_cwnd_limited and tp.snd_cwnd >= bbr.inflight_hi:
        # inflight_hi, not the path, limits growth: no plateau can be concluded
        restart_plateau_search(bbr, rs)
        note(log, codes.FULLBW_RESET_HI_LIMITED, bbr.inflight_hi, tp.snd_cwnd, rs.sample_bw)
        return False
    if bbr.full_bw_now:
        note(log, codes.DOWN_BY_PLATEAU, bbr.full_bw, bbr.full_bw_cnt)
        return True
    return False


# v2 bbr2_update_cycle_phase(); v3 bbr_update_cycle_phase()
@jit
def _is_probe_done(
    bbr: Bbr, tp: Socket, rs: RateSample, in_net: int, bw: int, p: Params, log: Log
) -> bool:
    """UP ends when it gets risky, or by the version's own sign that the pipe is full."""
    if bbr.prev_probe_too_high and in_net >= bbr.inflight_hi:
        bbr.stopped_risky_probe = 1
        bbr.debug_event = EVENT_DANGER
        note(log, codes.DOWN_BY_RISK, in_net, bbr.inflight_hi)
        return True
    if p.probe_up_to_plateau:
        is_full = _is_plateau_reached(bbr, tp, rs, log)
    else:
        is_full = _is_queue_building(bbr, tp, in_net, bw, p, log)
    if not is_full:
        note(log, codes.UP_STAY, in_net, tp.snd_cwnd, bbr.inflight_hi)
    return is_full


# v2 bbr2_update_cycle_phase(); v3 bbr_update_cycle_phase()
@jit
def bbr_update_cycle_phase(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Adapt the upper bounds, then stay in this phase or enter the next."""
    if not bbr.full_bw_reached:
        return
    if bbr_adapt_upper_bounds(bbr, tp, rs, p, log) or bbr.mode != BBR_PROBE_BW:
        return
    in_net = bbr_packets_in_net_at_edt(bbr, tp, rs.prior_in_flight, p)
    bw = bbr_max_bw(bbr, p)
    if bbr.cycle_idx == BBR_BW_PROBE_CRUISE:
        bbr_check_time_to_probe_bw(bbr, tp, p, log)
    elif bbr.cycle_idx == BBR_BW_PROBE_REFILL:
        if bbr.round_start:
            bbr.bw_probe_samples = 1
            bbr_start_bw_probe_up(bbr, tp, rs, p, log)
        else:
            note(log, codes.REFILL_STAY, in_net)
    elif bbr.cycle_idx == BBR_BW_PROBE_UP:
        if _is_probe_done(bbr, tp, rs, in_net, bw, p, log):
            bbr.prev_probe_too_high = 0  # no loss or ECN (yet)
            bbr_start_bw_probe_down(bbr, tp, p, log)
    elif bbr.cycle_idx == BBR_BW_PROBE_DOWN:
        if bbr_check_time_to_probe_bw(bbr, tp, p, log):
            return
        if bbr_check_time_to_cruise(bbr, tp, in_net, bw, p, log):
            bbr_start_bw_probe_cruise(bbr, log)
