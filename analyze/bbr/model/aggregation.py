"""ACK aggregation: how much more is acknowledged at once than the bandwidth explains."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import mul_shift, tcp_stamp_us_delta, u32
from ..kernel_units import BW_SCALE
from ..log import note
from ..params import Params
from ..records import Bbr, Log, RateSample, Socket
from .bandwidth import bbr_bw


# v1 bbr_extra_acked(); v2 bbr_extra_acked(); v3 bbr_extra_acked()
@jit
def bbr_extra_acked(bbr: Bbr) -> int:
    """Largest excess of ACKed data over the last one to two windows [packets]."""
    return max(bbr.extra_acked[0], bbr.extra_acked[1])


# v1 bbr_update_ack_aggregation(); v2 bbr_update_ack_aggregation(); v3 bbr_update_ack_aggregation()
@jit
def bbr_update_ack_aggregation(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    """Measure how far the ACKs of this epoch run ahead of the bandwidth."""
    if not p.extra_acked_gain or rs.acked_sacked == 0 or rs.delivered < 0 or rs.interval_us <= 0:
        return
    if bbr.round_start:
        _age_window(bbr, p, log)

    epoch_us = tcp_stamp_us_delta(tp.delivered_mstamp, bbr.ack_epoch_mstamp)
    expected = mul_shift(bbr_bw(bbr, p), epoch_us, BW_SCALE)
    # Start over when ACKs come no faster than expected, or after very many of them.
    if (
        bbr.ack_epoch_acked <= expected
        or u32(bbr.ack_epoch_acked + rs.acked_sacked) >= p.ack_epoch_acked_reset_thresh
    ):
        if bbr.ack_epoch_acked:
            note(log, codes.AGG_EPOCH_RESET, bbr.ack_epoch_acked, expected)
        bbr.ack_epoch_acked = 0
        bbr.ack_epoch_mstamp = tp.delivered_mstamp
        expected = 0

    bbr.ack_epoch_acked = min(0xFFFFF, u32(bbr.ack_epoch_acked + rs.acked_sacked))
    _enter_excess(bbr, min(u32(bbr.ack_epoch_acked - expected), tp.snd_cwnd), log)


@jit
def _enter_excess(bbr: Bbr, extra_acked: int, log: Log) -> None:
    """Enter an excess into the current window; u16, compared before it is cut."""
    idx = bbr.extra_acked_win_idx
    old, new = bbr.extra_acked[idx], extra_acked & 0xFFFF
    if extra_acked > old:
        note(log, codes.AGG_NEW_MAX, old, new)
        bbr.extra_acked[idx] = new


@jit
def _age_window(bbr: Bbr, p: Params, log: Log) -> None:
    """Rotate the two windows every extra_acked_win_rtts rounds (each round in STARTUP, v2, v3)."""
    bbr.extra_acked_win_rtts = min(0x1F, bbr.extra_acked_win_rtts + 1)
    limit = p.extra_acked_win_rtts
    if p.extra_acked_in_startup and not bbr.full_bw_reached:
        limit = 1
    if bbr.extra_acked_win_rtts >= limit:
        rounds = bbr.extra_acked_win_rtts
        bbr.extra_acked_win_rtts = 0
        bbr.extra_acked_win_idx = 0 if bbr.extra_acked_win_idx else 1
        old = bbr.extra_acked[bbr.extra_acked_win_idx]
        bbr.extra_acked[bbr.extra_acked_win_idx] = 0
        note(log, codes.AGG_WINDOW_FLIP, rounds, old)
