"""What the callbacks of v2 and v3 do alike; what differs is in v2.py and v3.py, or a parameter."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.cwnd import bbr_bound_cwnd_for_inflight_model, bbr_set_cwnd
from ..control.gains import bbr_update_gains
from ..control.pacing import bbr_set_pacing_rate
from ..control.recovery import bbr_save_cwnd, exit_loss_recovery, save_undo_state
from ..ints import u32
from ..kernel_units import U32_MAX
from ..log import note
from ..model.bandwidth import bbr_bw, bbr_max_bw
from ..model.lower_bounds import bbr_reset_congestion_signals
from ..model.min_rtt import filter_min_rtt_by_two_windows
from ..modes.drain import enter_drain, is_drained
from ..modes.phases import enter_probe_bw
from ..modes.probe_bw import bbr_update_cycle_phase
from ..modes.probe_rtt import (
    bbr_check_probe_rtt_done,
    end_idle_restart,
    end_probe_upon_probe_rtt,
    enter_probe_rtt,
    is_low_round_over,
    is_probe_rtt_due,
)
from ..params import Params
from ..records import BBR_ACKS_INIT, BBR_DRAIN, BBR_STARTUP, Bbr, Log, RateSample, Socket
from ..tcp import tcp_jiffies32
from .callbacks import restart_from_idle

# Outcomes of the fast path: run everything, control only, nothing left to do.
FULL_MODEL, CONTROL_ONLY, DONE = range(3)


# v2 bbr_init(), bbr2_init(); v3 bbr_init()
@jit
def init_recovery_and_probes(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params) -> None:
    """The fields that v1 does not have, bounds and congestion signals aside.

    Comes before `init_common`, since the kernel reads the clock in this order.
    """
    bbr.initialized = 1
    bbr.init_cwnd = min(0x7F, tp.snd_cwnd)
    bbr.prior_cwnd = tp.prior_cwnd
    bbr.probe_rtt_min_us = min_rtt_us
    bbr.probe_rtt_min_stamp = tcp_jiffies32(tp)
    bbr.ce_state = 0
    bbr.prior_rcv_nxt = tp.rcv_nxt
    bbr.try_fast_path = 0
    bbr.full_bw_now = 0
    bbr.bw_probe_up_acks = 0
    bbr.bw_probe_up_rounds = 0
    bbr.probe_wait_us = 0
    bbr.stopped_risky_probe = 0
    bbr.ack_phase = BBR_ACKS_INIT
    bbr.rounds_since_probe = 0
    bbr.bw_probe_samples = 0
    bbr.prev_probe_too_high = 0
    bbr.ecn_eligible = 0
    bbr.ecn_alpha = p.ecn_alpha_init
    bbr.alpha_last_delivered = 0
    bbr.alpha_last_delivered_ce = 0
    bbr.debug_target_cwnd = 0
    bbr.debug_rs_bw = 0
    bbr.plb_pause_until = 0


# v2 bbr2_init(); v3 bbr_init()
@jit
def init_bounds(bbr: Bbr, tp: Socket, log: Log) -> None:
    """No bound, no loss, no sample yet."""
    bbr.loss_round_delivered = u32(tp.delivered + 1)
    bbr.loss_round_start = 0
    bbr.undo_bw_lo = 0
    bbr.undo_inflight_lo = 0
    bbr.undo_inflight_hi = 0
    bbr.loss_events_in_round = 0
    bbr.startup_ecn_rounds = 0
    bbr_reset_congestion_signals(bbr, log)
    bbr.bw_lo = U32_MAX
    bbr.bw_hi[0] = 0
    bbr.bw_hi[1] = 0
    bbr.inflight_lo = U32_MAX
    bbr.inflight_hi = U32_MAX
    bbr.bw_probe_up_cnt = U32_MAX


# v2 bbr_check_drain(), bbr2_check_drain(); v3 bbr_check_drain()
@jit
def bbr_check_drain(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """The full pipe ends STARTUP, the empty queue ends DRAIN."""
    if bbr.mode == BBR_STARTUP and bbr.full_bw_reached:
        enter_drain(bbr, tp, p, log)
        bbr_reset_congestion_signals(bbr, log)
    if bbr.mode == BBR_DRAIN and is_drained(bbr, tp, p, log):
        enter_probe_bw(bbr, tp, p, log)
        note(log, codes.PBW_ENTER_DOWN, bbr.probe_wait_us, bbr.rounds_since_probe)


# v2 bbr_update_min_rtt(); v3 bbr_update_min_rtt()
@jit
def bbr_update_min_rtt(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Update the RTT filters; enter, hold or leave PROBE_RTT."""
    expiring_us = bbr.probe_rtt_min_us  # for the record: the sample below may replace it
    expired = filter_min_rtt_by_two_windows(bbr, tp, rs, p, log)
    if is_probe_rtt_due(bbr, expired, p, log):
        enter_probe_rtt(bbr, tp, expiring_us, p.probe_rtt_win_ms, p, log)
        end_probe_upon_probe_rtt(bbr, tp)
    if is_low_round_over(bbr, tp, p, log):
        bbr_check_probe_rtt_done(bbr, tp, p, log)
    end_idle_restart(bbr, rs, log)


