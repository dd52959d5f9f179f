"""PROBE_RTT: drain the queue now and then, to see the path's true round trip."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.recovery import bbr_save_cwnd
from ..ints import after, msecs_to_jiffies, u32
from ..log import note
from ..model.inflight import bbr_probe_rtt_cwnd
from ..model.lower_bounds import bbr_reset_lower_bounds
from ..params import Params
from ..records import (
    BBR_ACKS_PROBE_STOPPING,
    BBR_PROBE_RTT,
    Bbr,
    Log,
    RateSample,
    Socket,
)
from ..tcp import tcp_jiffies32, tcp_packets_in_flight
from .phases import bbr_start_bw_probe_cruise, enter_probe_bw
from .startup import enter_startup
from .transition import transition_to


@jit
def is_probe_rtt_due(bbr: Bbr, expired: bool, p: Params, log: Log) -> bool:
    """The RTT filter has `expired`, and the flow does not restart from idle (an empty queue)."""
    if p.probe_rtt_mode_ms <= 0 or not expired or bbr.mode == BBR_PROBE_RTT:
        return False
    if bbr.idle_restart:
        note(log, codes.PRTT_SKIP_IDLE)
        return False
    return True


# v1 bbr_update_min_rtt(); v2 bbr_update_min_rtt(); v3 bbr_update_min_rtt()
@jit
def enter_probe_rtt(
    bbr: Bbr, tp: Socket, probe_rtt_min_us: int, window_ms: int, p: Params, log: Log
) -> None:
    """From any other mode; no RTT was as low as `probe_rtt_min_us` for `window_ms`."""
    transition_to(bbr, BBR_PROBE_RTT)
    probe_rtt_cwnd = bbr_probe_rtt_cwnd(bbr, p)
    note(log, codes.PRTT_ENTER_EXPIRED, probe_rtt_min_us, window_ms, probe_rtt_cwnd, tp.snd_cwnd)
    bbr_save_cwnd(bbr, tp, log)
    bbr.probe_rtt_done_stamp = 0


# v2 bbr_update_min_rtt(); v3 bbr_update_min_rtt()
@jit
def end_probe_upon_probe_rtt(bbr: Bbr, tp: Socket) -> None:
    """v2, v3: what is acknowledged from now on was not sent by a probe for bandwidth."""
    bbr.ack_phase = BBR_ACKS_PROBE_STOPPING
    bbr.next_rtt_delivered = tp.delivered


# v1 bbr_update_min_rtt(); v2 bbr_update_min_rtt(); v3 bbr_update_min_rtt()
@jit
def is_low_round_over(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """In PROBE_RTT: wait for low inflight, then a round; True after both.

    Until then the flow is marked application-limited, so that its low rate samples are ignored.
    The dwell time may still run: that is for is_time_over() to say.
    """
    if bbr.mode != BBR_PROBE_RTT:
        return False
    inflight = tcp_packets_in_flight(tp)
    app_limited = u32(tp.delivered + inflight)
    tp.app_limited = app_limited if app_limited else 1  # ignore the low rate samples
    if bbr.probe_rtt_done_stamp == 0:
        _start_dwell(bbr, tp, inflight, p, log)
        return False
    if bbr.round_start:
        bbr.probe_rtt_round_done = 1
    if not bbr.probe_rtt_round_done:
        note(log, codes.PRTT_WAIT_ROUND, inflight)
        return False
    return True


@jit
def _start_dwell(bbr: Bbr, tp: Socket, inflight: int, p: Params, log: Log) -> None:
    """Start the clock of probe_rtt_mode_ms once inflight has become low."""
    probe_rtt_cwnd = bbr_probe_rtt_cwnd(bbr, p)
    if inflight > probe_rtt_cwnd:
        note(log, codes.PRTT_WAIT_INFLIGHT, inflight, probe_rtt_cwnd)
        return
    dwell = msecs_to_jiffies(p.probe_rtt_mode_ms, p.HZ)
    bbr.probe_rtt_done_stamp = u32(tcp_jiffies32(tp) + dwell)
    bbr.probe_rtt_round_done = 0
    bbr.next_rtt_delivered = tp.delivered
    note(log, codes.PRTT_DWELL_START, inflight, probe_rtt_cwnd, bbr.probe_rtt_done_stamp)


# v1 bbr_check_probe_rtt_done(); v2 bbr_check_probe_rtt_done(); v3 bbr_check_probe_rtt_done()
@jit
def is_time_over(bbr: Bbr, tp: Socket, log: Log) -> bool:
    """Has the dwell time passed?"""
    if bbr.probe_rtt_done_stamp == 0:
        return False
    jiffies = tcp_jiffies32(tp)
    if after(jiffies, bbr.probe_rtt_done_stamp):
        return True
    note(log, codes.PRTT_WAIT_TIME, bbr.probe_rtt_done_stamp, jiffies)
    return False


# v2 bbr_check_probe_rtt_done(); v3 bbr_check_probe_rtt_done()
@jit
def bbr_check_probe_rtt_done(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """v2, v3: leave PROBE_RTT if its time is up; True if it was left."""
    if not is_time_over(bbr, tp, log):
        return False
    bbr.probe_rtt_min_stamp = tcp_jiffies32(tp)  # schedules the next PROBE_RTT
    cwnd = tp.snd_cwnd
    new_cwnd = max(cwnd, bbr.prior_cwnd)
    tp.snd_cwnd = new_cwnd
    code = codes.PRTT_EXIT_CRUISE if bbr.full_bw_reached else codes.PRTT_EXIT_STARTUP
    note(log, code, bbr.min_rtt_us, cwnd, new_cwnd)
    bbr_exit_probe_rtt(bbr, tp, p, log)
    return True


# v2 bbr2_exit_probe_rtt(); v3 bbr_exit_probe_rtt()
@jit
def bbr_exit_probe_rtt(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """v2, v3: back to filling the pipe, or to CRUISE, since the queue is empty already."""
    bbr_reset_lower_bounds(bbr, False, log)
    if not bbr.full_bw_reached:
        enter_startup(bbr)
        return
    enter_probe_bw(bbr, tp, p, log)  # draws the wait
    bbr_start_bw_probe_cruise(bbr, log)
    note(log, codes.CRUISE_AFTER_PRTT, bbr.probe_wait_us)


# v1 bbr_update_min_rtt(); v2 bbr_update_min_rtt(); v3 bbr_update_min_rtt()
@jit
def end_idle_restart(bbr: Bbr, rs: RateSample, log: Log) -> None:
    """Data was acknowledged: the restart from idle is over."""
    if rs.delivered > 0:
        if bbr.idle_restart:
            note(log, codes.IDLE_RESTART_END, rs.delivered)
        bbr.idle_restart = 0
