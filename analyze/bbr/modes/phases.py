"""PROBE_BW of v2 and v3, and entering its phases: DOWN, CRUISE, REFILL, UP."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import tcp_stamp_us_delta, u32
from ..kernel_units import U32_MAX
from ..log import note
from ..model.full_pipe import restart_plateau_search
from ..model.lower_bounds import (
    bbr_reset_congestion_signals,
    bbr_reset_lower_bounds,
    cap_inflight_lo,
)
from ..model.upper_bounds import bbr_raise_inflight_hi_slope
from ..params import Params
from ..records import (
    BBR_ACKS_PROBE_STARTING,
    BBR_ACKS_PROBE_STOPPING,
    BBR_ACKS_REFILLING,
    BBR_BW_PROBE_CRUISE,
    BBR_BW_PROBE_DOWN,
    BBR_BW_PROBE_REFILL,
    BBR_BW_PROBE_UP,
    BBR_PROBE_BW,
    Bbr,
    Log,
    RateSample,
    Socket,
)
from .transition import transition_to


# v2 bbr2_check_drain(), bbr2_exit_probe_rtt(); v3 bbr_check_drain(), bbr_exit_probe_rtt()
@jit
def enter_probe_bw(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """From DRAIN or PROBE_RTT into PROBE_BW, whose first phase is DOWN."""
    transition_to(bbr, BBR_PROBE_BW)
    bbr_start_bw_probe_down(bbr, tp, p, log)


# v2 bbr2_has_elapsed_in_phase(); v3 bbr_has_elapsed_in_phase()
@jit
def bbr_has_elapsed_in_phase(bbr: Bbr, tp: Socket, interval_us: int) -> bool:
    """Have more than `interval_us` passed since the phase's clock was set?"""
    return tcp_stamp_us_delta(tp.tcp_mstamp, bbr.cycle_mstamp + interval_us) > 0


# v2 bbr2_set_cycle_idx(); v3 bbr_set_cycle_idx()
@jit
def bbr_set_cycle_idx(bbr: Bbr, cycle_idx: int) -> None:
    """Set the phase; cwnd and pacing must follow, so no fast path."""
    bbr.cycle_idx = cycle_idx
    bbr.try_fast_path = 0


# v2 bbr2_pick_probe_wait(); v3 bbr_pick_probe_wait()
@jit
def bbr_pick_probe_wait(bbr: Bbr, tp: Socket, p: Params) -> None:
    """Draw how long to wait before the next probe; the two draws come from the recording."""
    tp.draws += 1
    bbr.rounds_since_probe = tp.rand_rounds
    bbr.probe_wait_us = u32(p.bw_probe_base_us + tp.rand_wait_us)


# v2 bbr2_start_bw_probe_down(); v3 bbr_start_bw_probe_down()
@jit
def bbr_start_bw_probe_down(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Start a new cycle: drain what the last probe queued, and draw when to probe again."""
    bbr_reset_congestion_signals(bbr, log)
    bbr.bw_probe_up_cnt = U32_MAX  # not growing inflight_hi any more
    bbr_pick_probe_wait(bbr, tp, p)
    bbr.cycle_mstamp = tp.tcp_mstamp
    bbr.ack_phase = BBR_ACKS_PROBE_STOPPING
    bbr.next_rtt_delivered = tp.delivered
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_DOWN)


# v2 bbr2_start_bw_probe_cruise(); v3 bbr_start_bw_probe_cruise()
@jit
def bbr_start_bw_probe_cruise(bbr: Bbr, log: Log) -> None:
    """Keep the operating point, and leave headroom to others."""
    cap_inflight_lo(bbr, log)
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_CRUISE)


# v2 bbr2_start_bw_probe_refill(); v3 bbr_start_bw_probe_refill()
@jit
def bbr_start_bw_probe_refill(bbr: Bbr, tp: Socket, up_rounds: int, p: Params, log: Log) -> None:
    """Fill the pipe for a round before the probe: else its loss could come from the refilling.

    In its first round UP will raise inflight_hi by 2 ** `up_rounds` packets per cwnd of ACKs.
    """
    bbr_reset_lower_bounds(bbr, True, log)
    inc = p.refill_add_inc
    if bbr.inflight_hi != U32_MAX and inc:
        old, new = bbr.inflight_hi, u32(bbr.inflight_hi + inc)
        bbr.inflight_hi = new
        note(log, codes.HI_REFILL_ADD, old, new, inc)
    bbr.bw_probe_up_rounds = up_rounds & 0x1F
    bbr.bw_probe_up_acks = 0
    bbr.stopped_risky_probe = 0
    bbr.ack_phase = BBR_ACKS_REFILLING
    bbr.next_rtt_delivered = tp.delivered
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_REFILL)


# v2 bbr2_start_bw_probe_up(); v3 bbr_start_bw_probe_up()
@jit
def bbr_start_bw_probe_up(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Probe for more bandwidth and a larger volume."""
    note(log, codes.UP_ENTER, tp.snd_cwnd, bbr.inflight_hi)
    bbr.ack_phase = BBR_ACKS_PROBE_STARTING
    bbr.next_rtt_delivered = tp.delivered
    bbr.cycle_mstamp = tp.tcp_mstamp
    if p.probe_up_to_plateau:
        restart_plateau_search(bbr, rs)
        note(log, codes.FULLBW_RESET_UP, rs.sample_bw)
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_UP)
    bbr_raise_inflight_hi_slope(bbr, tp, log)
