"""The path's round trip: min_rtt_us, and the shorter filter that times PROBE_RTT in v2 and v3."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import after, msecs_to_jiffies, u32
from ..log import note
from ..params import Params
from ..records import Bbr, Log, RateSample, Socket
from ..tcp import tcp_jiffies32


# v1 bbr_update_min_rtt(), its first half
@jit
def filter_min_rtt_by_one_window(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    """v1: one filter serves min_rtt and PROBE_RTT. True if its window has expired."""
    expire = u32(bbr.min_rtt_stamp + p.min_rtt_win_sec * p.HZ)
    expired = after(tcp_jiffies32(tp), expire)
    _note_unused_sample(rs.rtt_us, bbr.min_rtt_us, expired, rs.is_ack_delayed, log)
    if rs.rtt_us >= 0 and (rs.rtt_us < bbr.min_rtt_us or (expired and not rs.is_ack_delayed)):
        old_us, new_us = bbr.min_rtt_us, u32(rs.rtt_us)
        code = codes.MINRTT_NEW if rs.rtt_us < old_us else codes.MINRTT_EXPIRED_REPLACED
        note(log, code, old_us, new_us)
        bbr.min_rtt_us = new_us
        bbr.min_rtt_stamp = tcp_jiffies32(tp)
    return expired


# v2 bbr_update_min_rtt(); v3 bbr_update_min_rtt(), their first half
@jit
def filter_min_rtt_by_two_windows(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> bool:
    """v2, v3: a short filter times PROBE_RTT and feeds the long one. True if the short expired."""
    expire = u32(bbr.probe_rtt_min_stamp + msecs_to_jiffies(p.probe_rtt_win_ms, p.HZ))
    probe_rtt_expired = after(tcp_jiffies32(tp), expire)
    _note_unused_sample(rs.rtt_us, bbr.min_rtt_us, probe_rtt_expired, rs.is_ack_delayed, log)
    lower = rs.rtt_us < bbr.probe_rtt_min_us or (
        p.min_rtt_accepts_equal and rs.rtt_us == bbr.probe_rtt_min_us
    )
    if rs.rtt_us >= 0 and (lower or (probe_rtt_expired and not rs.is_ack_delayed)):
        old_us, new_us = bbr.probe_rtt_min_us, u32(rs.rtt_us)
        if new_us != old_us:
            note(log, codes.PRTT_MIN_NEW, old_us, new_us)
        bbr.probe_rtt_min_us = new_us
        bbr.probe_rtt_min_stamp = tcp_jiffies32(tp)
    _feed_long_filter(bbr, tp, p, log)
    return probe_rtt_expired


@jit
def _feed_long_filter(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Take the short filter's minimum if it is as low, or if min_rtt_us is too old."""
    expire = u32(bbr.min_rtt_stamp + p.min_rtt_win_sec * p.HZ)
    min_rtt_expired = after(tcp_jiffies32(tp), expire)
    if bbr.probe_rtt_min_us <= bbr.min_rtt_us or min_rtt_expired:
        old_us, new_us = bbr.min_rtt_us, bbr.probe_rtt_min_us
        if new_us != old_us:
            code = codes.MINRTT_NEW if new_us < old_us else codes.MINRTT_EXPIRED_REPLACED
            note(log, code, old_us, new_us)
        bbr.min_rtt_us = new_us
        bbr.min_rtt_stamp = bbr.probe_rtt_min_stamp


@jit
def _note_unused_sample(
    rtt_us: int, min_rtt_us: int, expired: bool, is_ack_delayed: int, log: Log
) -> None:
    if rtt_us < 0:
        note(log, codes.MINRTT_KEEP_NO_SAMPLE, min_rtt_us)
    elif expired and is_ack_delayed and rtt_us > min_rtt_us:
        note(log, codes.MINRTT_SKIP_DELAYED_ACK, rtt_us, min_rtt_us)
