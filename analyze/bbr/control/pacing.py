"""Pacing rate and the TSO burst that follows from it."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import i64, u32, u64
from ..kernel_units import BBR_SCALE, BW_SCALE, BW_UNIT, U32_MAX, USEC_PER_MSEC, USEC_PER_SEC
from ..log import note
from ..params import Params
from ..records import Bbr, Log, Socket


# v1 bbr_rate_bytes_per_sec(); v2 bbr_rate_bytes_per_sec(); v3 bbr_rate_bytes_per_sec()
@jit
def bbr_rate_bytes_per_sec(tp: Socket, bw: int, gain: int, margin: int, floor: int) -> int:
    """`bw` [pkts/us << 24] with a gain, less `margin` percent, as u64 bytes per second.

    v1 has no floor (0); v2 and v3 never return less than 1. The order of the shifts is what keeps
    the product in 64 bits.
    """
    rate = u64(u64(bw) * u64(tp.mss_cache))
    rate = u64(rate * u64(gain))
    rate = rate >> u64(BBR_SCALE)
    rate = u64(rate * u64(USEC_PER_SEC // 100 * (100 - margin)))
    rate = rate >> u64(BW_SCALE)
    return max(rate, u64(floor))


# v1 bbr_bw_to_pacing_rate(); v2 bbr_bw_to_pacing_rate(); v3 bbr_bw_to_pacing_rate()
@jit
def bbr_bw_to_pacing_rate(tp: Socket, bw: int, gain: int, p: Params) -> int:
    """`bw` with a gain as a pacing rate [bytes/s, u64], within SO_MAX_PACING_RATE."""
    rate = bbr_rate_bytes_per_sec(tp, bw, gain, p.pacing_margin_percent, p.pacing_floor)
    return min(rate, u64(tp.sk_max_pacing_rate))


# v1 bbr_init_pacing_rate_from_rtt(); v2 bbr_init_pacing_rate_from_rtt()
# v3 bbr_init_pacing_rate_from_rtt()
@jit
def bbr_init_pacing_rate_from_rtt(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Pace at high_gain x cwnd / RTT; the RTT is taken as 1 ms while none is known."""
    if tp.srtt_us:
        rtt_us = max(tp.srtt_us >> 3, 1)
        bbr.has_seen_rtt = 1
    else:
        rtt_us = USEC_PER_MSEC
    bw = u32(tp.snd_cwnd * BW_UNIT // rtt_us)  # do_div, then cut to bbr_bw_to_pacing_rate's u32
    new_rate = bbr_bw_to_pacing_rate(tp, bw, p.high_gain, p)
    tp.sk_pacing_rate = new_rate
    note(log, codes.PACE_FIRST_RTT, i64(new_rate), tp.snd_cwnd, rtt_us)


# v1 bbr_set_pacing_rate(); v2 bbr_set_pacing_rate(); v3 bbr_set_pacing_rate()
@jit
def bbr_set_pacing_rate(bbr: Bbr, tp: Socket, bw: int, gain: int, p: Params, log: Log) -> None:
    """Pace at `gain` x `bw`; until the pipe is full, never lower than before."""
    rate = bbr_bw_to_pacing_rate(tp, bw, gain, p)
    if not bbr.has_seen_rtt and tp.srtt_us:
        bbr_init_pacing_rate_from_rtt(bbr, tp, p, log)
    old_rate = u64(tp.sk_pacing_rate)
    if bbr.full_bw_reached or rate > old_rate:
        new_rate = rate
        tp.sk_pacing_rate = new_rate
        if new_rate != old_rate:
            note(log, codes.PACE_SET, i64(old_rate), i64(new_rate), bw, gain)
    elif rate != old_rate:
        note(log, codes.PACE_HOLD_STARTUP, i64(old_rate), i64(rate))


# v1 bbr_min_tso_segs(); v2 bbr_min_tso_segs(); v3 bbr_tso_segs_generic()
@jit
def _min_tso_segs(tp: Socket, p: Params) -> int:
    """Least segments of a burst: v3 asks net.ipv4.tcp_min_tso_segs, v1 and v2 the pacing rate."""
    if p.min_tso_segs:
        return p.min_tso_segs
    return 1 if u64(tp.sk_pacing_rate) < u64(p.min_tso_rate >> 3) else 2


# v1 bbr_tso_segs_goal(); v2 bbr_tso_segs_goal(), bbr_tso_segs_generic()
# v3 bbr_tso_segs_goal(), bbr_tso_segs_generic()
@jit
def bbr_tso_segs_goal(bbr: Bbr, tp: Socket, p: Params) -> int:
    """Segments in the burst that would be sent at the current pacing rate."""
    burst = u64(tp.sk_pacing_rate) >> u64(tp.sk_pacing_shift)
    if p.tso_rtt_shift:  # v2, v3: a short RTT allows bigger bursts
        r = bbr.min_rtt_us >> p.tso_rtt_shift
        if r < 32:
            burst = u64(burst + u64(p.gso_max_size >> r))
    limit = p.gso_max_size - 1 - p.max_tcp_header
    if p.tso_bytes_u32:  # min_t(u32, ...) cuts the u64 first
        size = min(i64(burst & u64(U32_MAX)), limit)
    else:
        size = limit if burst > u64(limit) else i64(burst)
    segs = max(size // tp.mss_cache, _min_tso_segs(tp, p))
    if p.tso_segs_cap:
        segs = min(segs, p.tso_segs_cap)
    return segs
