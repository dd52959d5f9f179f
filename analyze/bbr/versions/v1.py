"""BBRv1, net/ipv4/tcp_bbr.c of mainline Linux: its callbacks in the order the kernel runs them."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.cwnd import set_cwnd_with_conservation
from ..control.gains import bbr_update_gains
from ..control.pacing import bbr_set_pacing_rate
from ..control.recovery import bbr_save_cwnd
from ..ints import before, i64, u32, u64
from ..kernel_units import BW_UNIT, MSEC_PER_SEC, U32_MAX
from ..log import note
from ..model.aggregation import bbr_update_ack_aggregation
from ..model.bandwidth import bbr_bw, bbr_max_bw
from ..model.full_pipe import plateau_of_max_bw
from ..model.min_rtt import filter_min_rtt_by_one_window
from ..model.policer import bbr_reset_lt_bw_sampling, retire_estimate, sample_interval
from ..model.windowed_max import minmax_reset, minmax_running_max
from ..modes.drain import enter_drain, is_drained
from ..modes.gain_cycle import enter_gain_cycle, update_gain_cycle
from ..modes.probe_rtt import (
    end_idle_restart,
    enter_probe_rtt,
    is_low_round_over,
    is_probe_rtt_due,
    is_time_over,
)
from ..modes.startup import enter_startup
from ..params import Params
from ..records import (
    BBR_DRAIN,
    BBR_STARTUP,
    CA_EVENT_TX_START,
    CWND_EVENT,
    MAIN,
    SET_STATE,
    SSTHRESH,
    TCP_CA_LOSS,
    UNDO_CWND,
    Bbr,
    Event,
    Log,
    RateSample,
    Socket,
)
from ..tcp import tcp_jiffies32, tcp_undo_cwnd_reduction
from .callbacks import init_common, init_pacing, restart_from_idle


# v1 bbr_init()
@jit
def bbr_init(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    """`min_rtt_us` is tcp_min_rtt(), which recordings do not carry.

    pacing_gain and cwnd_gain keep the values from before init().
    """
    init_common(bbr, tp, min_rtt_us)
    bbr.prior_cwnd = 0
    bbr.rtt_cnt = 0
    minmax_reset(bbr, bbr.rtt_cnt, 0)
    bbr_reset_lt_bw_sampling(bbr, tp)
    init_pacing(bbr, tp, min_rtt_us, p, log)


# v1 bbr_lt_bw_sampling()
@jit
def bbr_lt_bw_sampling(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Look for a policer, or retire the rate taken for one's: then the gain cycle restarts."""
    if not bbr.lt_use_bw:
        sample_interval(bbr, tp, rs, p, log)
    elif retire_estimate(bbr, tp, log):
        enter_gain_cycle(bbr, tp, log)


