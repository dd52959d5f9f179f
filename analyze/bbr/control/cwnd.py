"""The congestion window: towards its target, within its bounds."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import s32, u32
from ..kernel_units import U32_MAX
from ..log import note
from ..model.inflight import (
    bbr_ack_aggregation_cwnd,
    bbr_bdp,
    bbr_inflight_with_headroom,
    bbr_probe_rtt_cwnd,
    bbr_quantization_budget,
)
from ..params import Params
from ..records import (
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
from ..tcp import tcp_packets_in_flight


@jit
def _note_growth(old: int, new: int, acked: int, target: int, bdp: int, agg: int, log: Log) -> None:
    if new == old:
        return
    if new == target:
        note(log, codes.CWND_TO_TARGET, old, new, bdp, agg)
    else:
        note(log, codes.CWND_GROW, old, new, acked, target)


# v1 bbr_set_cwnd(); v2 bbr_set_cwnd(); v3 bbr_set_cwnd()
@jit
def _apply_caps(bbr: Bbr, tp: Socket, cwnd: int, p: Params, log: Log) -> None:
    """The caps at the end of bbr_set_cwnd(): snd_cwnd_clamp, and PROBE_RTT's window."""
    old, new = cwnd, min(cwnd, tp.snd_cwnd_clamp)
    tp.snd_cwnd = new
    if new != old:
        note(log, codes.CWND_CLAMP, old, new)
    if bbr.mode == BBR_PROBE_RTT:
        old, new = tp.snd_cwnd, bbr_probe_rtt_cwnd(bbr, p)
        if new < old:
            note(log, codes.CWND_PRTT_CAP, old, new)
            tp.snd_cwnd = new


@jit
def _floor(cwnd: int, p: Params, log: Log) -> int:
    old, new = cwnd, p.cwnd_min_target
    if old < new:
        note(log, codes.CWND_FLOOR4, old, new)
        return new
    return cwnd


# v2 bbr_set_cwnd(); v3 bbr_set_cwnd()
@jit
def bbr_set_cwnd(
    bbr: Bbr, tp: Socket, rs: RateSample, bw: int, gain: int, p: Params, log: Log
) -> None:
    """v2, v3: grow by what was acknowledged up to the target, then apply the caps."""
    acked = rs.acked_sacked
    if not acked:
        note(log, codes.CWND_NO_ACK, tp.snd_cwnd)
        _apply_caps(bbr, tp, tp.snd_cwnd, p, log)
        return
    bdp = bbr_bdp(bbr, bw, gain, p)
    agg = bbr_ack_aggregation_cwnd(bbr, p)
    target = bbr_quantization_budget(bbr, tp, u32(bdp + agg), p)
    bbr.debug_target_cwnd = target
    cwnd = _grow_to_target(bbr, tp, acked, target, bdp, agg, log)
    if p.usage_based_cwnd:  # v2, off by default
        old, new = cwnd, max(u32(2 * tp.max_packets_out), tp.snd_cwnd)
        if new < old:
            note(log, codes.CWND_USAGE, old, new)
            cwnd = new
    _apply_caps(bbr, tp, _floor(cwnd, p, log), p, log)


@jit
def _grow_to_target(
    bbr: Bbr, tp: Socket, acked: int, target: int, bdp: int, agg: int, log: Log
) -> int:
    """The new cwnd; once it has arrived, the fast path may be tried."""
    old = tp.snd_cwnd
    cwnd = old
    bbr.try_fast_path = 0
    if bbr.full_bw_reached:  # only cut cwnd once the pipe was filled
        cwnd = u32(cwnd + acked)
        if cwnd >= target:
            cwnd = target
            bbr.try_fast_path = 1
        _note_growth(old, cwnd, acked, target, bdp, agg, log)
    elif cwnd < target or cwnd < 2 * bbr.init_cwnd:
        cwnd = u32(cwnd + acked)
        _note_growth(old, cwnd, acked, target, bdp, agg, log)
    else:
        bbr.try_fast_path = 1
        note(log, codes.CWND_HOLD, cwnd, target)
    return cwnd


