"""ECN: the running share of CE marks (sender), and the receiver's immediate ACK state."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import s32, u32
from ..kernel_units import BBR_SCALE, BBR_UNIT
from ..log import note
from ..params import Params
from ..records import CA_EVENT_ECN_IS_CE, TCP_ECN_LOW, TCP_ECN_OK, Bbr, Log, Socket

NO_RATIO = -1


# v3 bbr_can_use_ecn()
@jit
def bbr_can_use_ecn(tp: Socket) -> bool:
    """ECN is negotiated, and the route says the marks are low-threshold ones."""
    return (tp.ecn_flags & TCP_ECN_OK) != 0 and (tp.ecn_flags & TCP_ECN_LOW) != 0


@jit
def become_eligible(bbr: Bbr, p: Params, log: Log) -> None:
    """Let the flow respond to CE marks if min_rtt allows it (part of *_update_ecn_alpha())."""
    if bbr.min_rtt_us <= p.ecn_max_rtt_us or not p.ecn_max_rtt_us:
        bbr.ecn_eligible = 1
        note(log, codes.ECN_ELIGIBLE, bbr.min_rtt_us)


@jit
def delivered_since_update(bbr: Bbr, tp: Socket) -> int:
    """Packets delivered since ecn_alpha was last updated.

    0 if there are none, or if a counter has run backwards: there the kernel warns and gives up.
    """
    delivered = s32(tp.delivered - bbr.alpha_last_delivered)
    delivered_ce = s32(tp.delivered_ce - bbr.alpha_last_delivered_ce)
    return delivered if delivered > 0 and delivered_ce >= 0 else 0


@jit
def move_alpha(bbr: Bbr, tp: Socket, delivered: int, p: Params, log: Log) -> int:
    """Move ecn_alpha by ecn_alpha_gain towards the round's CE ratio; returns the ratio [1/256]."""
    delivered_ce = s32(tp.delivered_ce - bbr.alpha_last_delivered_ce)
    ce_ratio = (delivered_ce << BBR_SCALE) // delivered
    old = bbr.ecn_alpha
    alpha = (BBR_UNIT - p.ecn_alpha_gain) * old >> BBR_SCALE
    alpha += p.ecn_alpha_gain * ce_ratio >> BBR_SCALE
    new = min(u32(alpha), BBR_UNIT)
    bbr.ecn_alpha = new
    if new != old:
        note(log, codes.ECN_ALPHA, old, new, ce_ratio)
    bbr.alpha_last_delivered = tp.delivered
    bbr.alpha_last_delivered_ce = tp.delivered_ce
    return ce_ratio


# dctcp dctcp_ece_ack_update()
@jit
def dctcp_ece_ack_update(bbr: Bbr, tp: Socket, event: int) -> None:
    """Remember the CE state of what was received, as far as it touches struct bbr."""
    bbr.prior_rcv_nxt = tp.rcv_nxt
    bbr.ce_state = 1 if event == CA_EVENT_ECN_IS_CE else 0
