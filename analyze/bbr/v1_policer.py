"""v1's long-term bandwidth sampler: does a token-bucket policer hold the flow down?

A recovered interval of at least four lossy rounds with 20 % loss gives a rate; two consecutive ones
that agree are taken for a policer's, and the flow paces at their mean for 48 rounds.
"""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .ints import BBR_UNIT, BW_UNIT, U32_MAX, USEC_PER_MSEC, i64, s32, u32, u64
from .log import note
from .pacing import bbr_rate_bytes_per_sec
from .params import Params
from .records import BBR_PROBE_BW, Bbr, Log, RateSample, Socket
from .v1_cycle import bbr_reset_probe_bw_mode

BBR_LT_INTVL_MIN_RTTS = 4
BBR_LT_LOSS_THRESH = 50  # of 256
BBR_LT_BW_RATIO = BBR_UNIT // 8
BBR_LT_BW_DIFF = 4000 // 8  # bytes/s
BBR_LT_BW_MAX_RTTS = 48
_LT_RTT_CNT_MASK = 0x7F


# tcp_bbr.c bbr_reset_lt_bw_sampling_interval()
@jit
def bbr_reset_lt_bw_sampling_interval(bbr: Bbr, tp: Socket) -> None:
    bbr.lt_last_stamp = u32(tp.delivered_mstamp // USEC_PER_MSEC)
    bbr.lt_last_delivered = tp.delivered
    bbr.lt_last_lost = tp.lost
    bbr.lt_rtt_cnt = 0


# tcp_bbr.c bbr_reset_lt_bw_sampling()
@jit
def bbr_reset_lt_bw_sampling(bbr: Bbr, tp: Socket) -> None:
    bbr.lt_bw = 0
    bbr.lt_use_bw = 0
    bbr.lt_is_sampling = 0
    bbr_reset_lt_bw_sampling_interval(bbr, tp)


# tcp_bbr.c bbr_lt_bw_interval_done(); its u32 products wrap as in C
@jit
def bbr_lt_bw_interval_done(bbr: Bbr, tp: Socket, bw: int, p: Params, log: Log) -> None:
    if bbr.lt_bw:
        diff = u32(abs(s32(bw - bbr.lt_bw)))
        by_ratio = u32(diff * BBR_UNIT) <= u32(BBR_LT_BW_RATIO * bbr.lt_bw)
        diff_rate = bbr_rate_bytes_per_sec(tp, diff, BBR_UNIT, p.pacing_margin_percent, 0)
        if by_ratio or diff_rate <= u64(BBR_LT_BW_DIFF):
            old = bbr.lt_bw
            bbr.lt_bw = u32(bw + old) >> 1
            bbr.lt_use_bw = 1
            bbr.pacing_gain = BBR_UNIT  # try to avoid drops
            bbr.lt_rtt_cnt = 0
            code = codes.LT_USE_RATIO if by_ratio else codes.LT_USE_DIFF
            note(log, code, bw, old, bbr.lt_bw)
            return
    note(log, codes.LT_INTERVAL_FIRST, bw, bbr.lt_bw)
    bbr.lt_bw = bw
    bbr_reset_lt_bw_sampling_interval(bbr, tp)


@jit
def _use_estimate(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """The estimate is in use: count its rounds and retire it."""
    if bbr.mode != BBR_PROBE_BW or not bbr.round_start:
        return
    bbr.lt_rtt_cnt = (bbr.lt_rtt_cnt + 1) & _LT_RTT_CNT_MASK
    if bbr.lt_rtt_cnt >= BBR_LT_BW_MAX_RTTS:
        note(log, codes.LT_END_48R, bbr.lt_bw, bbr.lt_rtt_cnt)
        bbr_reset_lt_bw_sampling(bbr, tp)
        bbr_reset_probe_bw_mode(bbr, tp, p, log)  # resume gain cycling
    else:
        note(log, codes.LT_IN_USE, bbr.lt_bw, bbr.lt_rtt_cnt)


# tcp_bbr.c bbr_lt_bw_sampling()
@jit
def bbr_lt_bw_sampling(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    if bbr.lt_use_bw:
        _use_estimate(bbr, tp, p, log)
        return
    if not bbr.lt_is_sampling:
        if not rs.losses:
            return
        bbr_reset_lt_bw_sampling_interval(bbr, tp)
        bbr.lt_is_sampling = 1
        note(log, codes.LT_SAMPLE_START, rs.losses)
    if rs.is_app_limited:
        note(log, codes.LT_RESET_APPLIMITED, bbr.lt_rtt_cnt)
        bbr_reset_lt_bw_sampling(bbr, tp)
        return
    if bbr.round_start:
        bbr.lt_rtt_cnt = (bbr.lt_rtt_cnt + 1) & _LT_RTT_CNT_MASK
    if bbr.lt_rtt_cnt < BBR_LT_INTVL_MIN_RTTS:
        note(log, codes.LT_WAIT_ROUNDS, bbr.lt_rtt_cnt, BBR_LT_INTVL_MIN_RTTS)
        return
    if bbr.lt_rtt_cnt > 4 * BBR_LT_INTVL_MIN_RTTS:
        note(log, codes.LT_RESET_TOO_LONG, bbr.lt_rtt_cnt, 4 * BBR_LT_INTVL_MIN_RTTS)
        bbr_reset_lt_bw_sampling(bbr, tp)
        return
    if not rs.losses:  # end the interval where its loss is
        note(log, codes.LT_WAIT_LOSS, bbr.lt_rtt_cnt)
        return
    _close_interval(bbr, tp, p, log)


@jit
def _close_interval(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Second half of bbr_lt_bw_sampling(): is the interval lossy and long enough?"""
    lost = u32(tp.lost - bbr.lt_last_lost)
    delivered = u32(tp.delivered - bbr.lt_last_delivered)
    if not delivered or u32(lost * BBR_UNIT) < u32(BBR_LT_LOSS_THRESH * delivered):
        note(log, codes.LT_WAIT_RATE, lost, delivered)
        return
    t = u32(u32(tp.delivered_mstamp // USEC_PER_MSEC) - bbr.lt_last_stamp)
    if s32(t) < 1:
        note(log, codes.LT_WAIT_MS, s32(t))
        return
    if t >= U32_MAX // USEC_PER_MSEC:
        note(log, codes.LT_RESET_TIME, t)
        bbr_reset_lt_bw_sampling(bbr, tp)
        return
    bw = u64(u64(delivered) * u64(BW_UNIT)) // u64(t * USEC_PER_MSEC)
    bbr_lt_bw_interval_done(bbr, tp, u32(i64(bw)), p, log)
