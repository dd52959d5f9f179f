"""BBRPlus (Lanigan20): a cycle of a random length of two to eight min_rtts, begun at 1.25x.

1.25x until inflight has followed it or a packet is lost, at least a min_rtt; 0.75x until inflight
is down to the BDP; 1.0x for the rest of the cycle. Its listing lacks the brackets that say whether
a loss counts before the min_rtt is over: here it does not, as in v1.

v1's cycle_idx serves as the phase: 0 is 1.25x, 1 is 0.75x, 2 is 1.0x.
"""

from __future__ import annotations

import numpy as np

from ....probes.base.jit import jit
from .. import codes
from ..ints import tcp_stamp_us_delta
from ..kernel_units import BBR_UNIT
from ..log import note
from ..model.bandwidth import bbr_max_bw
from ..model.inflight import bbr_inflight
from ..params import Params
from ..records import BBR_PROBE_BW, MAIN, STATE_COLUMNS, Array, Bbr, Log, RateSample, Socket
from ..versions.v1 import bbr_init, bbr_update_min_rtt
from .v1_with import Piece, v1_with
from .variant import Variant

# Indices of the variant's state: the cycle's length [min_rtts], and cycle_mstamp as it set it.
CYCLE_LEN, BEGUN = 0, 1
UP, DOWN, CRUISE = range(3)
_SHORTEST, _LONGEST = 2, 8


@jit
def begin_cycle(bbr: Bbr, tp: Socket, log: Log) -> None:
    """Begin a cycle, at 1.25x; its length is drawn: 2 to 8 min_rtts."""
    elapsed_us = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.cycle_mstamp)
    tp.draws += 1
    cycle_len = _LONGEST - tp.rand_cycle
    bbr.variant[CYCLE_LEN] = cycle_len
    bbr.cycle_idx = UP
    bbr.cycle_mstamp = tp.delivered_mstamp
    bbr.variant[BEGUN] = bbr.cycle_mstamp
    note(log, codes.CYC_BEGIN_RANDOM_LENGTH, elapsed_us, cycle_len, bbr.min_rtt_us)


@jit
def begin_if_entered(bbr: Bbr, tp: Socket, log: Log) -> None:
    """v1 has entered PROBE_BW, in a phase of its own drawing: begin at 1.25x instead."""
    if bbr.mode == BBR_PROBE_BW and bbr.cycle_mstamp != bbr.variant[BEGUN]:
        begin_cycle(bbr, tp, log)


@jit
def _leave_up(bbr: Bbr, rs: RateSample, elapsed_us: int, target: int, log: Log) -> None:
    bbr.cycle_idx = DOWN
    in_net = rs.prior_in_flight
    if rs.losses:
        note(log, codes.CYC_NEXT_UP_LOSS, rs.losses, elapsed_us)
    else:
        note(log, codes.CYC_NEXT_UP_INFLIGHT, elapsed_us, in_net, target)


@jit
def _leave_down_if_drained(
    bbr: Bbr, tp: Socket, rs: RateSample, elapsed_us: int, p: Params, log: Log
) -> None:
    in_net = rs.prior_in_flight
    target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    if in_net > target:
        note(log, codes.CYC_STAY_DOWN_UNTIL_DRAINED, target, in_net)
        return
    note(log, codes.CYC_NEXT_DOWN_DRAINED, elapsed_us, in_net, target)
    bbr.cycle_idx = CRUISE


def cycle_of(inverted: bool) -> Piece:
    """BBRPlus's cycle; `inverted`: 1.25x ends when inflight is low, as in the study's code."""

    @jit
    def is_pushed_up(rs: RateSample, target: int) -> bool:
        if inverted:
            low = rs.prior_in_flight <= target
            return low or rs.losses > 0 or rs.is_app_limited != 0
        return rs.prior_in_flight > target or rs.losses > 0

    @jit
    def update_cycle(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
        if bbr.mode != BBR_PROBE_BW:
            return
        begin_if_entered(bbr, tp, log)
        elapsed_us = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.cycle_mstamp)
        if elapsed_us > bbr.variant[CYCLE_LEN] * bbr.min_rtt_us:
            begin_cycle(bbr, tp, log)
        elif bbr.cycle_idx == DOWN:
            _leave_down_if_drained(bbr, tp, rs, elapsed_us, p, log)
        elif bbr.cycle_idx == UP and elapsed_us > bbr.min_rtt_us:
            target = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), p.pacing_gain[UP], p)
            if is_pushed_up(rs, target):
                _leave_up(bbr, rs, elapsed_us, target, log)

    return update_cycle


@jit
def min_rtt_then_cycle(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """v1's RTT filter; DRAIN or PROBE_RTT may have ended on this ACK."""
    bbr_update_min_rtt(bbr, tp, rs, p, log)
    begin_if_entered(bbr, tp, log)


def fill_draws(events: Array, states: Array) -> None:
    """Take for each cycle the shortest length with which it ends at the ACK where it ended.

    The length is only compared with the time since the cycle began, at each ACK, so that a longer
    one which ends at the same ACK could not be told from it.
    """
    begun, mode, min_rtt = (
        states[:-1, STATE_COLUMNS.index(f"bbr_{name}")]
        for name in ("cycle_mstamp", "mode", "min_rtt_us")
    )
    begins = np.flatnonzero(np.diff(begun)) + 1  # the first event that finds a new cycle
    if not len(begins):
        return
    goes_on = np.append(begun[1:] == begun[:-1], False)
    counts = goes_on & (events["ctl"]["kind"] == MAIN) & (mode == BBR_PROBE_BW)
    elapsed_us = np.maximum(events["tp"]["delivered_mstamp"] - begun, 0)
    lengths = np.where(counts, -(-elapsed_us // np.maximum(min_rtt, 1)), 0)
    least = np.maximum.reduceat(lengths, begins)
    events["tp"]["rand_cycle"][begins - 1] = _LONGEST - np.clip(least, _SHORTEST, _LONGEST)


VARIANT = Variant(
    "v1",
    {},
    bbr_init,
    v1_with(cycle=cycle_of(False), min_rtt=min_rtt_then_cycle),
    fill_draws,
)
# "prior_inflight <= 1.25 BDP", where "above" is meant, or loss, or application-limited
LANIGAN_CODE = Variant(
    "v1", {}, bbr_init, v1_with(cycle=cycle_of(True), min_rtt=min_rtt_then_cycle), fill_draws
)
