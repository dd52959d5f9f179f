"""Volumes: BDP, target inflight, what is in the network, and the bounds with headroom."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..control.pacing import bbr_tso_segs_goal
from ..ints import bw_times, i64, mul_shift, s32, u32, u64
from ..kernel_units import BBR_SCALE, BBR_UNIT, BW_SCALE, BW_UNIT, NSEC_PER_USEC, U32_MAX
from ..params import Params
from ..records import BBR_BW_PROBE_UP, BBR_PROBE_BW, Bbr, Socket
from .aggregation import bbr_extra_acked
from .bandwidth import bbr_bw


# v1 bbr_bdp(); v2 bbr_bdp(); v3 bbr_bdp()
@jit
def bbr_bdp(bbr: Bbr, bw: int, gain: int, p: Params) -> int:
    """`gain` x bandwidth-delay product [packets], rounded up."""
    if bbr.min_rtt_us == U32_MAX:  # no valid RTT sample yet
        return p.bdp_without_rtt if p.bdp_without_rtt else bbr.init_cwnd
    w = u64(bw_times(bw, bbr.min_rtt_us) * u64(gain)) >> u64(BBR_SCALE)
    return u32(i64(u64(w + u64(BW_UNIT - 1)) >> u64(BW_SCALE)))


# v1 bbr_quantization_budget(); v2 bbr_quantization_budget(); v3 bbr_quantization_budget()
@jit
def bbr_quantization_budget(bbr: Bbr, tp: Socket, cwnd: int, p: Params) -> int:
    """cwnd with room for TSO bursts [packets]: v1 adds three; v2, v3 allow no less than three."""
    bursts = 3 * bbr_tso_segs_goal(bbr, tp, p)
    if p.cwnd_tso_budget == 1:
        cwnd = max(cwnd, bursts, p.cwnd_min_target)
    else:
        cwnd = u32(u32(cwnd + bursts) + 1) & ~1
    # v1's cycle_idx 0 is the 1.25x phase, as is UP in v2 and v3.
    if bbr.mode == BBR_PROBE_BW and bbr.cycle_idx == BBR_BW_PROBE_UP:
        cwnd += 2
    return u32(cwnd)


# v1 bbr_inflight(); v2 bbr_inflight(); v3 bbr_inflight()
@jit
def bbr_inflight(bbr: Bbr, tp: Socket, bw: int, gain: int, p: Params) -> int:
    """Volume to have in flight at `gain` x `bw` [packets]."""
    return bbr_quantization_budget(bbr, tp, bbr_bdp(bbr, bw, gain, p), p)


# v1 bbr_packets_in_net_at_edt(); v2 bbr_packets_in_net_at_edt(); v3 bbr_packets_in_net_at_edt()
@jit
def bbr_packets_in_net_at_edt(bbr: Bbr, tp: Socket, inflight_now: int, p: Params) -> int:
    """Packets still in the network when the next one is due to leave.

    pacing_gain is the one chosen on the previous ACK.
    """
    edt_ns = max(tp.tcp_wstamp_ns, tp.tcp_clock_cache)
    interval_us = (edt_ns - tp.tcp_clock_cache) // NSEC_PER_USEC
    interval_delivered = mul_shift(bbr_bw(bbr, p), interval_us, BW_SCALE)
    inflight_at_edt = inflight_now
    if bbr.pacing_gain > BBR_UNIT:  # increasing: include the burst that departs then
        inflight_at_edt = u32(inflight_at_edt + bbr_tso_segs_goal(bbr, tp, p))
    if interval_delivered >= inflight_at_edt:
        return 0
    return inflight_at_edt - interval_delivered


# v1 bbr_ack_aggregation_cwnd(); v2 bbr_ack_aggregation_cwnd(); v3 bbr_ack_aggregation_cwnd()
@jit
def bbr_ack_aggregation_cwnd(bbr: Bbr, p: Params) -> int:
    """Packets on top of the BDP while ACKs come in bursts; v1 adds none in STARTUP."""
    if not p.extra_acked_gain or not (bbr.full_bw_reached or p.extra_acked_in_startup):
        return 0
    max_aggr_cwnd = mul_shift(bbr_bw(bbr, p), p.extra_acked_max_us, BW_SCALE)
    return min(p.extra_acked_gain * bbr_extra_acked(bbr) >> BBR_SCALE, max_aggr_cwnd)


# v1 bbr_set_cwnd(), bbr_update_min_rtt(); v2 bbr_probe_rtt_cwnd(); v3 bbr_probe_rtt_cwnd()
@jit
def bbr_probe_rtt_cwnd(bbr: Bbr, p: Params) -> int:
    """The window of PROBE_RTT [packets]; v1's is the constant cwnd_min_target."""
    if p.probe_rtt_cwnd_gain == 0:
        return p.cwnd_min_target
    return max(p.cwnd_min_target, bbr_bdp(bbr, bbr_bw(bbr, p), p.probe_rtt_cwnd_gain, p))


# v2 bbr2_target_inflight(); v3 bbr_target_inflight()
@jit
def bbr_target_inflight(bbr: Bbr, tp: Socket, p: Params) -> int:
    """The smaller of bbr_inflight() at gain 1.0 and cwnd [packets]."""
    return min(bbr_inflight(bbr, tp, bbr_bw(bbr, p), BBR_UNIT, p), tp.snd_cwnd)


# v2 bbr2_inflight_with_headroom(); v3 bbr_inflight_with_headroom()
@jit
def bbr_inflight_with_headroom(bbr: Bbr, p: Params) -> int:
    """inflight_hi less the share left to others; ~0U if there is no bound."""
    if bbr.inflight_hi == U32_MAX:
        return U32_MAX
    headroom = max(mul_shift(bbr.inflight_hi, p.inflight_headroom, BBR_SCALE), 1)
    return u32(max(s32(bbr.inflight_hi - headroom), p.cwnd_min_target))
