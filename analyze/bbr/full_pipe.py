"""Is the pipe full? The plateau detector, and STARTUP's exits by loss and by ECN."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .inflight import bbr_inflight
from .ints import BBR_SCALE, BBR_UNIT, mul_shift
from .log import note
from .model import bbr_max_bw
from .params import Params
from .phases import EVENT_STARTUP_ECN, EVENT_STARTUP_LOSS, bbr_reset_full_bw
from .records import TCP_CA_RECOVERY, Bbr, Log, RateSample, Socket
from .upper_bounds import bbr_is_inflight_too_high, loss_limit


# tcp_bbr.c, tcp_bbr2.c bbr_check_full_bw_reached(): max_bw, at round ends, in STARTUP only
@jit
def bbr_check_full_bw_reached(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
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


# tcp_bbr.c (v3) bbr_check_full_bw_reached(): samples, on every ACK, in every phase
@jit
def bbr3_check_full_bw_reached(bbr: Bbr, rs: RateSample, p: Params, log: Log) -> None:
    if bbr.full_bw_now:
        return
    if rs.is_app_limited:
        note(log, codes.FULLBW_SKIP_APPLIMITED, rs.sample_bw)
        return
    bw_thresh = mul_shift(bbr.full_bw, p.full_bw_thresh, BBR_SCALE)
    if rs.sample_bw >= bw_thresh:
        note(log, codes.FULLBW_GREW, rs.sample_bw, bbr.full_bw)
        bbr_reset_full_bw(bbr)
        bbr.full_bw = rs.sample_bw
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
        note(log, codes.FULLBW_STALL_ROUND, bbr.full_bw_cnt, p.full_bw_cnt, bw_thresh, bw)


# tcp_bbr2.c bbr2_handle_queue_too_high_in_startup()
@jit
def bbr_handle_queue_too_high_in_startup(bbr: Bbr, tp: Socket, p: Params, log: Log) -> None:
    old = bbr.inflight_hi
    bbr.full_bw_reached = 1
    bdp = bbr_inflight(bbr, tp, bbr_max_bw(bbr, p), BBR_UNIT, p)
    bbr.inflight_hi = max(bdp, bbr.inflight_latest) if p.version == 3 else bdp
    note(log, codes.HI_SET_STARTUP_EXIT, old, bbr.inflight_hi, bdp, bbr.inflight_latest)


# tcp_bbr2.c bbr2_check_loss_too_high_in_startup()
@jit
def bbr_check_loss_too_high_in_startup(
    bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log
) -> None:
    if bbr.full_bw_reached:
        return
    # Loss events: ACKs that report loss, a stand-in for ranges of lost sequence numbers.
    if rs.losses and bbr.loss_events_in_round < 0xF:
        bbr.loss_events_in_round += 1
        note(log, codes.STARTUP_LOSS_EVENT, bbr.loss_events_in_round, p.full_loss_cnt)
    if (
        p.full_loss_cnt
        and bbr.loss_round_start
        and tp.icsk_ca_state == TCP_CA_RECOVERY
        and bbr.loss_events_in_round >= p.full_loss_cnt
        and bbr_is_inflight_too_high(bbr, rs, p)
    ):
        bbr.debug_event = EVENT_STARTUP_LOSS
        note(
            log,
            codes.FULLBW_REACHED_LOSS,
            bbr.loss_events_in_round,
            rs.lost,
            rs.tx_in_flight,
            loss_limit(rs.tx_in_flight, p),
        )
        bbr_handle_queue_too_high_in_startup(bbr, tp, p, log)
        return
    if bbr.loss_round_start:
        bbr.loss_events_in_round = 0


# tcp_bbr2.c bbr2_check_ecn_too_high_in_startup()
@jit
def bbr_check_ecn_too_high_in_startup(
    bbr: Bbr, tp: Socket, ce_ratio: int, p: Params, log: Log
) -> None:
    if bbr.full_bw_reached or not bbr.ecn_eligible or not p.full_ecn_cnt or not p.ecn_thresh:
        return
    if ce_ratio >= p.ecn_thresh:
        bbr.startup_ecn_rounds = (bbr.startup_ecn_rounds + 1) & 3
        note(log, codes.STARTUP_ECN_ROUND, ce_ratio, bbr.startup_ecn_rounds)
    else:
        bbr.startup_ecn_rounds = 0
    if bbr.startup_ecn_rounds >= p.full_ecn_cnt:
        bbr.debug_event = EVENT_STARTUP_ECN
        note(log, codes.FULLBW_REACHED_ECN, ce_ratio, bbr.startup_ecn_rounds)
        bbr_handle_queue_too_high_in_startup(bbr, tp, p, log)
