"""Is the pipe full? The detector of a plateau in bandwidth."""

from __future__ import annotations

from ....probes.base.jit import jit
from .. import codes
from ..ints import mul_shift
from ..kernel_units import BBR_SCALE
from ..log import note
from ..params import Params
from ..records import Bbr, Log, RateSample
from .bandwidth import bbr_max_bw


# v2 not, see probe_up_to_plateau; v3 bbr_reset_full_bw()
@jit
def bbr_reset_full_bw(bbr: Bbr) -> None:
    """Start a new search for a plateau."""
    bbr.full_bw = 0
    bbr.full_bw_cnt = 0
    bbr.full_bw_now = 0


# v2 not, see probe_up_to_plateau; v3 bbr_start_bw_probe_up(), bbr_update_cycle_phase()
@jit
def restart_plateau_search(bbr: Bbr, rs: RateSample) -> None:
    """Start a new search for a plateau from this sample on."""
    bbr_reset_full_bw(bbr)
    bbr.full_bw = rs.sample_bw


# v1 bbr_check_full_bw_reached(); v2 bbr_check_full_bw_reached()
@jit
def plateau_of_max_bw(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    """v1, v2: watch max_bw at the ends of rounds, in STARTUP only."""
    if bbr.full_bw_reached or not bbr.round_start:
        return
    bw = bbr_max_bw(bbr, p)
    if rs.is_app_limited:
        note(log, codes.FULLBW_SKIP_APPLIMITED, bw)
        return
    bw_thresh = mul_shift(bbr.full_bw, p.full_bw_thresh, BBR_SCALE)
    if bw >= bw_thresh:
        note(log, codes.FULLBW_GREW, bw, bbr.full_bw)
        bbr.full_bw = bw
        bbr.full_bw_cnt = 0
        return
    bbr.full_bw_cnt = (bbr.full_bw_cnt + 1) & 3
    bbr.full_bw_reached = 1 if bbr.full_bw_cnt >= p.full_bw_cnt else 0
    _note_stall(bbr, bbr.full_bw_reached, bw, bw_thresh, p, log)


# v3 bbr_check_full_bw_reached()
@jit
def plateau_of_samples(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    """v3: watch the samples on every ACK, in every phase."""
    if bbr.full_bw_now:
        return
    if rs.is_app_limited:
        note(log, codes.FULLBW_SKIP_APPLIMITED, rs.sample_bw)
        return
    bw_thresh = mul_shift(bbr.full_bw, p.full_bw_thresh, BBR_SCALE)
    if rs.sample_bw >= bw_thresh:
        note(log, codes.FULLBW_GREW, rs.sample_bw, bbr.full_bw)
        restart_plateau_search(bbr, rs)
        return
    if not bbr.round_start:
        return
    bbr.full_bw_cnt = (bbr.full_bw_cnt + 1) & 3
    bbr.full_bw_now = 1 if bbr.full_bw_cnt >= p.full_bw_cnt else 0
    bbr.full_bw_reached |= bbr.full_bw_now
    _note_stall(bbr, bbr.full_bw_now, rs.sample_bw, bw_thresh, p, log)


@jit
def _note_stall(bbr: Bbr, full: int, bw: int, bw_thresh: int, p: Params, log: Log) -> None:
    if full:
        note(log, codes.FULLBW_REACHED_PLATEAU, bbr.full_bw_cnt, bbr.full_bw, bw)
    else:
        full_bw_cnt_limit = p.full_bw_cnt
        note(log, codes.FULLBW_STALL_ROUND, bbr.full_bw_cnt, full_bw_cnt_limit, bw_thresh, bw)
