"""The PROBE_BW cycle of v2 and v3: when to cruise, refill, probe up, and stop probing."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import (
    bbr_inflight,
    bbr_inflight_with_headroom,
    bbr_packets_in_net_at_edt,
    bbr_target_inflight,
)
from .ints import BBR_SCALE, BBR_UNIT, i64, ilog2, mul_shift, tcp_stamp_us_delta, u64
from .log import note
from .model import bbr_max_bw
from .params import Params
from .phases import (
    EVENT_ALL_CLEAR,
    EVENT_DANGER,
    EVENT_QUEUE,
    bbr_has_elapsed_in_phase,
    bbr_reset_full_bw,
    bbr_start_bw_probe_cruise,
    bbr_start_bw_probe_down,
    bbr_start_bw_probe_refill,
    bbr_start_bw_probe_up,
)
from .records import (
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
from .upper_bounds import bbr_adapt_upper_bounds


# tcp_bbr2.c bbr2_is_reno_coexistence_probe_time(): the rounds after which Reno would have probed
@jit
def reno_coexistence_rounds(bbr: Bbr, tp: Socket, p: Params) -> int:
    rounds = p.bw_probe_max_rounds
    if p.bw_probe_reno_gain:
        target = bbr_target_inflight(bbr, tp, p)
        rounds = min(rounds, mul_shift(target, p.bw_probe_reno_gain, BBR_SCALE))
    return rounds


# tcp_bbr2.c bbr2_check_time_to_probe_bw()
@jit
def bbr_check_time_to_probe_bw(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """Start REFILL if it is time to; v2 and v3, in CRUISE and DOWN."""
    if (
        p.ecn_reprobe_gain
        and bbr.ecn_eligible
        and bbr.ecn_in_cycle
        and not bbr.loss_in_cycle
        and tp.icsk_ca_state == TCP_CA_OPEN
    ):
        bbr.debug_event = EVENT_ALL_CLEAR
        n = ilog2(i64(u64(u64(bbr.inflight_hi) * u64(p.ecn_reprobe_gain)) >> u64(BBR_SCALE)))
        note(log, codes.REFILL_BY_ECN_CLEAR, n, bbr.inflight_hi)
        bbr_start_bw_probe_refill(bbr, tp, n, p, log)
        return True
    elapsed = tcp_stamp_us_delta(tp.tcp_mstamp, bbr.cycle_mstamp)
    if bbr_has_elapsed_in_phase(bbr, tp, bbr.probe_wait_us):
        note(log, codes.REFILL_BY_CLOCK, elapsed, bbr.probe_wait_us)
        bbr_start_bw_probe_refill(bbr, tp, 0, p, log)
        return True
    rounds = reno_coexistence_rounds(bbr, tp, p)
    if bbr.rounds_since_probe >= rounds:
        target = bbr_target_inflight(bbr, tp, p) if log is not None else 0
        note(log, codes.REFILL_BY_RENO_ROUNDS, bbr.rounds_since_probe, rounds, target)
        bbr_start_bw_probe_refill(bbr, tp, 0, p, log)
        return True
    note(log, codes.CRUISE_STAY, elapsed, bbr.probe_wait_us, bbr.rounds_since_probe, rounds)
    return False


# tcp_bbr2.c bbr2_check_time_to_cruise()
@jit
def bbr_check_time_to_cruise(
    bbr: Bbr, tp: Socket, in_net: int, bw: int, p: Params, log: Log
) -> bool:
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


@jit
def _is_probe_up_done_v2(bbr: Bbr, tp: Socket, in_net: int, bw: int, p: Params, log: Log) -> bool:
    """v2 ends a probe when it gets risky, or when a queue of a quarter BDP builds."""
    if bbr.prev_probe_too_high and in_net >= bbr.inflight_hi:
        bbr.stopped_risky_probe = 1
        bbr.debug_event = EVENT_DANGER
        note(log, codes.DOWN_BY_RISK, in_net, bbr.inflight_hi)
        return True
    if bbr_has_elapsed_in_phase(bbr, tp, bbr.min_rtt_us):
        target = bbr_inflight(bbr, tp, bw, p.bw_probe_pif_gain, p)
        if in_net >= target:
            bbr.debug_event = EVENT_QUEUE
            note(log, codes.DOWN_BY_QUEUE, in_net, target)
            return True
    note(log, codes.UP_STAY, in_net, tp.snd_cwnd, bbr.inflight_hi)
    return False


@jit
def _is_probe_up_done_v3(bbr: Bbr, tp: Socket, rs: RateSample, in_net: int, log: Log) -> bool:
    """v3 ends a probe when it gets risky, or when bandwidth stops growing for three rounds."""
    if bbr.prev_probe_too_high and in_net >= bbr.inflight_hi:
        bbr.stopped_risky_probe = 1
        note(log, codes.DOWN_BY_RISK, in_net, bbr.inflight_hi)
        return True
    if tp.is_cwnd_limited and tp.snd_cwnd >= bbr.inflight_hi:
        # inflight_hi, not the path, limits growth: no plateau can be concluded
        bbr_reset_full_bw(bbr)
        bbr.full_bw = rs.sample_bw
        note(log, codes.FULLBW_RESET_HI_LIMITED, bbr.inflight_hi, tp.snd_cwnd, rs.sample_bw)
    elif bbr.full_bw_now:
        note(log, codes.DOWN_BY_PLATEAU, bbr.full_bw, bbr.full_bw_cnt)
        return True
    note(log, codes.UP_STAY, in_net, tp.snd_cwnd, bbr.inflight_hi)
    return False


# tcp_bbr2.c bbr2_update_cycle_phase(); tcp_bbr.c (v3) bbr_update_cycle_phase()
@jit
def bbr_update_cycle_phase(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
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
        if p.version == 3:
            done = _is_probe_up_done_v3(bbr, tp, rs, in_net, log)
        else:
            done = _is_probe_up_done_v2(bbr, tp, in_net, bw, p, log)
        if done:
            bbr.prev_probe_too_high = 0  # no loss or ECN (yet)
            bbr_start_bw_probe_down(bbr, tp, p, log)
    elif bbr.cycle_idx == BBR_BW_PROBE_DOWN:
        if bbr_check_time_to_probe_bw(bbr, tp, p, log):
            return
        if bbr_check_time_to_cruise(bbr, tp, in_net, bw, p, log):
            bbr_start_bw_probe_cruise(bbr, log)
