"""The gains on pacing rate and cwnd that each mode and phase asks for."""

from __future__ import annotations

from ....probes.base.jit import jit
from ..kernel_units import BBR_UNIT
from ..params import Params
from ..records import (
    BBR_BW_PROBE_UP,
    BBR_DRAIN,
    BBR_PROBE_BW,
    BBR_PROBE_RTT,
    BBR_STARTUP,
    Bbr,
)


# v1 bbr_update_gains(); v2 bbr_update_gains(); v3 bbr_update_gains()
@jit
def bbr_update_gains(bbr: Bbr, p: Params) -> None:
    """Set pacing_gain and cwnd_gain [1/256] for the present mode and phase."""
    if bbr.mode == BBR_STARTUP:
        bbr.pacing_gain = p.high_gain
        bbr.cwnd_gain = p.startup_cwnd_gain
    elif bbr.mode == BBR_DRAIN:
        bbr.pacing_gain = p.drain_gain
        bbr.cwnd_gain = p.startup_cwnd_gain  # keep cwnd
    elif bbr.mode == BBR_PROBE_BW:
        bbr.pacing_gain = BBR_UNIT if bbr.lt_use_bw else p.pacing_gain[bbr.cycle_idx]
        bbr.cwnd_gain = p.cwnd_gain
        if p.bw_probe_cwnd_gain and bbr.cycle_idx == BBR_BW_PROBE_UP:
            bbr.cwnd_gain += BBR_UNIT * p.bw_probe_cwnd_gain // 4
    elif bbr.mode == BBR_PROBE_RTT:
        bbr.pacing_gain = BBR_UNIT
        bbr.cwnd_gain = BBR_UNIT
