"""The long-term bound inflight_hi: raised while safe, cut when a probe went too high (v2, v3)."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..debug_event import EVENT_GROW_SLOPE, EVENT_INCREMENT, EVENT_LOSS_OR_ECN, EVENT_RAISE
from ..ints import mul_shift, s32, u32
from ..kernel_units import BBR_SCALE, BBR_UNIT, U32_MAX
from ..log import note
from ..params import Params
from ..records import Bbr, Log, RateSample, Socket
from .inflight import bbr_target_inflight

# Why inflight was too high, as bbr_is_inflight_too_high() says ...
NOT_TOO_HIGH, BY_LOSS, BY_ECN = range(3)
# ... and who asked.
FROM_MAIN, FROM_LOST_SKB, FROM_TLP = range(3)


@jit
def loss_limit_of(tx_in_flight: int, p: Params) -> int:
    """Packets out of a flight that may be lost before it counts as too high."""
    return mul_shift(tx_in_flight, p.loss_thresh, BBR_SCALE)


@jit
def ecn_limit_of(delivered: int, p: Params) -> int:
    """Packets out of those delivered that may be CE-marked before it counts as too high."""
    return mul_shift(delivered, p.ecn_thresh, BBR_SCALE)


# v2 bbr2_is_inflight_too_high(); v3 bbr_is_inflight_too_high()
@jit
def bbr_is_inflight_too_high(bbr: Bbr, rs: RateSample, p: Params) -> int:
    """Return NOT_TOO_HIGH, or why inflight was too high: BY_LOSS or BY_ECN."""
    if rs.lost > 0 and rs.tx_in_flight and rs.lost > loss_limit_of(rs.tx_in_flight, p):
        return BY_LOSS
    if rs.delivered_ce > 0 and rs.delivered > 0 and bbr.ecn_eligible and p.ecn_thresh:
        limit = ecn_limit_of(rs.delivered, p)
        # v2 reacts at the threshold, v3 above it
        if rs.delivered_ce > limit or (p.ecn_at_thresh_is_high and rs.delivered_ce == limit):
            return BY_ECN
    return NOT_TOO_HIGH


# v2 bbr2_inflight_hi_from_lost_skb(); v3 bbr_inflight_hi_from_lost_skb()
@jit
def bbr_inflight_hi_from_lost_skb(rs: RateSample, pcount: int, p: Params, log: Log) -> int:
    """How far into the flight the loss rate crossed the limit [packets]; ~0U: cannot be told.

    That is so if the skb has more packets than were lost or in flight, or loss_thresh is 100 %.
    """
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


# v2 bbr2_handle_inflight_too_high(); v3 bbr_handle_inflight_too_high()
@jit
def cut_inflight_hi(
    bbr: Bbr, tp: Socket, rs: RateSample, sent: int, cause: int, origin: int, p: Params, log: Log
) -> None:
    """Remember that the probe went too high, and cut inflight_hi.

    `rs.tx_in_flight` is the volume to fall back to; `sent` is what was in flight when the lost (or
    marked) packets were sent. For a lost skb the two differ. Both are in packets.
    """
    bbr.prev_probe_too_high = 1
    bbr.bw_probe_samples = 0  # react once per probe
    bbr.debug_event = EVENT_LOSS_OR_ECN
    if rs.is_app_limited:
        tx_in_flight = sent
        note(log, codes.HI_NOCUT_APPLIMITED, tx_in_flight, bbr.inflight_hi)
        return
    old = bbr.inflight_hi
    target = bbr_target_inflight(bbr, tp, p)
    floor = mul_shift(target, BBR_UNIT - p.beta, BBR_SCALE)
    bbr.inflight_hi = max(rs.tx_in_flight, floor)
    _note_cut(bbr, rs, old, target, cause, origin, log)


@jit
def _note_cut(
    bbr: Bbr, rs: RateSample, old: int, target: int, cause: int, origin: int, log: Log
) -> None:
    new = bbr.inflight_hi
    if new == old:
        note(log, codes.HI_CUT_SAME, old, rs.tx_in_flight, target)
    elif new < old and origin == FROM_LOST_SKB:
        prefix = rs.tx_in_flight
        note(log, codes.HI_CUT_LOST_SKB, old, new, prefix, target)
    else:
        code = codes.HI_CUT_RS_LOSS
        if new > old:
            code = codes.HI_CUT_RAISED
        elif origin == FROM_TLP:
            code = codes.HI_CUT_TLP
        elif cause == BY_ECN:
            code = codes.HI_CUT_RS_ECN
        note(log, code, old, new, rs.tx_in_flight, target)


# v2 bbr2_adapt_upper_bounds(); v3 bbr_adapt_upper_bounds()
@jit
def raise_inflight_hi(bbr: Bbr, rs: RateSample, log: Log) -> None:
    """Raise inflight_hi to `rs.tx_in_flight`, which caused no excess loss or CE marks."""
    if rs.tx_in_flight > bbr.inflight_hi:
        old, new = bbr.inflight_hi, rs.tx_in_flight
        note(log, codes.HI_RAISE_OBSERVED, old, new)
        bbr.inflight_hi = new
        bbr.debug_event = EVENT_RAISE
    else:
        note(log, codes.HI_SAFE, rs.tx_in_flight, bbr.inflight_hi)


# v2 bbr2_probe_inflight_hi_upward(); v3 bbr_probe_inflight_hi_upward()
@jit
def bbr_probe_inflight_hi_upward(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """In UP, while inflight_hi is what limits sending, raise it per packets acknowledged."""
    if not tp.is_cwnd_limited or tp.snd_cwnd < bbr.inflight_hi:
        if p.zero_up_acks_when_not_limited:
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
        old, new = bbr.inflight_hi, u32(bbr.inflight_hi + delta)
        bbr.inflight_hi = new
        bbr.debug_event = EVENT_INCREMENT
        if p.raise_ends_fast_path:
            bbr.try_fast_path = 0
        note(log, codes.HI_RAISE_SLOPE, old, new, acks, cnt)
    else:
        note(log, codes.HI_HOLD_ACCUMULATING, acks, cnt, bbr.inflight_hi)
    if bbr.round_start:
        bbr_raise_inflight_hi_slope(bbr, tp, log)


# v2 bbr2_raise_inflight_hi_slope(); v3 bbr_raise_inflight_hi_slope()
@jit
def bbr_raise_inflight_hi_slope(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Each round of UP doubles how fast inflight_hi grows."""
    growth = 1 << bbr.bw_probe_up_rounds  # u32; 1 << 31 at most
    bbr.bw_probe_up_rounds = min(bbr.bw_probe_up_rounds + 1, 30)
    bbr.bw_probe_up_cnt = max(tp.snd_cwnd // growth, 1)
    bbr.debug_event = EVENT_GROW_SLOPE
    note(log, codes.HI_SLOPE_DOUBLE, bbr.bw_probe_up_cnt, bbr.bw_probe_up_rounds)
