"""ECN: the running share of CE marks (sender), and the receiver's immediate ACK state."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .full_pipe import bbr_check_ecn_too_high_in_startup
from .ints import BBR_SCALE, BBR_UNIT, s32, u32
from .log import note
from .params import Params
from .records import CA_EVENT_ECN_IS_CE, TCP_ECN_LOW, TCP_ECN_OK, Bbr, Log, Socket


# tcp_bbr.c (v3) bbr_can_use_ecn(): negotiated, and the route says the marks are low-threshold ones
@jit
def bbr_can_use_ecn(tp: Socket) -> bool:
    return (tp.ecn_flags & TCP_ECN_OK) != 0 and (tp.ecn_flags & TCP_ECN_LOW) != 0


@jit
def _become_eligible(bbr: Bbr, p: Params, log: Log) -> None:
    if bbr.min_rtt_us <= p.ecn_max_rtt_us or not p.ecn_max_rtt_us:
        bbr.ecn_eligible = 1
        note(log, codes.ECN_ELIGIBLE, bbr.min_rtt_us)


@jit
def _update_alpha(
    bbr: Bbr, tp: Socket, delivered: int, delivered_ce: int, p: Params, log: Log
) -> int:
    """Move ecn_alpha by 1/16 towards the round's CE ratio; returns the ratio [1/256]."""
    ce_ratio = (delivered_ce << BBR_SCALE) // delivered
    old = bbr.ecn_alpha
    alpha = (BBR_UNIT - p.ecn_alpha_gain) * old >> BBR_SCALE
    alpha += p.ecn_alpha_gain * ce_ratio >> BBR_SCALE
    bbr.ecn_alpha = min(u32(alpha), BBR_UNIT)
    if bbr.ecn_alpha != old:
        note(log, codes.ECN_ALPHA, old, bbr.ecn_alpha, ce_ratio)
    bbr.alpha_last_delivered = tp.delivered
    bbr.alpha_last_delivered_ce = tp.delivered_ce
    bbr_check_ecn_too_high_in_startup(bbr, tp, ce_ratio, p, log)
    return ce_ratio


# tcp_bbr2.c bbr2_update_ecn_alpha()
@jit
def bbr2_update_ecn_alpha(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if p.ecn_factor == 0:
        return
    delivered = s32(tp.delivered - bbr.alpha_last_delivered)
    delivered_ce = s32(tp.delivered_ce - bbr.alpha_last_delivered_ce)
    if delivered <= 0 or delivered_ce < 0:  # nothing delivered; negative: the kernel warns
        return
    if not bbr.ecn_eligible and p.ecn_enable:
        _become_eligible(bbr, p, log)
    _update_alpha(bbr, tp, delivered, delivered_ce, p, log)


# tcp_bbr.c (v3) bbr_update_ecn_alpha()
@jit
def bbr3_update_ecn_alpha(bbr: Bbr, tp: Socket, p: Params, log: Log) -> int:
    """The round's CE ratio [1/256], or -1 if it is not wanted or not known."""
    can_use_ecn = bbr_can_use_ecn(tp)
    if not bbr.ecn_eligible and can_use_ecn and p.ecn_factor:
        _become_eligible(bbr, p, log)
    if not bbr.ecn_eligible and not (can_use_ecn and p.plb_enabled):
        return -1
    delivered = s32(tp.delivered - bbr.alpha_last_delivered)
    delivered_ce = s32(tp.delivered_ce - bbr.alpha_last_delivered_ce)
    if delivered <= 0 or delivered_ce < 0:
        return -1
    return _update_alpha(bbr, tp, delivered, delivered_ce, p, log)


# tcp_dctcp.h dctcp_ece_ack_update(), as far as it touches struct bbr
@jit
def dctcp_ece_ack_update(bbr: Bbr, tp: Socket, event: int) -> None:
    bbr.prior_rcv_nxt = tp.rcv_nxt
    bbr.ce_state = 1 if event == CA_EVENT_ECN_IS_CE else 0
