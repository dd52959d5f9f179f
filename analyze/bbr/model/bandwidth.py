"""The bandwidth of the path: delivery rate samples, their maximum, and the rate to send at."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import i64, u32, u64
from ..kernel_units import BW_UNIT
from ..log import note
from ..params import Params
from ..records import Bbr, Log, RateSample


# v1 bbr_max_bw(); v2 bbr_max_bw(); v3 bbr_max_bw()
@jit
def bbr_max_bw(bbr: Bbr, p: Params) -> int:
    """Maximum of the recent bandwidth samples [pkts/us << 24]."""
    if p.max_bw_by_rounds:
        return bbr.bw_v[0]  # minmax_get()
    return max(bbr.bw_hi[0], bbr.bw_hi[1])


# v1 bbr_bw(); v2 bbr_bw(); v3 bbr_bw()
@jit
def bbr_bw(bbr: Bbr, p: Params) -> int:
    """The bandwidth to send at, before gains [pkts/us << 24]."""
    if p.has_lower_bounds:
        return min(bbr_max_bw(bbr, p), bbr.bw_lo)
    return bbr.lt_bw if bbr.lt_use_bw else bbr_max_bw(bbr, p)


# v2 bbr_calculate_bw_sample(); v3 bbr_calculate_bw_sample()
@jit
def bbr_calculate_bw_sample(bbr: Bbr, rs: RateSample) -> None:
    """Set sample_bw [pkts/us << 24], rounded up so that low rates can grow; 0 if invalid."""
    rs.sample_bw = 0
    if rs.interval_us > 0 and rs.delivered < 0:  # the kernel warns and gives up
        return
    if rs.interval_us > 0:
        scaled = u64(u64(rs.delivered) * u64(BW_UNIT))
        scaled = u64(scaled + u64(rs.interval_us - 1))
        rs.sample_bw = u32(i64(scaled // u64(u32(rs.interval_us))))  # do_div: u32 divisor
    bbr.debug_rs_bw = rs.sample_bw


# v2 bbr2_take_bw_hi_sample(); v3 bbr_take_max_bw_sample()
@jit
def bbr_take_max_bw_sample(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    """Enter the sample into this cycle's maximum.

    Not if it is application-limited and below max_bw: the kernel checks that in the caller,
    *_update_congestion_signals().
    """
    max_bw = bbr_max_bw(bbr, p)
    if rs.is_app_limited and rs.sample_bw < max_bw:
        note(log, codes.BWHI_SKIP_APPLIMITED, rs.sample_bw, max_bw)
        return
    if rs.sample_bw > bbr.bw_hi[1]:
        bbr.bw_hi[1] = rs.sample_bw
        note(log, codes.BWHI_SAMPLE, rs.sample_bw, max_bw)


# v2 bbr2_advance_bw_hi_filter(); v3 bbr_advance_max_bw_filter()
@jit
def bbr_advance_max_bw_filter(bbr: Bbr, log: Log) -> None:
    """A probe cycle is over: forget the maximum of the cycle before it."""
    if not bbr.bw_hi[1]:
        note(log, codes.BWHI_KEEP_EMPTY, bbr.bw_hi[0])
        return
    note(log, codes.BWHI_ADVANCE, bbr.bw_hi[1], bbr.bw_hi[0])
    bbr.bw_hi[0] = bbr.bw_hi[1]
    bbr.bw_hi[1] = 0