# v2 bbr2_bound_cwnd_for_inflight_model(); v3 bbr_bound_cwnd_for_inflight_model()
@jit
def bbr_bound_cwnd_for_inflight_model(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Keep cwnd below the bounds that hold in this mode and phase."""
    if not bbr.initialized:
        return
    old, new = tp.snd_cwnd, U32_MAX
    code = codes.CWND_CAP_HI
    leaves_headroom = False
    if bbr.mode == BBR_PROBE_BW and bbr.cycle_idx != BBR_BW_PROBE_CRUISE:
        new = bbr.inflight_hi
    elif bbr.mode == BBR_PROBE_RTT or bbr.mode == BBR_PROBE_BW:
        new = bbr_inflight_with_headroom(bbr, p)
        leaves_headroom = True
    if bbr.inflight_lo < new:
        new = bbr.inflight_lo
        code = codes.CWND_CAP_LO
        leaves_headroom = False
    if new < p.cwnd_min_target:
        new = p.cwnd_min_target
        code = codes.CWND_CAP_FLOOR
        leaves_headroom = False
    if new >= old:
        return
    if leaves_headroom:
        note(log, codes.CWND_CAP_HEADROOM, old, new, bbr.inflight_hi)
    else:
        note(log, code, old, new)
    tp.snd_cwnd = new


# v1 bbr_set_cwnd_to_recover_or_restore()
@jit
def bbr_set_cwnd_to_recover_or_restore(bbr: Bbr, tp: Socket, rs: RateSample, log: Log) -> int:
    """v1: return the cwnd [packets] on entering, during and after recovery.

    If packet_conservation is set after the call, only the caps may still lower that cwnd.
    """
    acked, state, prev_state = rs.acked_sacked, tp.icsk_ca_state, bbr.prev_ca_state
    inflight = tcp_packets_in_flight(tp)
    cwnd = tp.snd_cwnd
    if rs.losses > 0:  # a packet left the network without an ACK
        old, new = cwnd, max(s32(cwnd - rs.losses), 1)
        note(log, codes.CWND_LOSS_DEDUCT, rs.losses, old, new)
        cwnd = new

    if state == TCP_CA_RECOVERY and prev_state != TCP_CA_RECOVERY:
        bbr.packet_conservation = 1
        bbr.next_rtt_delivered = tp.delivered  # conserve for one round from now
        old, new = cwnd, u32(inflight + acked)
        note(log, codes.CONSERVE_START, old, new, inflight, acked)
        cwnd = new
    elif prev_state >= TCP_CA_RECOVERY and state < TCP_CA_RECOVERY:
        cwnd = _end_recovery(bbr, cwnd, log)
    bbr.prev_ca_state = state

    if bbr.packet_conservation:
        cwnd = max(cwnd, u32(inflight + acked))
        new = cwnd
        note(log, codes.CWND_CONSERVE, new, inflight, acked)
    return cwnd


@jit
def _end_recovery(bbr: Bbr, old: int, log: Log) -> int:
    """The cwnd to return to."""
    new = max(old, bbr.prior_cwnd)
    note(log, codes.RECOVERY_RESTORE, old, new, bbr.prior_cwnd)
    if bbr.packet_conservation:
        note(log, codes.CONSERVE_END_EXIT)
    bbr.packet_conservation = 0
    return new


# v1 bbr_set_cwnd()
@jit
def set_cwnd_with_conservation(
    bbr: Bbr, tp: Socket, rs: RateSample, bw: int, gain: int, p: Params, log: Log
) -> None:
    """v1: recovery and packet conservation first, then towards the target, then the caps."""
    acked = rs.acked_sacked
    if not acked:
        note(log, codes.CWND_NO_ACK, tp.snd_cwnd)
        _apply_caps(bbr, tp, tp.snd_cwnd, p, log)
        return
    cwnd = bbr_set_cwnd_to_recover_or_restore(bbr, tp, rs, log)
    if bbr.packet_conservation:
        _apply_caps(bbr, tp, cwnd, p, log)
        return

    bdp = bbr_bdp(bbr, bw, gain, p)
    agg = bbr_ack_aggregation_cwnd(bbr, p)
    target = bbr_quantization_budget(bbr, tp, u32(bdp + agg), p)
    old = cwnd
    if bbr.full_bw_reached:
        cwnd = min(u32(cwnd + acked), target)
        _note_growth(old, cwnd, acked, target, bdp, agg, log)
    elif cwnd < target or tp.delivered < TCP_INIT_CWND:
        cwnd = u32(cwnd + acked)
        _note_growth(old, cwnd, acked, target, bdp, agg, log)
    else:
        note(log, codes.CWND_HOLD, cwnd, target)
    _apply_caps(bbr, tp, _floor(cwnd, p, log), p, log)
