"""The retransmission timer and what shares it: when it is due, and how RTTs set it.

net/ipv4/tcp_input.c, net/ipv4/tcp_output.c (the loss probe), include/net/inet_connection_sock.h.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ...bbr.records import TCP_CA_CWR, TCP_CA_OPEN
from ..world.coming import schedule
from ..world.places import Sim, event_of, flow_of, seg_of, world_of
from ..world.world_records import (
    EV_TIMER,
    NS,
    TIMER_NONE,
    TIMER_REO,
    TIMER_RTO,
    TIMER_TLP,
    US,
)
from .estimator import clock_ticks

RTO_MIN_US = 200_000
_RTO_MAX_US = 120_000_000
_TIMEOUT_INIT_US = 1_000_000
# The wheel's levels: LVL_SIZE - 1 ticks, LVL_CLK_SHIFT.
_LEVEL, _LEVEL_SHIFT = 63, 3


@jit
def jiffies_us(count: int, hz: int) -> int:
    """jiffies_to_usecs(): `count` ticks of the clock [us]."""
    return count * (1_000_000 // hz)


@jit
def wheel_ns(now_ns: int, after_us: int, hz: int) -> int:
    """sk_reset_timer(), calc_wheel_index(): when a timer of `after_us` fires [ns].

    At the tick that follows the one it is set for; from 63 ticks on at a multiple of 8 ticks, from
    504 on of 64, and so on.
    """
    tick = NS // hz
    wait = (max(after_us, 1) * US + tick - 1) // tick
    shift = 0
    while wait >= _LEVEL << shift:
        shift += _LEVEL_SHIFT
    jiffies = clock_ticks(now_ns, hz) + wait
    return now_ns // tick * tick + (((jiffies >> shift) + 1 << shift) - jiffies + wait) * tick


@jit
def set_timer(s: Sim, i: int, kind: int, after_us: int) -> None:
    """inet_csk_reset_xmit_timer(): due after so long, as the timer wheel has it."""
    f, w = flow_of(s, i), world_of(s)
    f.timer = kind
    f.timer_ns = wheel_ns(w.now, after_us, f.hz)
    if f.timer_event_ns < 0 or f.timer_ns < f.timer_event_ns:
        f.timer_event_ns = f.timer_ns
        schedule(s, f.timer_ns, EV_TIMER, i)


@jit
def clear_timer(s: Sim, i: int) -> None:
    """inet_csk_clear_xmit_timer(): nothing is due."""
    f = flow_of(s, i)
    f.timer = TIMER_NONE


@jit
def rto_delta_us(s: Sim, i: int) -> int:
    """tcp_rto_delta_us(): how long until the oldest segment times out [us]."""
    f = flow_of(s, i)
    bits = world_of(s).bits
    head = seg_of(s, (i << bits) + (f.una & ((1 << bits) - 1)))
    return f.rto_us - (world_of(s).now - head.sent_ns) // US


@jit
def tcp_rearm_rto(s: Sim, i: int) -> None:
    """Set the retransmission timer: an RTO from now.

    If the timer was a loss probe's or RACK's, an RTO from when the oldest segment was sent.
    """
    f, tp = flow_of(s, i), event_of(s, i).tp
    if tp.packets_out == 0:
        clear_timer(s, i)
        return
    rto = f.rto_us
    if f.timer == TIMER_REO or f.timer == TIMER_TLP:
        rto = max(rto_delta_us(s, i), 1)
    set_timer(s, i, TIMER_RTO, rto)


@jit
def tcp_schedule_loss_probe(s: Sim, i: int, advancing: bool) -> bool:
    """Set the timer for a tail loss probe after two RTTs, at the latest at the RTO; True if set."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    state = tp.icsk_ca_state
    if tp.packets_out == 0 or (state != TCP_CA_OPEN and state != TCP_CA_CWR):
        return False
    if tp.srtt_us:
        timeout = tp.srtt_us >> 2
        timeout += RTO_MIN_US if tp.packets_out == 1 else jiffies_us(2, f.hz)
    else:
        timeout = _TIMEOUT_INIT_US
    left = f.rto_us if advancing else rto_delta_us(s, i)
    if left > 0:
        timeout = min(timeout, left)
    set_timer(s, i, TIMER_TLP, timeout)
    return True


@jit
def tcp_set_xmit_timer(s: Sim, i: int) -> None:
    """After progress: a loss probe, else the retransmission timer."""
    if not tcp_schedule_loss_probe(s, i, True):
        tcp_rearm_rto(s, i)


@jit
def tcp_rtt_estimator(s: Sim, i: int, rtt_us: int) -> None:
    """srtt and its mean deviation, then the retransmission timeout."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    srtt, m = tp.srtt_us, rtt_us
    if srtt:
        m -= srtt >> 3
        srtt += m
        if m < 0:
            m = -m - (f.mdev >> 2)
            if m > 0:
                m >>= 3
        else:
            m -= f.mdev >> 2
        f.mdev += m
        if f.mdev > f.mdev_max:
            f.mdev_max = f.mdev
            f.rttvar = max(f.rttvar, f.mdev_max)
        if f.una > f.rtt_seq:
            if f.mdev_max < f.rttvar:
                f.rttvar -= (f.rttvar - f.mdev_max) >> 2
            f.rtt_seq = f.nxt
            f.mdev_max = RTO_MIN_US
    else:
        srtt = m << 3
        f.mdev = m << 1
        f.rttvar = max(f.mdev, RTO_MIN_US)
        f.mdev_max = f.rttvar
        f.rtt_seq = f.nxt
    tp.srtt_us = max(srtt, 1)
    tick = jiffies_us(1, f.hz)
    rto = (tp.srtt_us >> 3) + f.rttvar
    f.rto_us = min((rto + tick - 1) // tick * tick, _RTO_MAX_US)
