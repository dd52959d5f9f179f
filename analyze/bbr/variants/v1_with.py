"""v1's callbacks with other pieces in their places: the gain cycle, the RTT filter, the gains."""

from __future__ import annotations

from collections.abc import Callable

from ....probes.base.jit import jit
from ..control.cwnd import set_cwnd_with_conservation
from ..control.gains import bbr_update_gains
from ..control.pacing import bbr_set_pacing_rate
from ..model.aggregation import bbr_update_ack_aggregation
from ..model.bandwidth import bbr_bw
from ..model.full_pipe import plateau_of_max_bw
from ..modes.gain_cycle import update_gain_cycle
from ..params import Params
from ..records import MAIN, Bbr, Event, Log, RateSample, Socket
from ..replay_loop import Dispatch
from ..versions.v1 import bbr_check_drain, bbr_update_bw, bbr_update_min_rtt
from ..versions.v1 import dispatch as dispatch_v1

Piece = Callable[[Bbr, Socket, RateSample, Params, Log], None]
Gains = Callable[[Bbr, Params], None]


def v1_with(
    cycle: Piece = update_gain_cycle,
    min_rtt: Piece = bbr_update_min_rtt,
    gains: Gains = bbr_update_gains,
) -> Dispatch:
    """v1's dispatch() with these pieces of its bbr_main() replaced; all of them `jit`.

    Args:
        cycle: in place of v1's gain cycle, before the plateau and DRAIN are looked at.
        min_rtt: in place of v1's RTT filter with PROBE_RTT, after them.
        gains: sets pacing_gain and cwnd_gain.
    """

    @jit
    def on_ack(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
        bbr_update_bw(bbr, tp, rs, p, log)
        bbr_update_ack_aggregation(bbr, tp, rs, p, log)
        cycle(bbr, tp, rs, p, log)
        plateau_of_max_bw(bbr, rs, p, log)
        bbr_check_drain(bbr, tp, p, log)
        min_rtt(bbr, tp, rs, p, log)
        gains(bbr, p)
        bw = bbr_bw(bbr, p)
        bbr_set_pacing_rate(bbr, tp, bw, bbr.pacing_gain, p, log)
        set_cwnd_with_conservation(bbr, tp, rs, bw, bbr.cwnd_gain, p, log)

    @jit
    def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
        if ev.ctl.kind == MAIN:
            on_ack(bbr, ev.tp, ev.rs, p, log)
        else:
            dispatch_v1(bbr, ev, p, log)

    return dispatch