# v2 bbr2_fast_path(); v3 bbr_run_fast_path()
@jit
def bbr_run_fast_path(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> int:
    """Skip the model where an application-limited sample says nothing new.

    Returns FULL_MODEL, CONTROL_ONLY or DONE.
    """
    max_bw = bbr_max_bw(bbr, p)
    if not (
        p.fast_path
        and bbr.try_fast_path
        and rs.is_app_limited
        and rs.sample_bw < max_bw
        and not bbr.loss_in_round
        and not bbr.ecn_in_round
    ):
        return FULL_MODEL
    prev_mode, prev_min_rtt_us = bbr.mode, bbr.min_rtt_us
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)
    if bbr.mode == prev_mode and bbr.min_rtt_us == prev_min_rtt_us and bbr.try_fast_path:
        note(log, codes.FASTPATH_SKIP, rs.sample_bw, max_bw)
        return DONE
    note(log, codes.FASTPATH_CONTROL_ONLY)
    return CONTROL_ONLY


# v2 bbr2_main(); v3 bbr_main()
@jit
def update_control(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Gains, pacing rate and cwnd, as the model now asks for."""
    bbr_update_gains(bbr, p)
    bw = bbr_bw(bbr, p)
    bbr_set_pacing_rate(bbr, tp, bw, bbr.pacing_gain, p, log)
    bbr_set_cwnd(bbr, tp, rs, bw, bbr.cwnd_gain, p, log)
    bbr_bound_cwnd_for_inflight_model(bbr, tp, p, log)


# v2 bbr2_main(); v3 bbr_main()
@jit
def remember_ack(bbr: Bbr, tp: Socket, rs: RateSample) -> None:
    """What the next ACK must know of this one."""
    bbr.prev_ca_state = tp.icsk_ca_state
    bbr.loss_in_cycle |= 1 if rs.lost > 0 else 0
    bbr.ecn_in_cycle |= 1 if rs.delivered_ce > 0 else 0


# v2 bbr_cwnd_event(); v3 bbr_cwnd_event()
@jit
def tx_start(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """CA_EVENT_TX_START: sending restarts from idle, which may end PROBE_RTT."""
    done_stamp = bbr.probe_rtt_done_stamp
    if restart_from_idle(bbr, tp, p, log) and bbr_check_probe_rtt_done(bbr, tp, p, log):
        probe_rtt_done_stamp = done_stamp
        note(log, codes.PRTT_EXIT_ON_TX_START, probe_rtt_done_stamp)


# v2 bbr2_ssthresh(); v3 bbr_ssthresh()
@jit
def bbr_ssthresh(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Recovery begins: save what a spurious one would have to give back."""
    bbr_save_cwnd(bbr, tp, log)
    save_undo_state(bbr)


# v2 bbr2_set_state(); v3 bbr_set_state()
@jit
def leave_state(bbr: Bbr, tp: Socket, new_state: int, was_loss: bool, log: Log) -> None:
    """A new congestion state other than Loss: after a timeout, recovery is over."""
    if was_loss:
        exit_loss_recovery(bbr, tp, log)
    else:
        old_state = tp.icsk_ca_state
        note(log, codes.CWND_KEEP_RECOVERY, old_state, new_state, tp.snd_cwnd)
