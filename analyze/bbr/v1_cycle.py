"""v1's eight-phase gain cycle: one phase of 1.25x, one of 0.75x, six of 1.0x."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import bbr_inflight, bbr_packets_in_net_at_edt
from .ints import BBR_UNIT, tcp_stamp_us_delta
from .log import note
from .model import bbr_max_bw
from .params import Params
from .records import BBR_PROBE_BW, Bbr, Log, RateSample, Socket

CYCLE_LEN = 8


# tcp_bbr.c bbr_is_next_cycle_phase(); pacing_gain is the one chosen on the previous ACK
@jit
def bbr_is_next_cycle_phase(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    elapsed = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.cycle_mstamp)
    is_full_length = elapsed > bbr.min_rtt_us
    if bbr.pacing_gain == BBR_UNIT:
        code = codes.CYC_NEXT_TIME if is_full_length else codes.CYC_STAY_TIME
        note(log, code, bbr.cycle_idx, elapsed, bbr.min_rtt_us)
        return is_full_length

    in_net = bbr_packets_in_net_at_edt(bbr, tp, rs.prior_in_flight, p)
    bw = bbr_max_bw(bbr, p)
    if bbr.pacing_gain > BBR_UNIT:
        if not is_full_length:
            note(log, codes.CYC_STAY_TIME, bbr.cycle_idx, elapsed, bbr.min_rtt_us)
            return False
        if rs.losses:
            note(log, codes.CYC_NEXT_UP_LOSS, rs.losses, elapsed)
            return True
        target = bbr_inflight(bbr, tp, bw, bbr.pacing_gain, p)
        if in_net >= target:
            note(log, codes.CYC_NEXT_UP_INFLIGHT, elapsed, in_net, target)
            return True
        note(log, codes.CYC_STAY_UP_WAIT_INFLIGHT, target, in_net)
        return False

    if is_full_length:
        note(log, codes.CYC_NEXT_DOWN_TIME, elapsed, bbr.min_rtt_us)
        return True
    target = bbr_inflight(bbr, tp, bw, BBR_UNIT, p)
    if in_net <= target:
        note(log, codes.CYC_NEXT_DOWN_DRAINED, elapsed, in_net, target)
        return True
    note(log, codes.CYC_STAY_TIME, bbr.cycle_idx, elapsed, bbr.min_rtt_us)
    return False


# tcp_bbr.c bbr_advance_cycle_phase()
@jit
def bbr_advance_cycle_phase(bbr: Bbr, tp: Socket) -> None:
    bbr.cycle_idx = (bbr.cycle_idx + 1) & (CYCLE_LEN - 1)
    bbr.cycle_mstamp = tp.delivered_mstamp


# tcp_bbr.c bbr_update_cycle_phase()
@jit
def bbr1_update_cycle_phase(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    if bbr.mode == BBR_PROBE_BW and bbr_is_next_cycle_phase(bbr, tp, rs, p, log):
        bbr_advance_cycle_phase(bbr, tp)


# tcp_bbr.c bbr_reset_probe_bw_mode(); the draw comes from the recording
@jit
def bbr_reset_probe_bw_mode(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    tp.draws += 1
    bbr.mode = BBR_PROBE_BW
    bbr.cycle_idx = CYCLE_LEN - 1 - tp.rand_cycle
    bbr_advance_cycle_phase(bbr, tp)
    note(log, codes.PBW_ENTER_PHASE_RANDOM, bbr.cycle_idx, tp.rand_cycle)
