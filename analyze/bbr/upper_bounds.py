"""The long-term bound inflight_hi: raised while safe, cut when a probe goes too high (v2, v3)."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import bbr_target_inflight
from .ints import BBR_SCALE, BBR_UNIT, U32_MAX, mul_shift, s32, u32
from .log import note
from .model import bbr_max_bw
from .params import Params
from .phases import (
    EVENT_INCREMENT,
    EVENT_LOSS_OR_ECN,
    EVENT_RAISE,
    EVENT_REPROBE,
    bbr_raise_inflight_hi_slope,
    bbr_start_bw_probe_down,
    bbr_start_bw_probe_refill,
)
from .records import (
    BBR_ACKS_INIT,
    BBR_ACKS_PROBE_FEEDBACK,
    BBR_ACKS_PROBE_STARTING,
    BBR_ACKS_PROBE_STOPPING,
    BBR_BW_PROBE_UP,
    BBR_PROBE_BW,
    Bbr,
    Log,
    RateSample,
    Skb,
    Socket,
)

# Why inflight was too high, as is_inflight_too_high() found it ...
NOT_TOO_HIGH, BY_LOSS, BY_ECN = range(3)
# ... and who asked.
FROM_MAIN, FROM_LOST_SKB, FROM_TLP = range(3)


@jit
def loss_limit(tx_in_flight: int, p: Params) -> int:
    """Packets out of a flight that may be lost before it counts as too high."""
    return mul_shift(tx_in_flight, p.loss_thresh, BBR_SCALE)


@jit
def ecn_limit(delivered: int, p: Params) -> int:
    return mul_shift(delivered, p.ecn_thresh, BBR_SCALE)


# tcp_bbr2.c bbr2_is_inflight_too_high()
@jit
def bbr_is_inflight_too_high(bbr: Bbr, rs: RateSample, p: Params) -> int:
    """NOT_TOO_HIGH, BY_LOSS or BY_ECN."""
    if rs.lost > 0 and rs.tx_in_flight and rs.lost > loss_limit(rs.tx_in_flight, p):
        return BY_LOSS
    if rs.delivered_ce > 0 and rs.delivered > 0 and bbr.ecn_eligible and p.ecn_thresh:
        limit = ecn_limit(rs.delivered, p)
        # v2 reacts at the threshold, v3 above it
        if rs.delivered_ce > limit or (p.ecn_at_thresh_is_high and rs.delivered_ce == limit):
            return BY_ECN
    return NOT_TOO_HIGH


# tcp_bbr2.c bbr2_inflight_hi_from_lost_skb()
@jit
def bbr_inflight_hi_from_lost_skb(rs: RateSample, pcount: int, p: Params, log: Log) -> int:
    """How far into the flight the loss rate crossed the limit; ~0U if the books do not add up."""
    inflight_prev = s32(rs.tx_in_flight - pcount)
    lost_prev = s32(rs.lost - pcount)
    if inflight_prev < 0 or lost_prev < 0 or p.loss_thresh == BBR_UNIT:
        note(log, codes.HI_LOST_INFINITY, rs.tx_in_flight, rs.lost, pcount)
        return U32_MAX
    loss_budget = inflight_prev * p.loss_thresh + BBR_UNIT - 1 >> BBR_SCALE
    lost_prefix = 0
    if lost_prev < loss_budget:
        lost_prefix = (loss_budget - lost_prev << BBR_SCALE) // (BBR_UNIT - p.loss_thresh)
    return u32(inflight_prev + lost_prefix)


@jit
def _note_cut(
    bbr: Bbr, rs: RateSample, old: int, target: int, cause: int, origin: int, log: Log
) -> None:
    new = bbr.inflight_hi
    code = codes.HI_CUT_RS_LOSS
    if new == old:
        note(log, codes.HI_CUT_SAME, old, rs.tx_in_flight, target)
        return
    if new > old:
        code = codes.HI_CUT_RAISED
    elif origin == FROM_LOST_SKB:
        code = codes.HI_CUT_LOST_SKB
    elif origin == FROM_TLP:
        code = codes.HI_CUT_TLP
    elif cause == BY_ECN:
        code = codes.HI_CUT_RS_ECN
    note(log, code, old, new, rs.tx_in_flight, target)


@jit
def _note_down(rs: RateSample, sent: int, cause: int, origin: int, p: Params, log: Log) -> None:
    if origin == FROM_LOST_SKB:
        note(log, codes.DOWN_BY_LOST_SKB, rs.lost, sent, loss_limit(sent, p))
    elif origin == FROM_TLP:
        note(log, codes.DOWN_BY_TLP, rs.lost, sent, loss_limit(sent, p))
    elif cause == BY_ECN:
        note(log, codes.DOWN_BY_ECN, rs.delivered_ce, rs.delivered, ecn_limit(rs.delivered, p))
    else:
        note(log, codes.DOWN_BY_LOSS, rs.lost, sent, loss_limit(sent, p))


# tcp_bbr2.c bbr2_handle_inflight_too_high()
@jit
def bbr_handle_inflight_too_high(
    bbr: Bbr, tp: Socket, rs: RateSample, sent: int, cause: int, origin: int, p: Params, log: Log
) -> None:
    """Remember that the probe went too high, cut inflight_hi, and stop probing.

    `rs.tx_in_flight` is the volume to fall back to, `sent` what was in flight when the lost (or
    marked) packets left: for a lost skb the two differ.
    """
    bbr.prev_probe_too_high = 1
    bbr.bw_probe_samples = 0  # react once per probe
    bbr.debug_event = EVENT_LOSS_OR_ECN
    if rs.is_app_limited:
        note(log, codes.HI_NOCUT_APPLIMITED, sent, bbr.inflight_hi)
    else:
        old = bbr.inflight_hi
        target = bbr_target_inflight(bbr, tp, p)
        floor = mul_shift(target, BBR_UNIT - p.beta, BBR_SCALE)
        bbr.inflight_hi = max(rs.tx_in_flight, floor)
        _note_cut(bbr, rs, old, target, cause, origin, log)
    if bbr.mode == BBR_PROBE_BW and bbr.cycle_idx == BBR_BW_PROBE_UP:
        _note_down(rs, sent, cause, origin, p, log)
        bbr_start_bw_probe_down(bbr, tp, p, log)


# tcp_bbr2.c bbr2_probe_inflight_hi_upward()
@jit
def bbr_probe_inflight_hi_upward(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    if not tp.is_cwnd_limited or tp.snd_cwnd < bbr.inflight_hi:
        if p.zero_up_acks_when_not_limited:  # v2
            bbr.bw_probe_up_acks = 0
        if not tp.is_cwnd_limited:
            note(log, codes.HI_HOLD_NOT_CWND_LIMITED, bbr.inflight_hi, tp.snd_cwnd)
        else:
            note(log, codes.HI_HOLD_CWND_BELOW_HI, bbr.inflight_hi, tp.snd_cwnd)
        return
    bbr.bw_probe_up_acks = u32(bbr.bw_probe_up_acks + rs.acked_sacked)
    acks, cnt = bbr.bw_probe_up_acks, bbr.bw_probe_up_cnt
    if acks >= cnt:
        delta = acks // cnt
        bbr.bw_probe_up_acks = u32(acks - delta * cnt)
        old = bbr.inflight_hi
        bbr.inflight_hi = u32(old + delta)
        bbr.debug_event = EVENT_INCREMENT
        if p.version == 3:
            bbr.try_fast_path = 0
        note(log, codes.HI_RAISE_SLOPE, old, bbr.inflight_hi, acks, cnt)
    else:
        note(log, codes.HI_HOLD_ACCUMULATING, acks, cnt, bbr.inflight_hi)
    if bbr.round_start:
        bbr_raise_inflight_hi_slope(bbr, tp, log)


# tcp_bbr2.c bbr2_advance_bw_hi_filter()
@jit
def bbr_advance_max_bw_filter(bbr: Bbr, log: Log) -> None:
    if not bbr.bw_hi[1]:
        note(log, codes.BWHI_KEEP_EMPTY, bbr.bw_hi[0])
        return
    note(log, codes.BWHI_ADVANCE, bbr.bw_hi[1], bbr.bw_hi[0])
    bbr.bw_hi[0] = bbr.bw_hi[1]
    bbr.bw_hi[1] = 0


@jit
def _end_probe_feedback(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    """The round after a probe is over; True if the next probe starts right away."""
    note(log, codes.ACKPHASE_END)
    bbr.bw_probe_samples = 0
    bbr.ack_phase = BBR_ACKS_INIT
    if bbr.mode != BBR_PROBE_BW:
        return False
    if rs.is_app_limited:
        note(log, codes.BWHI_KEEP_APPLIMITED, bbr_max_bw(bbr, p))
    else:
        bbr_advance_max_bw_filter(bbr, log)
    if bbr.stopped_risky_probe and not bbr.prev_probe_too_high:
        bbr.debug_event = EVENT_REPROBE
        note(log, codes.REFILL_BY_SAFE_RISKY_PROBE, bbr.inflight_hi)
        bbr_start_bw_probe_refill(bbr, tp, 0, p, log)
        return True
    return False


# tcp_bbr2.c bbr2_adapt_upper_bounds()
@jit
def bbr_adapt_upper_bounds(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    """React to what the probe brought; True if a new probe cycle began."""
    if bbr.ack_phase == BBR_ACKS_PROBE_STARTING and bbr.round_start:
        bbr.ack_phase = BBR_ACKS_PROBE_FEEDBACK
        note(log, codes.ACKPHASE_FEEDBACK)
    if (
        bbr.ack_phase == BBR_ACKS_PROBE_STOPPING
        and bbr.round_start
        and _end_probe_feedback(bbr, tp, rs, p, log)
    ):
        return True

    cause = bbr_is_inflight_too_high(bbr, rs, p)
    if cause:
        if bbr.bw_probe_samples:
            sent = rs.tx_in_flight
            bbr_handle_inflight_too_high(bbr, tp, rs, sent, cause, FROM_MAIN, p, log)
        else:
            note(log, codes.HI_NOCUT_NOT_PROBE, rs.lost, rs.tx_in_flight, bbr.inflight_hi)
        return False

    if bbr.inflight_hi == U32_MAX:
        note(log, codes.HI_UNSET, rs.tx_in_flight)
        return False
    if rs.tx_in_flight > bbr.inflight_hi:
        note(log, codes.HI_RAISE_OBSERVED, bbr.inflight_hi, rs.tx_in_flight)
        bbr.inflight_hi = rs.tx_in_flight
        bbr.debug_event = EVENT_RAISE
    else:
        note(log, codes.HI_SAFE, rs.tx_in_flight, bbr.inflight_hi)
    if bbr.mode == BBR_PROBE_BW and bbr.cycle_idx == BBR_BW_PROBE_UP:
        bbr_probe_inflight_hi_upward(bbr, tp, rs, p, log)
    return False


# tcp_bbr.c (v3) bbr_note_loss()
@jit
def bbr_note_loss(bbr: Bbr, tp: Socket, log: Log) -> None:
    if not bbr.loss_in_round:
        bbr.loss_round_delivered = tp.delivered
        note(log, codes.LOSSROUND_MARK, tp.delivered)
    bbr.loss_in_round = 1
    bbr.loss_in_cycle = 1


# tcp_bbr2.c bbr2_skb_marked_lost()
@jit
def bbr_skb_marked_lost(
    bbr: Bbr, tp: Socket, rs: RateSample, skb: Skb, p: Params, log: Log
) -> None:
    bbr_note_loss(bbr, tp, log)
    if not bbr.bw_probe_samples:
        note(log, codes.HI_KEEP_SKB_NOT_PROBE, bbr.inflight_hi)
        return
    if skb.delivered_mstamp == 0:  # SACKed before, reneged since
        note(log, codes.HI_KEEP_SKB_UNUSABLE, bbr.inflight_hi)
        return
    # The kernel builds this rate sample on its stack.
    rs.tx_in_flight = skb.in_flight
    rs.lost = s32(tp.lost - skb.lost)
    rs.is_app_limited = skb.is_app_limited
    if bbr_is_inflight_too_high(bbr, rs, p):
        sent = rs.tx_in_flight
        rs.tx_in_flight = bbr_inflight_hi_from_lost_skb(rs, skb.gso_segs, p, log)
        bbr_handle_inflight_too_high(bbr, tp, rs, sent, BY_LOSS, FROM_LOST_SKB, p, log)
    else:
        limit = loss_limit(rs.tx_in_flight, p)
        note(log, codes.LOSS_RIDES_PROBE, rs.lost, rs.tx_in_flight, limit)
