"""Slow start after a pause, which controls without cong_control() have: tcp_output.c, tcp.h."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..world.places import Sim, event_of, flow_of
from ..world.world_records import CC_BBR, US
from .fast_recovery import tcp_current_ssthresh

_INIT_CWND = 10  # TCP_INIT_CWND


@jit
def tcp_slow_start_after_idle_check(s: Sim, i: int) -> None:
    """At a write: nothing was sent for a timeout, so that cwnd is out of date."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    idle_us = (f.mstamp_ns - f.last_sent_ns) // US
    if f.cc != CC_BBR and tp.packets_out == 0 and idle_us > f.rto_us:
        _tcp_cwnd_restart(s, i, idle_us)


@jit
def _tcp_cwnd_restart(s: Sim, i: int, idle_us: int) -> None:
    """Halve cwnd for each timeout of the pause, down to that of a new connection."""
    f, tp = flow_of(s, i), event_of(s, i).tp
    tp.snd_ssthresh = tcp_current_ssthresh(s, i)
    cwnd, least = tp.snd_cwnd, min(_INIT_CWND, tp.snd_cwnd)
    left = idle_us - f.rto_us
    while left > 0 and cwnd > least:
        cwnd >>= 1
        left -= f.rto_us
    tp.snd_cwnd = max(cwnd, least)
