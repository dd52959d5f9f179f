"""Entering the phases of PROBE_BW: DOWN, CRUISE, REFILL, UP (v2 and v3)."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .ints import U32_MAX, tcp_stamp_us_delta, u32
from .log import note
from .lower_bounds import bbr_reset_congestion_signals, bbr_reset_lower_bounds
from .params import Params
from .records import (
    BBR_ACKS_PROBE_STARTING,
    BBR_ACKS_PROBE_STOPPING,
    BBR_ACKS_REFILLING,
    BBR_BW_PROBE_CRUISE,
    BBR_BW_PROBE_DOWN,
    BBR_BW_PROBE_REFILL,
    BBR_BW_PROBE_UP,
    Bbr,
    Log,
    RateSample,
    Socket,
)

# tcp_bbr2.c: single-letter codes that v2alpha itself leaves in debug.event
EVENT_NONE = ord(".")
EVENT_GROW_SLOPE = ord("G")
EVENT_INCREMENT = ord("I")
EVENT_LOSS_OR_ECN = ord("L")
EVENT_REPROBE = ord("R")
EVENT_RAISE = ord("U")
EVENT_ALL_CLEAR = ord("A")
EVENT_DANGER = ord("D")
EVENT_QUEUE = ord("Q")
EVENT_STARTUP_ECN = ord("E")
EVENT_STARTUP_LOSS = ord("P")


# tcp_bbr2.c bbr2_has_elapsed_in_phase()
@jit
def bbr_has_elapsed_in_phase(bbr: Bbr, tp: Socket, interval_us: int) -> bool:
    return tcp_stamp_us_delta(tp.tcp_mstamp, bbr.cycle_mstamp + interval_us) > 0


# tcp_bbr2.c bbr2_set_cycle_idx()
@jit
def bbr_set_cycle_idx(bbr: Bbr, cycle_idx: int) -> None:
    bbr.cycle_idx = cycle_idx
    bbr.try_fast_path = 0


# tcp_bbr2.c bbr2_pick_probe_wait(); the two draws come from the recording
@jit
def bbr_pick_probe_wait(bbr: Bbr, tp: Socket, p: Params) -> None:
    tp.draws += 1
    bbr.rounds_since_probe = tp.rand_rounds
    bbr.probe_wait_us = u32(p.bw_probe_base_us + tp.rand_wait_us)


# tcp_bbr2.c bbr2_start_bw_probe_down()
@jit
def bbr_start_bw_probe_down(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    bbr_reset_congestion_signals(bbr, log)
    bbr.bw_probe_up_cnt = U32_MAX  # not growing inflight_hi any more
    bbr_pick_probe_wait(bbr, tp, p)
    bbr.cycle_mstamp = tp.tcp_mstamp
    bbr.ack_phase = BBR_ACKS_PROBE_STOPPING
    bbr.next_rtt_delivered = tp.delivered
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_DOWN)


# tcp_bbr2.c bbr2_start_bw_probe_cruise()
@jit
def bbr_start_bw_probe_cruise(bbr: Bbr, log: Log) -> None:
    if bbr.inflight_lo != U32_MAX and bbr.inflight_hi < bbr.inflight_lo:
        note(log, codes.INFLO_CAP_HI, bbr.inflight_lo, bbr.inflight_hi)
        bbr.inflight_lo = bbr.inflight_hi
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_CRUISE)


# tcp_bbr2.c bbr2_start_bw_probe_refill()
@jit
def bbr_start_bw_probe_refill(bbr: Bbr, tp: Socket, up_rounds: int, p: Params, log: Log) -> None:
    bbr_reset_lower_bounds(bbr, codes.BWLO_RESET_REFILL, codes.LO_RESET_REFILL, log)
    if bbr.inflight_hi != U32_MAX and p.refill_add_inc:  # v2 only
        old = bbr.inflight_hi
        bbr.inflight_hi = u32(old + p.refill_add_inc)
        note(log, codes.HI_REFILL_ADD, old, bbr.inflight_hi, p.refill_add_inc)
    bbr.bw_probe_up_rounds = up_rounds & 0x1F
    bbr.bw_probe_up_acks = 0
    bbr.stopped_risky_probe = 0
    bbr.ack_phase = BBR_ACKS_REFILLING
    bbr.next_rtt_delivered = tp.delivered
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_REFILL)


# tcp_bbr2.c bbr2_raise_inflight_hi_slope()
@jit
def bbr_raise_inflight_hi_slope(bbr: Bbr, tp: Socket, log: Log) -> None:
    growth = 1 << bbr.bw_probe_up_rounds  # u32; 1 << 31 at most
    bbr.bw_probe_up_rounds = min(bbr.bw_probe_up_rounds + 1, 30)
    bbr.bw_probe_up_cnt = max(tp.snd_cwnd // growth, 1)
    bbr.debug_event = EVENT_GROW_SLOPE
    note(log, codes.HI_SLOPE_DOUBLE, bbr.bw_probe_up_cnt, bbr.bw_probe_up_rounds)


# tcp_bbr2.c bbr2_start_bw_probe_up()
@jit
def bbr_start_bw_probe_up(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    note(log, codes.UP_ENTER, tp.snd_cwnd, bbr.inflight_hi)
    bbr.ack_phase = BBR_ACKS_PROBE_STARTING
    bbr.next_rtt_delivered = tp.delivered
    bbr.cycle_mstamp = tp.tcp_mstamp
    if p.version == 3:  # the plateau detector decides when the probe ends
        bbr_reset_full_bw(bbr)
        bbr.full_bw = rs.sample_bw
        note(log, codes.FULLBW_RESET_UP, rs.sample_bw)
    bbr_set_cycle_idx(bbr, BBR_BW_PROBE_UP)
    bbr_raise_inflight_hi_slope(bbr, tp, log)


# tcp_bbr.c (v3) bbr_reset_full_bw()
@jit
def bbr_reset_full_bw(bbr: Bbr) -> None:
    bbr.full_bw = 0
    bbr.full_bw_cnt = 0
    bbr.full_bw_now = 0
