"""ACK aggregation: how much more is acknowledged at once than the bandwidth explains."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .ints import BW_SCALE, mul_shift, tcp_stamp_us_delta, u32
from .log import note
from .model import bbr_bw
from .params import Params
from .records import Bbr, Log, RateSample, Socket


# tcp_bbr.c bbr_update_ack_aggregation()
@jit
def bbr_update_ack_aggregation(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
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
    extra_acked = min(u32(bbr.ack_epoch_acked - expected), tp.snd_cwnd)
    idx = bbr.extra_acked_win_idx
    if extra_acked > bbr.extra_acked[idx]:
        note(log, codes.AGG_NEW_MAX, bbr.extra_acked[idx], extra_acked & 0xFFFF)
        bbr.extra_acked[idx] = extra_acked & 0xFFFF  # u16, compared before it is cut


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
        dropped = bbr.extra_acked[bbr.extra_acked_win_idx]
        bbr.extra_acked[bbr.extra_acked_win_idx] = 0
        note(log, codes.AGG_WINDOW_FLIP, rounds, dropped)
