"""BBRv2-EXP (Lanigan20): v2 whose rate, not only its volume, follows CE marks.

1. Parameters: ecn_factor is 1/2, and the share of marked packets is too high above ecn_thresh (v2:
   at or above it).
2. After a round with marks bw_lo is multiplied by 1 - ecn_alpha x ecn_factor; if bw_lo is unset,
   max_bw is taken in its place.
3. A new bound, bw_bound (the study's bw_hi, which in v2 is the bandwidth filter), limits the
   sending rate as well. It is multiplied by the same factor when a probe was too high, and raised
   to a larger bandwidth sample when inflight was not too high.
4. In DOWN and CRUISE of a cycle with marks but no loss, an ACK without a mark starts the next
   probe: inflight_hi grows by one packet, bw_bound by one packet per min_rtt (the study adds
   bw_bound / RTprop, a rate divided by a time).

v2 uses ECN up to an RTT of 5 ms; the study names no limit and its shortest RTT is 24 ms, so that
here ECN is used at any RTT.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..debug_event import EVENT_LOSS_OR_ECN, EVENT_NONE
from ..ints import mul_shift, u32
from ..kernel_units import BBR_SCALE, BBR_UNIT, BW_UNIT, U32_MAX
from ..log import note
from ..model.aggregation import bbr_update_ack_aggregation
from ..model.bandwidth import bbr_calculate_bw_sample, bbr_max_bw
from ..model.full_pipe import plateau_of_max_bw
from ..model.lower_bounds import bbr_adapt_lower_bounds, bbr_is_probing_bandwidth
from ..model.rounds import bbr_update_round_start, count_rounds_since_probe
from ..model.upper_bounds import bbr_is_inflight_too_high
from ..modes.phases import bbr_start_bw_probe_refill
from ..modes.probe_bw import bbr_update_cycle_phase
from ..modes.startup import bbr_check_loss_too_high_in_startup
from ..params import Params
from ..records import (
    BBR_BW_PROBE_CRUISE,
    BBR_BW_PROBE_DOWN,
    BBR_PROBE_BW,
    MAIN,
    SKB_MARKED_LOST,
    Bbr,
    Event,
    Log,
    RateSample,
    Socket,
)
from ..versions.v2 import (
    bbr_init,
    bbr_update_ecn_alpha,
    gather_congestion_signals,
    reset_congestion_signals,
)
from ..versions.v2 import dispatch as dispatch_v2
from ..versions.v2_v3 import (
    DONE,
    FULL_MODEL,
    bbr_check_drain,
    bbr_run_fast_path,
    bbr_update_min_rtt,
    remember_ack,
    update_control,
)
from .variant import Variant

# Indices of the variant's state: bw_bound [pkts/us << 24, 0: unset]; bw_lo as v2's functions left
# it, and as it is held, so that bbr_bw() is the least of max_bw, bw_lo and bw_bound.
BW_BOUND, OWN_BW_LO, HELD_BW_LO = range(3)


@jit
def hold_bw_lo(bbr: Bbr) -> None:
    """Bound bw_lo by bw_bound, after a function of v2 that may have changed it."""
    state = bbr.variant
    if bbr.bw_lo != state[HELD_BW_LO]:
        state[OWN_BW_LO] = bbr.bw_lo
    held = state[OWN_BW_LO]
    if state[BW_BOUND] and state[BW_BOUND] < held:
        held = state[BW_BOUND]
    bbr.bw_lo = held
    state[HELD_BW_LO] = held


@jit
def less_marks(bbr: Bbr, bw: int, p: Params) -> int:
    """`bw` x (1 - ecn_alpha x ecn_factor) [pkts/us << 24]."""
    return mul_shift(bw, BBR_UNIT - (bbr.ecn_alpha * p.ecn_factor >> BBR_SCALE), BBR_SCALE)


@jit
def _adapt_lower_bounds(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """v2's, and bw_lo cut by a round's marks."""
    bbr.bw_lo = bbr.variant[OWN_BW_LO]
    old_bw = bbr.bw_lo if bbr.bw_lo != U32_MAX else bbr_max_bw(bbr, p)
    marked = bbr.ecn_in_round and bbr.ecn_eligible and not bbr_is_probing_bandwidth(bbr)
    bbr_adapt_lower_bounds(bbr, tp, p, log)
    new_bw = less_marks(bbr, old_bw, p)
    if marked and new_bw < bbr.bw_lo:
        bbr.bw_lo = new_bw
        note(log, codes.BWLO_CUT_ECN, old_bw, new_bw, bbr.ecn_alpha)
    bbr.variant[OWN_BW_LO] = bbr.bw_lo
    bbr.variant[HELD_BW_LO] = bbr.bw_lo
    hold_bw_lo(bbr)


@jit
def _update_congestion_signals(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """v2's bbr2_update_congestion_signals() with the lower bounds above."""
    if gather_congestion_signals(bbr, tp, rs, p, log):
        _adapt_lower_bounds(bbr, tp, p, log)
        reset_congestion_signals(bbr, rs)


