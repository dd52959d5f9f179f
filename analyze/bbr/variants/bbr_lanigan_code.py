"""BBR as the code of Lanigan20 ran it: the phase of 0.75x lasts one min_rtt, drained or not."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import tcp_stamp_us_delta
from ..kernel_units import BBR_UNIT
from ..log import note
from ..modes.gain_cycle import bbr_advance_cycle_phase, bbr_is_next_cycle_phase
from ..params import Params
from ..records import BBR_PROBE_BW, Bbr, Log, RateSample, Socket
from ..versions.v1 import bbr_init
from .v1_with import v1_with
from .variant import Variant


@jit
def _is_time_over(bbr: Bbr, tp: Socket, log: Log) -> bool:
    elapsed_us = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.cycle_mstamp)
    if elapsed_us > bbr.min_rtt_us:
        note(log, codes.CYC_NEXT_DOWN_TIME, elapsed_us, bbr.min_rtt_us)
        return True
    note(log, codes.CYC_STAY_TIME, bbr.cycle_idx, elapsed_us, bbr.min_rtt_us)
    return False


@jit
def drain_for_min_rtt(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """v1's gain cycle but for the end of the phase of 0.75x."""
    if bbr.mode != BBR_PROBE_BW:
        return
    if bbr.pacing_gain < BBR_UNIT:
        is_over = _is_time_over(bbr, tp, log)
    else:
        is_over = bbr_is_next_cycle_phase(bbr, tp, rs, p, log)
    if is_over:
        bbr_advance_cycle_phase(bbr, tp)


VARIANT = Variant("v1", {}, bbr_init, v1_with(cycle=drain_for_min_rtt))
