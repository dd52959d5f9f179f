"""Delay-BBR (Lanigan20): v1 that backs off into PROBE_RTT when the smoothed RTT has risen by 20 %.

The smoothed RTT gives the new sample 90 % of the weight, and is compared with the lowest RTT since
the last back-off. PROBE_RTT paces at 0.75x, with a window of 0.75 BDP, until inflight is below the
BDP. An RTT within 12.5 % of the minimum renews it; the study does not give that share, WebRTC has
it. What it does when the minimum expires is v1's: the present sample replaces it.

In the study's code both 9/10 and 6/5 are integer divisions, 0 and 1. The smoothed RTT then never
leaves its lowest value, so that no delay is ever congestion; PROBE_RTT ends as v1's does.
"""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..control.gains import bbr_update_gains
from ..ints import before, u32
from ..kernel_units import BBR_UNIT, MSEC_PER_SEC
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.inflight import bbr_bdp
from ..model.min_rtt import filter_min_rtt_by_one_window
from ..modes.probe_rtt import (
    end_idle_restart,
    enter_probe_rtt,
    is_low_round_over,
    is_probe_rtt_due,
)
from ..params import Params
from ..records import BBR_PROBE_BW, BBR_PROBE_RTT, Bbr, Log, RateSample, Socket
from ..tcp import tcp_jiffies32, tcp_packets_in_flight
from ..versions.v1 import bbr_check_probe_rtt_done, bbr_init, bbr_reset_mode
from .v1_with import Piece, v1_with
from .variant import Variant

# Indices of the variant's state: smoothed and lowest RTT since the last back-off [us, 0: none],
# tp.delivered at that back-off, and whether there was one.
SRTT, BASE, BACKED_OFF_AT, HAS_BACKED_OFF = range(4)
_BACK_OFF_GAIN = 192  # 0.75
_PARAMS = {
    "pacing_gain": [284, 230, 256, 256, 256, 256, 256, 256],  # 1.11, 0.9
    "probe_rtt_cwnd_gain": 192,  # 0.75 BDP
}
_TENTHS = 10


@jit
def _renew_if_similar(bbr: Bbr, tp: Socket, rs: RateSample) -> None:
    """An RTT below 1.125 x the minimum shows that the minimum still holds."""
    if rs.rtt_us >= 0 and 8 * rs.rtt_us < 9 * bbr.min_rtt_us:
        bbr.min_rtt_stamp = tcp_jiffies32(tp)


@jit
def follow_delay(bbr: Bbr, rs: RateSample, alpha: int) -> None:
    """Smooth the RTTs of what was sent after the last back-off; alpha in tenths."""
    state = bbr.variant
    if rs.rtt_us <= 0:
        return
    if state[HAS_BACKED_OFF] and before(rs.prior_delivered, state[BACKED_OFF_AT]):
        return
    if state[BASE] == 0 or rs.rtt_us < state[BASE]:
        state[BASE] = rs.rtt_us
        state[SRTT] = rs.rtt_us
    state[SRTT] = ((_TENTHS - alpha) * state[SRTT] + alpha * rs.rtt_us) // _TENTHS


@jit
def is_congested(bbr: Bbr, beta: int) -> bool:
    """In PROBE_BW, a smoothed RTT above beta tenths of the lowest one."""
    state = bbr.variant
    if bbr.mode != BBR_PROBE_BW or state[BASE] == 0:
        return False
    return _TENTHS * state[SRTT] > beta * state[BASE]


@jit
def _back_off(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    srtt_us, base_us = bbr.variant[SRTT], bbr.variant[BASE]
    note(log, codes.PRTT_ENTER_DELAY, srtt_us, base_us)
    enter_probe_rtt(bbr, tp, base_us, 0, p, None)  # its note would say that min_rtt expired


@jit
def _forget_delay(bbr: Bbr, tp: Socket) -> None:
    bbr.variant[BACKED_OFF_AT] = tp.delivered
    bbr.variant[HAS_BACKED_OFF] = 1
    bbr.variant[SRTT] = 0
    bbr.variant[BASE] = 0


@jit
def _leave_if_low(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Back as soon as inflight is below the BDP, or as low as the window can be."""
    inflight = tcp_packets_in_flight(tp)
    app_limited = u32(tp.delivered + inflight)
    tp.app_limited = app_limited if app_limited else 1  # ignore the low rate samples, as v1
    bdp = bbr_bdp(bbr, bbr_max_bw(bbr, p), BBR_UNIT, p)
    if inflight > max(bdp - 1, p.cwnd_min_target):
        note(log, codes.PRTT_WAIT_BELOW_BDP, inflight, bdp)
        return
    cwnd = tp.snd_cwnd
    new_cwnd = max(cwnd, bbr.prior_cwnd)
    tp.snd_cwnd = new_cwnd
    note(log, codes.PRTT_EXIT_BELOW_BDP, inflight, bdp, cwnd, new_cwnd)
    bbr_reset_mode(bbr, tp, log)


def delay_of(alpha: int, beta: int, dwells: bool) -> Piece:
    """v1's RTT filter and PROBE_RTT with Delay-BBR's; alpha and beta in tenths.

    `dwells`: PROBE_RTT ends as v1's does, after 200 ms and a round.
    """

    @jit
    def update_delay(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
        expiring_us = bbr.min_rtt_us
        _renew_if_similar(bbr, tp, rs)
        expired = filter_min_rtt_by_one_window(bbr, tp, rs, p, log)
        follow_delay(bbr, rs, alpha)
        if is_probe_rtt_due(bbr, expired, p, log):
            enter_probe_rtt(bbr, tp, expiring_us, p.min_rtt_win_sec * MSEC_PER_SEC, p, log)
            _forget_delay(bbr, tp)
        elif is_congested(bbr, beta):
            _back_off(bbr, tp, p, log)
            _forget_delay(bbr, tp)
        if bbr.mode == BBR_PROBE_RTT:
            if dwells:
                if is_low_round_over(bbr, tp, p, log):
                    bbr_check_probe_rtt_done(bbr, tp, log)
            else:
                _leave_if_low(bbr, tp, p, log)
        end_idle_restart(bbr, rs, log)

    return update_delay


@jit
def gains(bbr: Bbr, p: Params) -> None:
    """v1's, but for 0.75x in PROBE_RTT."""
    bbr_update_gains(bbr, p)
    if bbr.mode == BBR_PROBE_RTT:
        bbr.pacing_gain = _BACK_OFF_GAIN


VARIANT = Variant("v1", _PARAMS, bbr_init, v1_with(min_rtt=delay_of(9, 12, False), gains=gains))
LANIGAN_CODE = Variant("v1", _PARAMS, bbr_init, v1_with(min_rtt=delay_of(0, 10, True), gains=gains))
