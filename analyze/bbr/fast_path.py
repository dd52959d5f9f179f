"""The application-limited fast path (v2, v3): skip the model when a sample says nothing new."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .common import bbr_check_drain
from .log import note
from .model import bbr_max_bw
from .params import Params
from .probe_bw import bbr_update_cycle_phase
from .probe_rtt import bbr_update_min_rtt
from .records import Bbr, Log, RateSample, Socket

# Its outcomes: run everything, control only, nothing left to do.
FULL_MODEL, CONTROL_ONLY, DONE = range(3)


# tcp_bbr2.c bbr2_fast_path(); tcp_bbr.c (v3) bbr_run_fast_path()
@jit
def bbr_run_fast_path(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> int:
    max_bw = bbr_max_bw(bbr, p)
    if not (
        p.fast_path
        and bbr.try_fast_path
        and rs.is_app_limited
        and rs.sample_bw < max_bw
        and not bbr.loss_in_round
        and not bbr.ecn_in_round
    ):
        return FULL_MODEL
    prev_mode, prev_min_rtt_us = bbr.mode, bbr.min_rtt_us
    bbr_check_drain(bbr, tp, p, log)
    bbr_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_update_min_rtt(bbr, tp, rs, p, log)
    if bbr.mode == prev_mode and bbr.min_rtt_us == prev_min_rtt_us and bbr.try_fast_path:
        note(log, codes.FASTPATH_SKIP, rs.sample_bw, max_bw)
        return DONE
    note(log, codes.FASTPATH_CONTROL_ONLY)
    return CONTROL_ONLY