# v1 bbr_update_bw()
@jit
def bbr_update_bw(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Rounds, the policer, and the bandwidth sample."""
    bbr.round_start = 0
    if rs.delivered < 0 or rs.interval_us <= 0:
        return
    if not before(rs.prior_delivered, bbr.next_rtt_delivered):
        bbr.next_rtt_delivered = tp.delivered
        bbr.rtt_cnt = u32(bbr.rtt_cnt + 1)
        bbr.round_start = 1
        if bbr.packet_conservation:
            note(log, codes.CONSERVE_END_ROUND, tp.delivered)
        bbr.packet_conservation = 0
    bbr_lt_bw_sampling(bbr, tp, rs, p, log)
    _take_sample(bbr, rs, p, log)


# v1 bbr_update_bw()
@jit
def _take_sample(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    # Truncated here, and cut to u32 only when stored: the comparison sees all 64 bits.
    whole = u64(u64(rs.delivered) * u64(BW_UNIT)) // u64(rs.interval_us)
    bw = u32(i64(whole & u64(U32_MAX)))
    max_bw = bbr_max_bw(bbr, p)
    if rs.is_app_limited and whole < u64(max_bw):
        note(log, codes.BWHI_SKIP_APPLIMITED, bw, max_bw)
        return
    minmax_running_max(bbr, p.bw_rtts, bbr.rtt_cnt, bw)
    if bbr_max_bw(bbr, p) != max_bw:
        note(log, codes.BWHI_SAMPLE, bw, max_bw)


# v1 bbr_check_drain()
@jit
def bbr_check_drain(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """The full pipe ends STARTUP, the empty queue ends DRAIN."""
    if bbr.mode == BBR_STARTUP and bbr.full_bw_reached:
        enter_drain(bbr, tp, p, log)
    if bbr.mode == BBR_DRAIN and is_drained(bbr, tp, p, log):
        enter_gain_cycle(bbr, tp, log)


# v1 bbr_reset_mode()
@jit
def bbr_reset_mode(bbr: Bbr, tp: Socket, log: Log) -> None:
    """After PROBE_RTT: on with filling the pipe, or with the gain cycle."""
    if bbr.full_bw_reached:
        enter_gain_cycle(bbr, tp, log)
    else:
        enter_startup(bbr)


# v1 bbr_check_probe_rtt_done()
@jit
def bbr_check_probe_rtt_done(bbr: Bbr, tp: Socket, log: Log) -> bool:
    """Leave PROBE_RTT if its time is up; True if it was left."""
    if not is_time_over(bbr, tp, log):
        return False
    bbr.min_rtt_stamp = tcp_jiffies32(tp)  # schedules the next PROBE_RTT
    cwnd = tp.snd_cwnd
    new_cwnd = max(cwnd, bbr.prior_cwnd)
    tp.snd_cwnd = new_cwnd
    code = codes.PRTT_EXIT_PBW if bbr.full_bw_reached else codes.PRTT_EXIT_STARTUP
    note(log, code, bbr.min_rtt_us, cwnd, new_cwnd)
    bbr_reset_mode(bbr, tp, log)
    return True


# v1 bbr_update_min_rtt()
@jit
def bbr_update_min_rtt(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Update the RTT filter; enter, hold or leave PROBE_RTT."""
    expiring_us = bbr.min_rtt_us  # for the record: the sample below may replace it
    expired = filter_min_rtt_by_one_window(bbr, tp, rs, p, log)
    if is_probe_rtt_due(bbr, expired, p, log):
        enter_probe_rtt(bbr, tp, expiring_us, p.min_rtt_win_sec * MSEC_PER_SEC, p, log)
    if is_low_round_over(bbr, tp, p, log):
        bbr_check_probe_rtt_done(bbr, tp, log)
    end_idle_restart(bbr, rs, log)


# v1 bbr_main(), bbr_update_model()
@jit
def bbr_main(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """An ACK."""
    bbr_update_bw(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    update_gain_cycle(bbr, tp, rs, p, log)
    plateau_of_max_bw(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)
    bbr_update_gains(bbr, p)

    bw = bbr_bw(bbr, p)
    bbr_set_pacing_rate(bbr, tp, bw, bbr.pacing_gain, p, log)
    set_cwnd_with_conservation(bbr, tp, rs, bw, bbr.cwnd_gain, p, log)


# v1 bbr_cwnd_event()
@jit
def bbr_cwnd_event(bbr: Bbr, tp: Socket, event: int, p: Params, log: Log) -> None:
    """Sending restarts from idle, which may end PROBE_RTT; other events are ignored."""
    if event != CA_EVENT_TX_START:
        return
    probe_rtt_done_stamp = bbr.probe_rtt_done_stamp
    if restart_from_idle(bbr, tp, p, log) and bbr_check_probe_rtt_done(bbr, tp, log):
        note(log, codes.PRTT_EXIT_ON_TX_START, probe_rtt_done_stamp)


# v1 bbr_undo_cwnd()
@jit
def bbr_undo_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    """The recovery was spurious; returns cwnd as it is."""
    note(log, codes.FULLBW_RESET_UNDO, bbr.full_bw)
    bbr.full_bw = 0  # the spurious slow-down may have hidden growth
    bbr.full_bw_cnt = 0
    note(log, codes.LT_RESET_UNDO, bbr.lt_bw)
    bbr_reset_lt_bw_sampling(bbr, tp)
    tcp_undo_cwnd_reduction(tp, tp.snd_cwnd, log)


# v1 bbr_set_state()
@jit
def bbr_set_state(
    bbr: Bbr, tp: Socket, rs: RateSample, new_state: int, p: Params, log: Log
) -> None:
    """A new congestion state; v1 acts on Loss only, the retransmission timeout."""
    if new_state != TCP_CA_LOSS:
        old_state = tp.icsk_ca_state
        note(log, codes.CWND_KEEP_RECOVERY, old_state, new_state, tp.snd_cwnd)
        return
    bbr.prev_ca_state = TCP_CA_LOSS
    note(log, codes.FULLBW_RESET_RTO, bbr.full_bw)
    bbr.full_bw = 0
    bbr.round_start = 1  # treat the timeout like the end of a round
    rs.losses = 1  # the kernel builds this rate sample on its stack
    bbr_lt_bw_sampling(bbr, tp, rs, p, log)


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """Run the callback that the event records."""
    kind, tp, rs = ev.ctl.kind, ev.tp, ev.rs
    if kind == MAIN:
        bbr_main(bbr, tp, rs, p, log)
    elif kind == SET_STATE:
        bbr_set_state(bbr, tp, rs, ev.ctl.arg, p, log)
    elif kind == CWND_EVENT:
        bbr_cwnd_event(bbr, tp, ev.ctl.arg, p, log)
    elif kind == SSTHRESH:
        bbr_save_cwnd(bbr, tp, log)
    elif kind == UNDO_CWND:
        bbr_undo_cwnd(bbr, tp, log)
