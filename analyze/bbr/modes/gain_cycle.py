"""PROBE_BW of v1, a cycle of eight gains: one phase of 1.25x, one of 0.75x, six of 1.0x."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import tcp_stamp_us_delta
from ..kernel_units import BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.inflight import bbr_inflight, bbr_packets_in_net_at_edt
from ..params import Params
from ..records import BBR_PROBE_BW, Bbr, Log, RateSample, Socket
from .transition import transition_to

CYCLE_LEN = 8


# v1 bbr_reset_probe_bw_mode()
@jit
def enter_gain_cycle(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Enter PROBE_BW in a random phase, never that of 0.75x; the draw is the recording's."""
    tp.draws += 1
    transition_to(bbr, BBR_PROBE_BW)
    bbr.cycle_idx = CYCLE_LEN - 1 - tp.rand_cycle
    bbr_advance_cycle_phase(bbr, tp)
    draw = tp.rand_cycle
    note(log, codes.PBW_ENTER_PHASE_RANDOM, bbr.cycle_idx, draw)


# v1 bbr_is_next_cycle_phase()
@jit
def bbr_is_next_cycle_phase(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    """Is this phase over? pacing_gain is the one chosen on the previous ACK."""
    elapsed_us = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.cycle_mstamp)
    is_full_length = elapsed_us > bbr.min_rtt_us
    if bbr.pacing_gain == BBR_UNIT:
        code = codes.CYC_NEXT_TIME if is_full_length else codes.CYC_STAY_TIME
        note(log, code, bbr.cycle_idx, elapsed_us, bbr.min_rtt_us)
        return is_full_length
    in_net = bbr_packets_in_net_at_edt(bbr, tp, rs.prior_in_flight, p)
    if bbr.pacing_gain > BBR_UNIT:
        if is_full_length:
            return _is_pushed_up(bbr, tp, rs, in_net, elapsed_us, p, log)
    elif is_full_length:
        note(log, codes.CYC_NEXT_DOWN_TIME, elapsed_us, bbr.min_rtt_us)
        return True
    elif _is_drained_early(bbr, tp, in_net, elapsed_us, p, log):
        return True
    note(log, codes.CYC_STAY_TIME, bbr.cycle_idx, elapsed_us, bbr.min_rtt_us)
    return False


@jit
def _is_pushed_up(
    bbr: Bbr, tp: Socket, rs: RateSample, in_net: int, elapsed_us: int, p: Params, log: Log
) -> bool:
    """A phase of 1.25x ends on loss, or when inflight has followed the gain."""
    if rs.losses:
        note(log, codes.CYC_NEXT_UP_LOSS, rs.losses, elapsed_us)
        return True
    target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), bbr.pacing_gain, p)
    if in_net >= target:
        note(log, codes.CYC_NEXT_UP_INFLIGHT, elapsed_us, in_net, target)
        return True
    note(log, codes.CYC_STAY_UP_WAIT_INFLIGHT, target, in_net)
    return False


@jit
def _is_drained_early(
    bbr: Bbr, tp: Socket, in_net: int, elapsed_us: int, p: Params, log: Log
) -> bool:
    """A phase of 0.75x ends before its time when inflight is down to the BDP."""
    target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    if in_net > target:
        return False
    note(log, codes.CYC_NEXT_DOWN_DRAINED, elapsed_us, in_net, target)
    return True


# v1 bbr_advance_cycle_phase()
@jit
def bbr_advance_cycle_phase(bbr: Bbr, tp: Socket) -> None:
    """On to the next of the eight gains."""
    bbr.cycle_idx = (bbr.cycle_idx + 1) & (CYCLE_LEN - 1)
    bbr.cycle_mstamp = tp.delivered_mstamp


# v1 bbr_update_cycle_phase()
@jit
def update_gain_cycle(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """In PROBE_BW, advance the cycle when the phase is over."""
    if bbr.mode == BBR_PROBE_BW and bbr_is_next_cycle_phase(bbr, tp, rs, p, log):
        bbr_advance_cycle_phase(bbr, tp)
