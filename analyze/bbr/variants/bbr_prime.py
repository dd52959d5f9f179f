"""BBR' (Lanigan20): v1 whose phase of 0.75x lasts until the queue is empty, however long that is.

v1 leaves that phase after a min_rtt, or before it when inflight is down to the BDP. That study's
listing of BBR' has both conditions, as v1; its text, and its code as it ran, the second only.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import tcp_stamp_us_delta
from ..kernel_units import BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.inflight import bbr_inflight, bbr_packets_in_net_at_edt
from ..modes.gain_cycle import bbr_advance_cycle_phase, bbr_is_next_cycle_phase
from ..params import Params
from ..records import BBR_PROBE_BW, Bbr, Log, RateSample, Socket
from ..versions.v1 import bbr_init
from .v1_with import v1_with
from .variant import Variant


@jit
def _is_drained(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> bool:
    in_net = bbr_packets_in_net_at_edt(bbr, tp, rs.prior_in_flight, p)
    target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    if in_net > target:
        note(log, codes.CYC_STAY_DOWN_UNTIL_DRAINED, target, in_net)
        return False
    elapsed_us = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.cycle_mstamp)
    note(log, codes.CYC_NEXT_DOWN_DRAINED, elapsed_us, in_net, target)
    return True


@jit
def drain_whole_queue(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """v1's gain cycle but for the end of the phase of 0.75x."""
    if bbr.mode != BBR_PROBE_BW:
        return
    if bbr.pacing_gain < BBR_UNIT:
        is_over = _is_drained(bbr, tp, rs, p, log)
    else:
        is_over = bbr_is_next_cycle_phase(bbr, tp, rs, p, log)
    if is_over:
        bbr_advance_cycle_phase(bbr, tp)


VARIANT = Variant("v1", {}, bbr_init, v1_with(cycle=drain_whole_queue))
