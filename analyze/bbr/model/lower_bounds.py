"""Short-term bounds bw_lo and inflight_lo, and the per-round congestion signals behind them."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import mul_shift
from ..kernel_units import BBR_SCALE, BBR_UNIT, U32_MAX
from ..log import note
from ..params import Params
from ..records import (
    BBR_BW_PROBE_REFILL,
    BBR_BW_PROBE_UP,
    BBR_PROBE_BW,
    BBR_STARTUP,
    Bbr,
    Log,
    Socket,
)
from .bandwidth import bbr_max_bw


# v2 bbr2_is_probing_bandwidth(); v3 bbr_is_probing_bandwidth()
@jit
def bbr_is_probing_bandwidth(bbr: Bbr) -> bool:
    """In STARTUP, REFILL and UP the flow pushes up, whatever congestion says."""
    return bbr.mode == BBR_STARTUP or (
        bbr.mode == BBR_PROBE_BW
        and (bbr.cycle_idx == BBR_BW_PROBE_REFILL or bbr.cycle_idx == BBR_BW_PROBE_UP)
    )


# v2 bbr2_reset_lower_bounds(); v3 bbr_reset_lower_bounds()
@jit
def bbr_reset_lower_bounds(bbr: Bbr, upon_refill: bool, log: Log) -> None:
    """Take both bounds away, upon entering REFILL or upon leaving PROBE_RTT."""
    if bbr.bw_lo != U32_MAX:
        bw_code = codes.BWLO_RESET_REFILL if upon_refill else codes.BWLO_RESET_PRTT_EXIT
        note(log, bw_code, bbr.bw_lo)
    if bbr.inflight_lo != U32_MAX or bbr.bw_lo != U32_MAX:
        code = codes.LO_RESET_REFILL if upon_refill else codes.LO_RESET_PRTT_EXIT
        note(log, code, bbr.bw_lo, bbr.inflight_lo)
    bbr.bw_lo = U32_MAX
    bbr.inflight_lo = U32_MAX


# v2 bbr2_reset_congestion_signals(); v3 bbr_reset_congestion_signals()
@jit
def bbr_reset_congestion_signals(bbr: Bbr, log: Log) -> None:
    """Forget the losses, marks and deliveries of this round and this cycle."""
    note(log, codes.SIGNALS_RESET, bbr.bw_latest, bbr.inflight_latest)
    bbr.loss_in_round = 0
    bbr.ecn_in_round = 0
    bbr.loss_in_cycle = 0
    bbr.ecn_in_cycle = 0
    bbr.bw_latest = 0
    bbr.inflight_latest = 0


# v2 bbr2_adapt_lower_bounds(); v3 bbr_init_lower_bounds()
@jit
def _init_inflight_lo(bbr: Bbr, tp: Socket, log: Log) -> None:
    if bbr.inflight_lo == U32_MAX:
        bbr.inflight_lo = tp.snd_cwnd
        note(log, codes.INFLO_INIT, tp.snd_cwnd)


# v2 bbr2_adapt_lower_bounds(); v3 bbr_ecn_lower_bounds(), bbr_ecn_cut()
@jit
def _ecn_inflight_lo(bbr: Bbr, p: Params) -> int:
    ecn_cut = BBR_UNIT - (bbr.ecn_alpha * p.ecn_factor >> BBR_SCALE)
    return mul_shift(bbr.inflight_lo, ecn_cut, BBR_SCALE)


# v2 bbr2_adapt_lower_bounds(); v3 bbr_init_lower_bounds(), bbr_loss_lower_bounds()
@jit
def _loss_lower_bounds(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    if bbr.bw_lo == U32_MAX:
        bbr.bw_lo = bbr_max_bw(bbr, p)
        max_bw = bbr.bw_lo
        note(log, codes.BWLO_INIT, max_bw)
    _init_inflight_lo(bbr, tp, log)
    share_left = BBR_UNIT - p.beta

    old_bw = bbr.bw_lo
    new_bw = max(bbr.bw_latest, mul_shift(old_bw, share_left, BBR_SCALE))
    bbr.bw_lo = new_bw
    if new_bw == bbr.bw_latest:
        note(log, codes.BWLO_HELD_LATEST, old_bw, new_bw)
    else:
        note(log, codes.BWLO_CUT, old_bw, new_bw, bbr.bw_latest)

    old = bbr.inflight_lo
    new = max(bbr.inflight_latest, mul_shift(old, share_left, BBR_SCALE))
    bbr.inflight_lo = new
    if new == bbr.inflight_latest:
        note(log, codes.INFLO_HELD_LATEST, old, new)
    else:
        note(log, codes.INFLO_CUT_LOSS, old, new, bbr.inflight_latest)


# v2 bbr2_adapt_lower_bounds(); v3 bbr_adapt_lower_bounds()
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
    if (
        bbr.ecn_in_round
        and p.ecn_factor
        and (bbr.ecn_eligible or not p.inflight_lo_asks_ecn_eligible)
    ):
        _init_inflight_lo(bbr, tp, log)
        ecn_inflight_lo = _ecn_inflight_lo(bbr, p)
    if bbr.loss_in_round:
        _loss_lower_bounds(bbr, tp, p, log)
    if ecn_inflight_lo < bbr.inflight_lo:
        old, new = bbr.inflight_lo, ecn_inflight_lo
        note(log, codes.INFLO_CUT_ECN, old, new, bbr.ecn_alpha)
        bbr.inflight_lo = new
    if bbr.bw_lo < p.bw_lo_floor:
        old_bw, new_bw = bbr.bw_lo, p.bw_lo_floor
        note(log, codes.BWLO_FLOOR, old_bw, new_bw)
        bbr.bw_lo = new_bw


# v2 bbr2_set_state(); v3 bbr_set_state()
@jit
def start_inflight_lo_upon_rto(bbr: Bbr, tp: Socket, log: Log) -> None:
    """A timeout outside a probe starts inflight_lo from the window before it."""
    if not bbr_is_probing_bandwidth(bbr) and bbr.inflight_lo == U32_MAX:
        # cwnd is already packets in flight + 1: TCP collapsed it before calling set_state
        new = max(tp.snd_cwnd, bbr.prior_cwnd)
        bbr.inflight_lo = new
        note(log, codes.INFLO_SET_RTO, new, tp.snd_cwnd)


# v2 bbr2_start_bw_probe_cruise(); v3 bbr_start_bw_probe_cruise()
@jit
def cap_inflight_lo(bbr: Bbr, log: Log) -> None:
    """The short-term bound does not lie above the long-term one."""
    if bbr.inflight_lo != U32_MAX and bbr.inflight_hi < bbr.inflight_lo:
        old, new = bbr.inflight_lo, bbr.inflight_hi
        note(log, codes.INFLO_CAP_HI, old, new)
        bbr.inflight_lo = new