@jit
def have_marks_ceased(bbr: Bbr, rs: RateSample) -> bool:
    """Outside a probe, in a cycle with marks but no loss, on an ACK without a mark."""
    if bbr.mode != BBR_PROBE_BW or not bbr.ecn_in_cycle or bbr.loss_in_cycle or rs.is_ece:
        return False
    return bbr.cycle_idx == BBR_BW_PROBE_DOWN or bbr.cycle_idx == BBR_BW_PROBE_CRUISE


@jit
def _probe_again(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if bbr.inflight_hi != U32_MAX:
        bbr.inflight_hi = u32(bbr.inflight_hi + 1)
    if bbr.variant[BW_BOUND] and bbr.min_rtt_us:
        bbr.variant[BW_BOUND] = u32(bbr.variant[BW_BOUND] + BW_UNIT // bbr.min_rtt_us)
    note(log, codes.REFILL_BY_ECN_CEASED, bbr.inflight_hi)
    bbr_start_bw_probe_refill(bbr, tp, 0, p, log)


@jit
def _update_model(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """v2's bbr2_update_model() with these signals, and the probe when marks have ceased."""
    _update_congestion_signals(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    bbr_check_loss_too_high_in_startup(bbr, tp, rs, p, log)
    plateau_of_max_bw(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    if have_marks_ceased(bbr, rs):
        _probe_again(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)


@jit
def cut_bw_bound(bbr: Bbr, p: Params, log: Log) -> None:
    """A probe was too high: v2 has just cut inflight_hi, and said so in debug.event."""
    if not bbr.ecn_eligible:
        return
    old_bw = bbr.variant[BW_BOUND]
    if old_bw == 0:
        old_bw = bbr_max_bw(bbr, p)
    new_bw = less_marks(bbr, old_bw, p)
    bbr.variant[BW_BOUND] = max(new_bw, 1)
    note(log, codes.BWHI_BOUND_CUT, old_bw, new_bw, bbr.ecn_alpha)


@jit
def _adapt_bw_bound(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    old_bw, new_bw = bbr.variant[BW_BOUND], rs.sample_bw
    if bbr.debug_event == EVENT_LOSS_OR_ECN:
        cut_bw_bound(bbr, p, log)
    elif old_bw and new_bw > old_bw and not bbr_is_inflight_too_high(bbr, rs, p):
        bbr.variant[BW_BOUND] = new_bw
        note(log, codes.BWHI_BOUND_RAISE, old_bw, new_bw)


@jit
def _on_ack(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """v2's bbr2_main() with the model above and bw_bound."""
    bbr.debug_event = EVENT_NONE
    bbr_update_round_start(bbr, tp, rs)
    if bbr.round_start:
        count_rounds_since_probe(bbr)
        bbr_update_ecn_alpha(bbr, tp, p, log)
    bbr.ecn_in_round |= rs.is_ece
    bbr_calculate_bw_sample(bbr, rs)
    path = bbr_run_fast_path(bbr, tp, rs, p, log)
    if path == FULL_MODEL:
        _update_model(bbr, tp, rs, p, log)
    _adapt_bw_bound(bbr, rs, p, log)
    hold_bw_lo(bbr)
    if path != DONE:
        update_control(bbr, tp, rs, p, log)
    remember_ack(bbr, tp, rs)


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """v2's callbacks, with bw_bound after each of them."""
    hold_bw_lo(bbr)
    if ev.ctl.kind == MAIN:
        _on_ack(bbr, ev.tp, ev.rs, p, log)
    elif ev.ctl.kind == SKB_MARKED_LOST:
        event = bbr.debug_event
        bbr.debug_event = EVENT_NONE
        dispatch_v2(bbr, ev, p, log)
        if bbr.debug_event == EVENT_LOSS_OR_ECN:
            cut_bw_bound(bbr, p, log)
        else:
            bbr.debug_event = event
    else:
        dispatch_v2(bbr, ev, p, log)
    hold_bw_lo(bbr)


_PARAMS = {"ecn_enable": 1, "ecn_factor": 128, "ecn_at_thresh_is_high": 0, "ecn_max_rtt_us": 0}
VARIANT = Variant("v2", _PARAMS, bbr_init, dispatch)
