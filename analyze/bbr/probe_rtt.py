"""min_rtt and PROBE_RTT: when to drain the queue to see the path's true RTT, and for how long."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import bbr_probe_rtt_cwnd
from .ints import MSEC_PER_SEC, after, msecs_to_jiffies, u32
from .log import note
from .lower_bounds import bbr_reset_lower_bounds
from .model import tcp_jiffies32, tcp_packets_in_flight
from .params import Params
from .phases import bbr_start_bw_probe_cruise, bbr_start_bw_probe_down
from .records import (
    BBR_ACKS_PROBE_STOPPING,
    BBR_PROBE_BW,
    BBR_PROBE_RTT,
    BBR_STARTUP,
    Bbr,
    Log,
    RateSample,
    Socket,
)
from .recovery import bbr_save_cwnd
from .v1_cycle import bbr_reset_probe_bw_mode


# tcp_bbr.c bbr_update_min_rtt(), v1: one filter serves min_rtt and PROBE_RTT
@jit
def bbr1_update_min_rtt(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    expiring_us = bbr.min_rtt_us  # for the record: the sample below may replace it
    expire = u32(bbr.min_rtt_stamp + p.min_rtt_win_sec * p.HZ)
    expired = after(tcp_jiffies32(tp), expire)
    _note_sample(rs.rtt_us, bbr.min_rtt_us, expired, rs.is_ack_delayed, log)
    if rs.rtt_us >= 0 and (rs.rtt_us < bbr.min_rtt_us or (expired and not rs.is_ack_delayed)):
        old, sample = bbr.min_rtt_us, u32(rs.rtt_us)
        code = codes.MINRTT_NEW if rs.rtt_us < old else codes.MINRTT_EXPIRED_REPLACED
        note(log, code, old, sample)
        bbr.min_rtt_us = sample
        bbr.min_rtt_stamp = tcp_jiffies32(tp)
    window_ms = p.min_rtt_win_sec * MSEC_PER_SEC
    _enter(bbr, tp, expired, expiring_us, window_ms, p, log)
    _dwell(bbr, tp, p, log)
    _end_idle_restart(bbr, rs, log)


# tcp_bbr2.c bbr_update_min_rtt(): a short filter times PROBE_RTT and feeds the long one
@jit
def bbr_update_min_rtt(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    expiring_us = bbr.probe_rtt_min_us  # for the record: the sample below may replace it
    expire = u32(bbr.probe_rtt_min_stamp + msecs_to_jiffies(p.probe_rtt_win_ms, p.HZ))
    probe_rtt_expired = after(tcp_jiffies32(tp), expire)
    _note_sample(rs.rtt_us, bbr.min_rtt_us, probe_rtt_expired, rs.is_ack_delayed, log)
    lower = rs.rtt_us < bbr.probe_rtt_min_us or (
        p.min_rtt_accepts_equal and rs.rtt_us == bbr.probe_rtt_min_us  # v2
    )
    if rs.rtt_us >= 0 and (lower or (probe_rtt_expired and not rs.is_ack_delayed)):
        sample = u32(rs.rtt_us)
        if sample != bbr.probe_rtt_min_us:
            note(log, codes.PRTT_MIN_NEW, bbr.probe_rtt_min_us, sample)
        bbr.probe_rtt_min_us = sample
        bbr.probe_rtt_min_stamp = tcp_jiffies32(tp)

    expire = u32(bbr.min_rtt_stamp + p.min_rtt_win_sec * p.HZ)
    min_rtt_expired = after(tcp_jiffies32(tp), expire)
    if bbr.probe_rtt_min_us <= bbr.min_rtt_us or min_rtt_expired:
        old, new = bbr.min_rtt_us, bbr.probe_rtt_min_us
        if new != old:
            code = codes.MINRTT_NEW if new < old else codes.MINRTT_EXPIRED_REPLACED
            note(log, code, old, new)
        bbr.min_rtt_us = new
        bbr.min_rtt_stamp = bbr.probe_rtt_min_stamp

    if _enter(bbr, tp, probe_rtt_expired, expiring_us, p.probe_rtt_win_ms, p, log):
        bbr.ack_phase = BBR_ACKS_PROBE_STOPPING
        bbr.next_rtt_delivered = tp.delivered
    _dwell(bbr, tp, p, log)
    _end_idle_restart(bbr, rs, log)


@jit
def _note_sample(rtt_us: int, min_rtt_us: int, expired: bool, delayed: int, log: Log) -> None:
    if rtt_us < 0:
        note(log, codes.MINRTT_KEEP_NO_SAMPLE, min_rtt_us)
    elif expired and delayed and rtt_us > min_rtt_us:
        note(log, codes.MINRTT_SKIP_DELAYED_ACK, rtt_us, min_rtt_us)


@jit
def _enter(
    bbr: Bbr, tp: Socket, expired: bool, filter_us: int, window_ms: int, p: Params, log: Log
) -> bool:
    if p.probe_rtt_mode_ms <= 0 or not expired or bbr.mode == BBR_PROBE_RTT:
        return False
    if bbr.idle_restart:
        note(log, codes.PRTT_SKIP_IDLE)
        return False
    bbr.mode = BBR_PROBE_RTT
    note(
        log,
        codes.PRTT_ENTER_EXPIRED,
        filter_us,
        window_ms,
        bbr_probe_rtt_cwnd(bbr, p),
        tp.snd_cwnd,
    )
    bbr_save_cwnd(bbr, tp, log)
    bbr.probe_rtt_done_stamp = 0
    return True


@jit
def _dwell(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Hold inflight low for 200 ms and one round, once it has become low."""
    if bbr.mode != BBR_PROBE_RTT:
        return
    inflight = tcp_packets_in_flight(tp)
    app_limited = u32(tp.delivered + inflight)
    tp.app_limited = app_limited if app_limited else 1  # ignore the low rate samples
    if bbr.probe_rtt_done_stamp == 0:
        cap = bbr_probe_rtt_cwnd(bbr, p)
        if inflight > cap:
            note(log, codes.PRTT_WAIT_INFLIGHT, inflight, cap)
            return
        dwell = msecs_to_jiffies(p.probe_rtt_mode_ms, p.HZ)
        bbr.probe_rtt_done_stamp = u32(tcp_jiffies32(tp) + dwell)
        bbr.probe_rtt_round_done = 0
        bbr.next_rtt_delivered = tp.delivered
        note(log, codes.PRTT_DWELL_START, inflight, cap, bbr.probe_rtt_done_stamp)
        return
    if bbr.round_start:
        bbr.probe_rtt_round_done = 1
    if bbr.probe_rtt_round_done:
        bbr_check_probe_rtt_done(bbr, tp, p, log)
    else:
        note(log, codes.PRTT_WAIT_ROUND, inflight)


