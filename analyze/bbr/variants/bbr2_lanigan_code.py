"""BBRv2 as the code of Lanigan20 ran it: its fractions are integer divisions, 0 each.

So any loss in a probe is too much, and cuts nothing below the BDP; outside probes loss cuts
nothing; no headroom is left but the one packet that v2's arithmetic leaves. Besides: probes are a
min_rtt apart, PROBE_RTT comes every 10 s with 4 packets, bw_lo does not bound the pacing,
inflight_hi does not grow in UP (its counter is cleared before it is used), and max_bw starts at
2**31 - 1 bit/s until the first probe cycle is over. No packet could be CE-marked in that study, so
its code of BBRv2-EXP behaved in the same way.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from ..kernel_units import BW_UNIT, U32_MAX, USEC_PER_SEC
from ..params import Params
from ..records import BBR_PROBE_BW, MAIN, Bbr, Event, Log, Socket
from ..versions.v2 import bbr_init as bbr_init_v2
from ..versions.v2 import dispatch as dispatch_v2
from .variant import Variant

_FIRST_MAX_BW = (1 << 31) - 1  # bit/s


@jit
def begin(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    """v2's init, and the highest rate that the study's code could write as the first max_bw."""
    bbr_init_v2(bbr, tp, min_rtt_us, p, log)
    bbr.bw_hi[0] = _FIRST_MAX_BW // 8 * BW_UNIT // (tp.mss_cache * USEC_PER_SEC)


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """v2's callbacks; in PROBE_BW the wait is a min_rtt, and inflight_hi has no slope."""
    dispatch_v2(bbr, ev, p, log)
    if ev.ctl.kind == MAIN and bbr.mode == BBR_PROBE_BW:
        bbr.probe_wait_us = bbr.min_rtt_us
        bbr.bw_probe_up_cnt = U32_MAX


_PARAMS = {
    "loss_thresh": 0,
    "beta": 0,
    "inflight_headroom": 0,
    "ecn_thresh": 0,
    "ecn_factor": 0,
    "ecn_alpha_gain": 0,
    "bw_probe_reno_gain": 0,  # its rule counts bytes, so that bw_probe_max_rounds holds
    "probe_rtt_win_ms": 10_000,
    "probe_rtt_cwnd_gain": 0,  # cwnd_min_target
    "has_lower_bounds": 0,
}
VARIANT = Variant("v2", _PARAMS, begin, dispatch)
