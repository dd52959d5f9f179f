"""Short-term bounds bw_lo and inflight_lo, and the per-round congestion signals behind them."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .ints import BBR_SCALE, BBR_UNIT, U32_MAX, mul_shift
from .log import note
from .model import bbr_max_bw
from .params import Params
from .records import (
    BBR_BW_PROBE_REFILL,
    BBR_BW_PROBE_UP,
    BBR_PROBE_BW,
    BBR_STARTUP,
    Bbr,
    Log,
    Socket,
)


# tcp_bbr2.c bbr2_is_probing_bandwidth()
@jit
def bbr_is_probing_bandwidth(bbr: Bbr) -> bool:
    return bbr.mode == BBR_STARTUP or (
        bbr.mode == BBR_PROBE_BW
        and (bbr.cycle_idx == BBR_BW_PROBE_REFILL or bbr.cycle_idx == BBR_BW_PROBE_UP)
    )


# tcp_bbr2.c bbr2_reset_lower_bounds()
@jit
def bbr_reset_lower_bounds(bbr: Bbr, bwlo_code: int, code: int, log: Log) -> None:
    if bbr.bw_lo != U32_MAX:
        note(log, bwlo_code, bbr.bw_lo)
    if bbr.inflight_lo != U32_MAX or bbr.bw_lo != U32_MAX:
        note(log, code, bbr.bw_lo, bbr.inflight_lo)
    bbr.bw_lo = U32_MAX
    bbr.inflight_lo = U32_MAX


# tcp_bbr2.c bbr2_reset_congestion_signals()
@jit
def bbr_reset_congestion_signals(bbr: Bbr, log: Log) -> None:
    note(log, codes.SIGNALS_RESET, bbr.bw_latest, bbr.inflight_latest)
    bbr.loss_in_round = 0
    bbr.ecn_in_round = 0
    bbr.loss_in_cycle = 0
    bbr.ecn_in_cycle = 0
    bbr.bw_latest = 0
    bbr.inflight_latest = 0


@jit
def _init_inflight_lo(bbr: Bbr, tp: Socket, log: Log) -> None:
    if bbr.inflight_lo == U32_MAX:
        bbr.inflight_lo = tp.snd_cwnd
        note(log, codes.INFLO_INIT, bbr.inflight_lo)


# tcp_bbr.c (v3) bbr_ecn_lower_bounds(), bbr_ecn_cut()
@jit
def _ecn_inflight_lo(bbr: Bbr, p: Params) -> int:
    ecn_cut = BBR_UNIT - (bbr.ecn_alpha * p.ecn_factor >> BBR_SCALE)
    return mul_shift(bbr.inflight_lo, ecn_cut, BBR_SCALE)


# tcp_bbr.c (v3) bbr_loss_lower_bounds()
@jit
def _loss_lower_bounds(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if bbr.bw_lo == U32_MAX:
        bbr.bw_lo = bbr_max_bw(bbr, p)
        note(log, codes.BWLO_INIT, bbr.bw_lo)
    _init_inflight_lo(bbr, tp, log)
    keep = BBR_UNIT - p.beta

    old = bbr.bw_lo
    bbr.bw_lo = max(bbr.bw_latest, mul_shift(old, keep, BBR_SCALE))
    if bbr.bw_lo == bbr.bw_latest:
        note(log, codes.BWLO_HELD_LATEST, old, bbr.bw_lo)
    else:
        note(log, codes.BWLO_CUT, old, bbr.bw_lo, bbr.bw_latest)

    old = bbr.inflight_lo
    bbr.inflight_lo = max(bbr.inflight_latest, mul_shift(old, keep, BBR_SCALE))
    if bbr.inflight_lo == bbr.inflight_latest:
        note(log, codes.INFLO_HELD_LATEST, old, bbr.inflight_lo)
    else:
        note(log, codes.INFLO_CUT_LOSS, old, bbr.inflight_lo, bbr.inflight_latest)


# tcp_bbr2.c bbr2_adapt_lower_bounds(); tcp_bbr.c (v3) bbr_adapt_lower_bounds()
@jit
def bbr_adapt_lower_bounds(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    """Once per round with loss or CE marks, and only while not probing for bandwidth."""
    if bbr_is_probing_bandwidth(bbr):
        if bbr.loss_in_round or bbr.ecn_in_round:
            note(log, codes.LO_SKIP_PROBING, bbr.loss_in_round, bbr.ecn_in_round)
        return
    if not bbr.loss_in_round and not bbr.ecn_in_round:
        note(log, codes.LO_NO_CONGESTION, bbr.bw_lo, bbr.inflight_lo)

    ecn_inflight_lo = U32_MAX
    # v3 does not ask for ecn_eligible here: it gates ecn_in_round itself.
    if bbr.ecn_in_round and p.ecn_factor and (bbr.ecn_eligible or p.version == 3):
        _init_inflight_lo(bbr, tp, log)
        ecn_inflight_lo = _ecn_inflight_lo(bbr, p)
    if bbr.loss_in_round:
        _loss_lower_bounds(bbr, tp, p, log)
    if ecn_inflight_lo < bbr.inflight_lo:
        note(log, codes.INFLO_CUT_ECN, bbr.inflight_lo, ecn_inflight_lo, bbr.ecn_alpha)
        bbr.inflight_lo = ecn_inflight_lo
    if bbr.bw_lo < p.bw_lo_floor:  # v3
        note(log, codes.BWLO_FLOOR, bbr.bw_lo, p.bw_lo_floor)
        bbr.bw_lo = p.bw_lo_floor


# tcp_bbr2.c bbr2_set_state(): a timeout outside a probe starts inflight_lo
@jit
def start_inflight_lo_upon_rto(bbr: Bbr, tp: Socket, log: Log) -> None:
    if not bbr_is_probing_bandwidth(bbr) and bbr.inflight_lo == U32_MAX:
        # cwnd is already packets in flight + 1: TCP collapsed it before calling set_state
        bbr.inflight_lo = max(tp.snd_cwnd, bbr.prior_cwnd)
        note(log, codes.INFLO_SET_RTO, bbr.inflight_lo, tp.snd_cwnd)
