"""The congestion window: towards its target, within its bounds."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import (
    bbr_ack_aggregation_cwnd,
    bbr_bdp,
    bbr_inflight_with_headroom,
    bbr_probe_rtt_cwnd,
    bbr_quantization_budget,
)
from .ints import U32_MAX, s32, u32
from .log import note
from .model import tcp_packets_in_flight
from .params import Params
from .records import (
    BBR_BW_PROBE_CRUISE,
    BBR_PROBE_BW,
    BBR_PROBE_RTT,
    TCP_CA_RECOVERY,
    TCP_INIT_CWND,
    Bbr,
    Log,
    RateSample,
    Socket,
)


@jit
def _note_growth(
    old: int, new: int, acked: int, target: int, bdp: int, p: Params, log: Log
) -> None:
    if new == old:
        return
    if new == target:
        note(log, codes.CWND_TO_TARGET, old, new, bdp, target - bdp if target > bdp else 0)
    else:
        note(log, codes.CWND_GROW, old, new, acked, target)


# tcp_bbr.c bbr_set_cwnd(), the caps at its end
@jit
def _apply_caps(bbr: Bbr, tp: Socket, cwnd: int, p: Params, log: Log) -> None:
    tp.snd_cwnd = min(cwnd, tp.snd_cwnd_clamp)
    if tp.snd_cwnd != cwnd:
        note(log, codes.CWND_CLAMP, cwnd, tp.snd_cwnd)
    if bbr.mode == BBR_PROBE_RTT:
        cap = bbr_probe_rtt_cwnd(bbr, p)
        if cap < tp.snd_cwnd:
            note(log, codes.CWND_PRTT_CAP, tp.snd_cwnd, cap)
            tp.snd_cwnd = cap


@jit
def _floor(cwnd: int, p: Params, log: Log) -> int:
    if cwnd < p.cwnd_min_target:
        note(log, codes.CWND_FLOOR4, cwnd, p.cwnd_min_target)
        return p.cwnd_min_target
    return cwnd


# tcp_bbr2.c bbr_set_cwnd()
@jit
def bbr_set_cwnd(
    bbr: Bbr, tp: Socket, rs: RateSample, bw: int, gain: int, p: Params, log: Log
) -> None:
    """Grow by what was acknowledged up to the target, then apply the caps; v2 and v3."""
    cwnd = tp.snd_cwnd
    acked = rs.acked_sacked
    if not acked:
        note(log, codes.CWND_NO_ACK, cwnd)
        _apply_caps(bbr, tp, cwnd, p, log)
        return
    bdp = bbr_bdp(bbr, bw, gain, p)
    target = u32(bdp + bbr_ack_aggregation_cwnd(bbr, p))
    target = bbr_quantization_budget(bbr, tp, target, p)
    bbr.debug_target_cwnd = target

    old = cwnd
    bbr.try_fast_path = 0
    if bbr.full_bw_reached:  # only cut cwnd once the pipe was filled
        cwnd = u32(cwnd + acked)
        if cwnd >= target:
            cwnd = target
            bbr.try_fast_path = 1
        _note_growth(old, cwnd, acked, target, bdp, p, log)
    elif cwnd < target or cwnd < 2 * bbr.init_cwnd:
        cwnd = u32(cwnd + acked)
        _note_growth(old, cwnd, acked, target, bdp, p, log)
    else:
        bbr.try_fast_path = 1
        note(log, codes.CWND_HOLD, cwnd, target)

    if p.usage_based_cwnd:  # v2, off by default
        limit = max(u32(2 * tp.max_packets_out), tp.snd_cwnd)
        if limit < cwnd:
            note(log, codes.CWND_USAGE, cwnd, limit)
            cwnd = limit
    _apply_caps(bbr, tp, _floor(cwnd, p, log), p, log)


# tcp_bbr2.c bbr2_bound_cwnd_for_inflight_model()
@jit
def bbr_bound_cwnd_for_inflight_model(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if not bbr.initialized:
        return
    cap, code = U32_MAX, codes.CWND_CAP_HI
    if bbr.mode == BBR_PROBE_BW and bbr.cycle_idx != BBR_BW_PROBE_CRUISE:
        cap = bbr.inflight_hi
    elif bbr.mode == BBR_PROBE_RTT or bbr.mode == BBR_PROBE_BW:
        cap = bbr_inflight_with_headroom(bbr, p)
        code = codes.CWND_CAP_HEADROOM
    if bbr.inflight_lo < cap:
        cap = bbr.inflight_lo
        code = codes.CWND_CAP_LO
    if cap < p.cwnd_min_target:
        cap = p.cwnd_min_target
        code = codes.CWND_CAP_FLOOR
    if cap < tp.snd_cwnd:
        note(log, code, tp.snd_cwnd, cap, bbr.inflight_hi)
        tp.snd_cwnd = cap


# tcp_bbr.c bbr_set_cwnd_to_recover_or_restore()
@jit
def bbr_set_cwnd_to_recover_or_restore(bbr: Bbr, tp: Socket, rs: RateSample, log: Log) -> int:
    """v1's cwnd on entering, during and after recovery; the new cwnd.

    While packet_conservation is set afterwards, that cwnd is final.
    """
    acked, state, prev_state = rs.acked_sacked, tp.icsk_ca_state, bbr.prev_ca_state
    inflight = tcp_packets_in_flight(tp)
    cwnd = tp.snd_cwnd
    if rs.losses > 0:  # a packet left the network without an ACK
        old = cwnd
        cwnd = max(s32(cwnd - rs.losses), 1)
        note(log, codes.CWND_LOSS_DEDUCT, rs.losses, old, cwnd)

    if state == TCP_CA_RECOVERY and prev_state != TCP_CA_RECOVERY:
        bbr.packet_conservation = 1
        bbr.next_rtt_delivered = tp.delivered  # conserve for one round from now
        old = cwnd
        cwnd = u32(inflight + acked)
        note(log, codes.CONSERVE_START, old, cwnd, inflight, acked)
    elif prev_state >= TCP_CA_RECOVERY and state < TCP_CA_RECOVERY:
        old = cwnd
        cwnd = max(cwnd, bbr.prior_cwnd)
        note(log, codes.RECOVERY_RESTORE, old, cwnd, bbr.prior_cwnd)
        if bbr.packet_conservation:
            note(log, codes.CONSERVE_END_EXIT)
        bbr.packet_conservation = 0
    bbr.prev_ca_state = state

    if bbr.packet_conservation:
        cwnd = max(cwnd, u32(inflight + acked))
        note(log, codes.CWND_CONSERVE, cwnd, inflight, acked)
    return cwnd


# tcp_bbr.c bbr_set_cwnd(), v1
@jit
def bbr1_set_cwnd(
    bbr: Bbr, tp: Socket, rs: RateSample, bw: int, gain: int, p: Params, log: Log
) -> None:
    cwnd = tp.snd_cwnd
    acked = rs.acked_sacked
    if not acked:
        note(log, codes.CWND_NO_ACK, cwnd)
        _apply_caps(bbr, tp, cwnd, p, log)
        return
    cwnd = bbr_set_cwnd_to_recover_or_restore(bbr, tp, rs, log)
    if bbr.packet_conservation:
        _apply_caps(bbr, tp, cwnd, p, log)
        return

    bdp = bbr_bdp(bbr, bw, gain, p)
    target = u32(bdp + bbr_ack_aggregation_cwnd(bbr, p))
    target = bbr_quantization_budget(bbr, tp, target, p)
    old = cwnd
    if bbr.full_bw_reached:
        cwnd = min(u32(cwnd + acked), target)
        _note_growth(old, cwnd, acked, target, bdp, p, log)
    elif cwnd < target or tp.delivered < TCP_INIT_CWND:
        cwnd = u32(cwnd + acked)
        _note_growth(old, cwnd, acked, target, bdp, p, log)
    else:
        note(log, codes.CWND_HOLD, cwnd, target)
    _apply_caps(bbr, tp, _floor(cwnd, p, log), p, log)
