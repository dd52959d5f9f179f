"""DRAIN: empty the queue that STARTUP built, until inflight is down to the BDP."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..kernel_units import BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.inflight import bbr_inflight, bbr_packets_in_net_at_edt
from ..params import Params
from ..records import BBR_DRAIN, Bbr, Log, Socket
from ..tcp import tcp_packets_in_flight
from .transition import transition_to


# v1 bbr_check_drain(); v2 bbr_check_drain(); v3 bbr_check_drain()
@jit
def enter_drain(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """The pipe is full. ssthresh only tells an onlooker so: BBR itself does not read it."""
    transition_to(bbr, BBR_DRAIN)
    max_bw = bbr_max_bw(bbr, p)
    target = bbr_inflight(bbr, tp, max_bw, BBR_UNIT, p)
    tp.snd_ssthresh = target
    note(log, codes.DRAIN_ENTER, target, max_bw)


# v1 bbr_check_drain(); v2 bbr_check_drain(); v3 bbr_check_drain()
@jit
def is_drained(bbr: Bbr, tp: Socket, p: Params, log: Log) -> bool:
    """Is no more in the network than the BDP? The version then enters its PROBE_BW."""
    in_net = bbr_packets_in_net_at_edt(bbr, tp, tcp_packets_in_flight(tp), p)
    target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    if in_net > target:
        note(log, codes.DRAIN_STAY, in_net, target)
        return False
    note(log, codes.DRAIN_EXIT_DRAINED, in_net, target)
    return True