@jit
def _end_idle_restart(bbr: Bbr, rs: RateSample, log: Log) -> None:
    if rs.delivered > 0:
        if bbr.idle_restart:
            note(log, codes.IDLE_RESTART_END, rs.delivered)
        bbr.idle_restart = 0


# tcp_bbr.c bbr_check_probe_rtt_done()
@jit
def bbr_check_probe_rtt_done(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """Leave PROBE_RTT if its time is up."""
    if bbr.probe_rtt_done_stamp == 0:
        return False
    now = tcp_jiffies32(tp)
    if not after(now, bbr.probe_rtt_done_stamp):
        note(log, codes.PRTT_WAIT_TIME, bbr.probe_rtt_done_stamp, now)
        return False
    stamp = tcp_jiffies32(tp)  # schedules the next PROBE_RTT
    if p.version == 1:
        bbr.min_rtt_stamp = stamp
    else:
        bbr.probe_rtt_min_stamp = stamp
    old = tp.snd_cwnd
    tp.snd_cwnd = max(old, bbr.prior_cwnd)
    _exit(bbr, tp, old, p, log)
    return True


# tcp_bbr2.c bbr2_exit_probe_rtt(); v1: bbr_reset_mode()
@jit
def _exit(bbr: Bbr, tp: Socket, old_cwnd: int, p: Params, log: Log) -> None:
    if not bbr.full_bw_reached:
        note(log, codes.PRTT_EXIT_STARTUP, bbr.min_rtt_us, old_cwnd, tp.snd_cwnd)
    elif p.version == 1:
        note(log, codes.PRTT_EXIT_PBW, bbr.min_rtt_us, old_cwnd, tp.snd_cwnd)
    else:
        note(log, codes.PRTT_EXIT_CRUISE, bbr.min_rtt_us, old_cwnd, tp.snd_cwnd)
    if p.version == 1:
        if bbr.full_bw_reached:
            bbr_reset_probe_bw_mode(bbr, tp, p, log)
        else:
            bbr.mode = BBR_STARTUP
        return
    bbr_reset_lower_bounds(bbr, codes.BWLO_RESET_PRTT_EXIT, codes.LO_RESET_PRTT_EXIT, log)
    if bbr.full_bw_reached:
        bbr.mode = BBR_PROBE_BW
        bbr_start_bw_probe_down(bbr, tp, p, log)  # draws the wait
        bbr_start_bw_probe_cruise(bbr, log)
        note(log, codes.CRUISE_AFTER_PRTT, bbr.probe_wait_us)
    else:
        bbr.mode = BBR_STARTUP
