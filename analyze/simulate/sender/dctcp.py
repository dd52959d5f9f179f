"""DCTCP beside BBR: tcp_dctcp.c. What it keeps stands in the fields that CUBIC uses for its curve.

`ca_cnt` is dctcp_alpha [1/1024], `ca_w_max` loss_cwnd, `ca_end_seq` next_seq, `ca_ack_cnt`
old_delivered, and `ca_last_cwnd` old_delivered_ce. Its receiver is in world/receiver.py
(dctcp_ece_ack_update()).
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import TCP_ECN_OK
from ..world.places import Sim, event_of, flow_of
from ..world.world_records import CC_RENO

_MAX_ALPHA = 1024  # DCTCP_MAX_ALPHA; dctcp_alpha_on_init
_SHIFT_G = 4  # dctcp_shift_g: g is 1/16


@jit
def dctcp_init(s: Sim, i: int) -> None:
    """dctcp_init(): a connection without ECN is Reno's from here on (dctcp_reno)."""
    f = flow_of(s, i)
    if not event_of(s, i).tp.ecn_flags & TCP_ECN_OK:
        f.cc = CC_RENO
        return
    f.ca_cnt = _MAX_ALPHA
    f.ca_w_max = 0
    _reset(s, i, 0)


@jit
def _reset(s: Sim, i: int, delivered_ce: int) -> None:
    """dctcp_reset(): a window of data begins, whose marks are counted."""
    f = flow_of(s, i)
    f.ca_end_seq = f.nxt
    f.ca_ack_cnt = event_of(s, i).tp.delivered
    f.ca_last_cwnd = delivered_ce


@jit
def dctcp_update_alpha(s: Sim, i: int, delivered_ce: int) -> None:
    """dctcp_update_alpha(), once a window: by a sixteenth to the share of marked packets.

    As in_ack_event() has it up to Linux 6.14: SACKed packets of this ACK are counted, in
    `delivered_ce` too, those that it acknowledges in the next window.
    """
    f, tp = flow_of(s, i), event_of(s, i).tp
    if f.una < f.ca_end_seq:
        return
    alpha = f.ca_cnt
    step = alpha >> _SHIFT_G
    alpha -= step if step else alpha  # min_not_zero()
    marked = delivered_ce - f.ca_last_cwnd
    if marked:
        alpha += (marked << (10 - _SHIFT_G)) // max(tp.delivered - f.ca_ack_cnt, 1)
    f.ca_cnt = min(alpha, _MAX_ALPHA)
    _reset(s, i, delivered_ce)


@jit
def dctcp_ssthresh(s: Sim, i: int) -> int:
    """dctcp_ssthresh(): cwnd less half of alpha of it."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    f.ca_w_max = tp.snd_cwnd
    return max(tp.snd_cwnd - (tp.snd_cwnd * f.ca_cnt >> 11), 2)


@jit
def dctcp_react_to_loss(s: Sim, i: int) -> None:
    """dctcp_react_to_loss(): half of cwnd, as Reno; at Recovery, and at a timeout."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    f.ca_w_max = tp.snd_cwnd
    tp.snd_ssthresh = max(tp.snd_cwnd >> 1, 2)


@jit
def dctcp_cwnd_undo(s: Sim, i: int) -> int:
    """dctcp_cwnd_undo(): the cwnd before the last reduction."""
    return max(event_of(s, i).tp.snd_cwnd, flow_of(s, i).ca_w_max)
