"""What a probe for bandwidth brought: too much loss or too many marks, or a volume that is safe."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..debug_event import EVENT_REPROBE
from ..ints import s32
from ..kernel_units import U32_MAX
from ..log import note
from ..model.bandwidth import bbr_advance_max_bw_filter, bbr_max_bw
from ..model.rounds import bbr_note_loss
from ..model.upper_bounds import (
    BY_ECN,
    BY_LOSS,
    FROM_LOST_SKB,
    FROM_MAIN,
    FROM_TLP,
    bbr_inflight_hi_from_lost_skb,
    bbr_is_inflight_too_high,
    bbr_probe_inflight_hi_upward,
    cut_inflight_hi,
    ecn_limit_of,
    loss_limit_of,
    raise_inflight_hi,
)
from ..params import Params
from ..records import (
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
from .phases import bbr_start_bw_probe_down, bbr_start_bw_probe_refill


@jit
def is_probing_up(bbr: Bbr) -> bool:
    """In PROBE_BW's phase UP."""
    return bbr.mode == BBR_PROBE_BW and bbr.cycle_idx == BBR_BW_PROBE_UP


# v2 bbr2_handle_inflight_too_high(); v3 bbr_handle_inflight_too_high()
@jit
def bbr_handle_inflight_too_high(
    bbr: Bbr, tp: Socket, rs: RateSample, sent: int, cause: int, origin: int, p: Params, log: Log
) -> None:
    """Cut inflight_hi, and stop the probe; see cut_inflight_hi() for the arguments."""
    cut_inflight_hi(bbr, tp, rs, sent, cause, origin, p, log)
    if is_probing_up(bbr):
        _note_down(rs, sent, cause, origin, p, log)
        bbr_start_bw_probe_down(bbr, tp, p, log)


@jit
def _note_down(
    rs: RateSample, tx_in_flight: int, cause: int, origin: int, p: Params, log: Log
) -> None:
    if cause == BY_ECN and origin == FROM_MAIN:
        ecn_limit = ecn_limit_of(rs.delivered, p)
        note(log, codes.DOWN_BY_ECN, rs.delivered_ce, rs.delivered, ecn_limit)
        return
    code = codes.DOWN_BY_LOSS
    if origin == FROM_LOST_SKB:
        code = codes.DOWN_BY_LOST_SKB
    elif origin == FROM_TLP:
        code = codes.DOWN_BY_TLP
    loss_limit = loss_limit_of(tx_in_flight, p)
    note(log, code, rs.lost, tx_in_flight, loss_limit)


@jit
def _end_probe_feedback(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    """The round after a probe is over; True if the next probe starts right away."""
    note(log, codes.ACKPHASE_END)
    bbr.bw_probe_samples = 0
    bbr.ack_phase = BBR_ACKS_INIT
    if bbr.mode != BBR_PROBE_BW:
        return False
    if rs.is_app_limited:
        max_bw = bbr_max_bw(bbr, p)
        note(log, codes.BWHI_KEEP_APPLIMITED, max_bw)
    else:
        bbr_advance_max_bw_filter(bbr, log)
    if bbr.stopped_risky_probe and not bbr.prev_probe_too_high:
        bbr.debug_event = EVENT_REPROBE
        note(log, codes.REFILL_BY_SAFE_RISKY_PROBE, bbr.inflight_hi)
        bbr_start_bw_probe_refill(bbr, tp, 0, p, log)
        return True
    return False


# v2 bbr2_adapt_upper_bounds(); v3 bbr_adapt_upper_bounds()
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
    if cause and bbr.bw_probe_samples:
        bbr_handle_inflight_too_high(bbr, tp, rs, rs.tx_in_flight, cause, FROM_MAIN, p, log)
    elif cause:
        note(log, codes.HI_NOCUT_NOT_PROBE, rs.lost, rs.tx_in_flight, bbr.inflight_hi)
    elif bbr.inflight_hi == U32_MAX:
        note(log, codes.HI_UNSET, rs.tx_in_flight)
    else:
        raise_inflight_hi(bbr, rs, log)
        if is_probing_up(bbr):
            bbr_probe_inflight_hi_upward(bbr, tp, rs, p, log)
    return False


# v2 bbr2_skb_marked_lost(); v3 bbr_skb_marked_lost()
@jit
def bbr_skb_marked_lost(
    bbr: Bbr, tp: Socket, rs: RateSample, skb: Skb, p: Params, log: Log
) -> None:
    """TCP has marked a packet lost: did the flight that it was sent in lose too much?"""
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
        note_loss_within_limit(rs, p, log)


@jit
def note_loss_within_limit(rs: RateSample, p: Params, log: Log) -> None:
    """A packet lost while probing does not end the probe."""
    loss_limit = loss_limit_of(rs.tx_in_flight, p)
    note(log, codes.LOSS_RIDES_PROBE, rs.lost, rs.tx_in_flight, loss_limit)
