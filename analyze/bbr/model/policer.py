"""v1's long-term bandwidth sampler: does a token-bucket policer hold the flow down?

An interval begins and ends with a loss, lasts four to sixteen rounds, and gives a rate if at least
50/256 (20 %) as many packets were lost as delivered. If the rates of two intervals in a row agree,
they are taken for a policer's, and the flow paces at their mean for 48 rounds of PROBE_BW.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.pacing import bbr_rate_bytes_per_sec
from ..ints import i64, s32, u32, u64
from ..kernel_units import BBR_UNIT, BW_UNIT, U32_MAX, USEC_PER_MSEC
from ..log import note
from ..params import Params
from ..records import BBR_PROBE_BW, Bbr, Log, RateSample, Socket

BBR_LT_INTVL_MIN_RTTS = 4
BBR_LT_LOSS_THRESH = 50  # of 256
BBR_LT_BW_RATIO = BBR_UNIT // 8
BBR_LT_BW_DIFF = 4000 // 8  # bytes/s
BBR_LT_BW_MAX_RTTS = 48
_LT_RTT_CNT_MASK = 0x7F


# v1 bbr_reset_lt_bw_sampling_interval()
@jit
def bbr_reset_lt_bw_sampling_interval(bbr: Bbr, tp: Socket) -> None:
    """Begin a new interval here."""
    bbr.lt_last_stamp = u32(tp.delivered_mstamp // USEC_PER_MSEC)
    bbr.lt_last_delivered = tp.delivered
    bbr.lt_last_lost = tp.lost
    bbr.lt_rtt_cnt = 0


# v1 bbr_reset_lt_bw_sampling()
@jit
def bbr_reset_lt_bw_sampling(bbr: Bbr, tp: Socket) -> None:
    """Forget what was sampled, and the rate taken for a policer's."""
    bbr.lt_bw = 0
    bbr.lt_use_bw = 0
    bbr.lt_is_sampling = 0
    bbr_reset_lt_bw_sampling_interval(bbr, tp)


# v1 bbr_lt_bw_interval_done()
@jit
def bbr_lt_bw_interval_done(bbr: Bbr, tp: Socket, bw: int, p: Params, log: Log) -> None:
    """Compare the interval's rate with the last one's; u32 products wrap as in C."""
    if bbr.lt_bw:
        diff = u32(abs(s32(bw - bbr.lt_bw)))
        by_ratio = u32(diff * BBR_UNIT) <= u32(BBR_LT_BW_RATIO * bbr.lt_bw)
        diff_rate = bbr_rate_bytes_per_sec(tp, diff, BBR_UNIT, p.pacing_margin_percent, 0)
        if by_ratio or diff_rate <= u64(BBR_LT_BW_DIFF):
            lt_bw = bbr.lt_bw
            new_lt_bw = u32(bw + lt_bw) >> 1
            bbr.lt_bw = new_lt_bw
            bbr.lt_use_bw = 1
            bbr.pacing_gain = BBR_UNIT  # try to avoid drops
            bbr.lt_rtt_cnt = 0
            code = codes.LT_USE_RATIO if by_ratio else codes.LT_USE_DIFF
            note(log, code, bw, lt_bw, new_lt_bw)
            return
    note(log, codes.LT_INTERVAL_FIRST, bw, bbr.lt_bw)
    bbr.lt_bw = bw
    bbr_reset_lt_bw_sampling_interval(bbr, tp)


# v1 bbr_lt_bw_sampling(), while the estimate is in use
@jit
def retire_estimate(bbr: Bbr, tp: Socket, log: Log) -> bool:
    """Count the rounds in which the estimate was used; True if it has just been given up."""
    if bbr.mode != BBR_PROBE_BW or not bbr.round_start:
        return False
    rounds = (bbr.lt_rtt_cnt + 1) & _LT_RTT_CNT_MASK
    bbr.lt_rtt_cnt = rounds
    if rounds < BBR_LT_BW_MAX_RTTS:
        note(log, codes.LT_IN_USE, bbr.lt_bw, rounds)
        return False
    note(log, codes.LT_END_48R, bbr.lt_bw, rounds)
    bbr_reset_lt_bw_sampling(bbr, tp)
    return True


# v1 bbr_lt_bw_sampling(), while no estimate is in use
@jit
def sample_interval(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Open an interval at the first loss, and close it where it is long and lossy enough."""
    if not bbr.lt_is_sampling:
        if not rs.losses:
            return
        bbr_reset_lt_bw_sampling_interval(bbr, tp)
        bbr.lt_is_sampling = 1
        note(log, codes.LT_SAMPLE_START, rs.losses)
    if rs.is_app_limited:
        rounds = bbr.lt_rtt_cnt
        note(log, codes.LT_RESET_APPLIMITED, rounds)
        bbr_reset_lt_bw_sampling(bbr, tp)
        return
    if bbr.round_start:
        bbr.lt_rtt_cnt = (bbr.lt_rtt_cnt + 1) & _LT_RTT_CNT_MASK
    if _is_interval_long_enough(bbr, tp, bbr.lt_rtt_cnt, log):
        if rs.losses:  # end the interval where its loss is
            _close_interval(bbr, tp, p, log)
        else:
            rounds = bbr.lt_rtt_cnt
            note(log, codes.LT_WAIT_LOSS, rounds)


@jit
def _is_interval_long_enough(bbr: Bbr, tp: Socket, rounds: int, log: Log) -> bool:
    """At least four rounds; after more than sixteen the interval starts over."""
    limit = BBR_LT_INTVL_MIN_RTTS
    if rounds < limit:
        note(log, codes.LT_WAIT_ROUNDS, rounds, limit)
        return False
    limit = 4 * BBR_LT_INTVL_MIN_RTTS
    if rounds > limit:
        note(log, codes.LT_RESET_TOO_LONG, rounds, limit)
        bbr_reset_lt_bw_sampling(bbr, tp)
        return False
    return True


# v1 bbr_lt_bw_sampling(), its second half
@jit
def _close_interval(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Is the interval lossy and old enough to tell a rate?"""
    lost = u32(tp.lost - bbr.lt_last_lost)
    delivered = u32(tp.delivered - bbr.lt_last_delivered)
    if not delivered or u32(lost * BBR_UNIT) < u32(BBR_LT_LOSS_THRESH * delivered):
        note(log, codes.LT_WAIT_RATE, lost, delivered)
        return
    ms = u32(u32(tp.delivered_mstamp // USEC_PER_MSEC) - bbr.lt_last_stamp)
    if s32(ms) < 1:
        note(log, codes.LT_WAIT_MS, s32(ms))
        return
    if ms >= U32_MAX // USEC_PER_MSEC:
        note(log, codes.LT_RESET_TIME, ms)
        bbr_reset_lt_bw_sampling(bbr, tp)
        return
    bw = u64(u64(delivered) * u64(BW_UNIT)) // u64(ms * USEC_PER_MSEC)
    bbr_lt_bw_interval_done(bbr, tp, u32(i64(bw)), p, log)
