"""BBRv1, net/ipv4/tcp_bbr.c of mainline Linux: its callbacks in the order the kernel runs them."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .aggregation import bbr_update_ack_aggregation
from .common import bbr_check_drain, bbr_restart_from_idle, bbr_update_gains
from .cwnd import bbr1_set_cwnd
from .full_pipe import bbr_check_full_bw_reached
from .ints import BW_UNIT, U32_MAX, before, i64, u32, u64
from .log import note
from .minmax import minmax_running_max
from .model import bbr_bw, bbr_max_bw
from .pacing import bbr_set_pacing_rate
from .params import Params
from .probe_rtt import bbr1_update_min_rtt
from .records import (
    CA_EVENT_TX_START,
    CWND_EVENT,
    MAIN,
    SET_STATE,
    SSTHRESH,
    TCP_CA_LOSS,
    UNDO_CWND,
    Bbr,
    Event,
    Log,
    RateSample,
    Socket,
)
from .recovery import bbr_ssthresh, tcp_undo_cwnd_reduction
from .v1_cycle import bbr1_update_cycle_phase
from .v1_policer import bbr_lt_bw_sampling, bbr_reset_lt_bw_sampling


# tcp_bbr.c bbr_update_bw()
@jit
def bbr_update_bw(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    bbr.round_start = 0
    if rs.delivered < 0 or rs.interval_us <= 0:
        return
    if not before(rs.prior_delivered, bbr.next_rtt_delivered):
        bbr.next_rtt_delivered = tp.delivered
        bbr.rtt_cnt = u32(bbr.rtt_cnt + 1)
        bbr.round_start = 1
        if bbr.packet_conservation:
            note(log, codes.CONSERVE_END_ROUND, tp.delivered)
        bbr.packet_conservation = 0

    bbr_lt_bw_sampling(bbr, tp, rs, p, log)

    # Truncated here, and cut to u32 only when stored: the comparison sees all 64 bits.
    bw = u64(u64(rs.delivered) * u64(BW_UNIT)) // u64(rs.interval_us)
    stored = u32(i64(bw & u64(U32_MAX)))
    max_bw = bbr_max_bw(bbr, p)
    if rs.is_app_limited and bw < u64(max_bw):
        note(log, codes.BWHI_SKIP_APPLIMITED, stored, max_bw)
        return
    minmax_running_max(bbr, p.bw_rtts, bbr.rtt_cnt, stored)
    if bbr_max_bw(bbr, p) != max_bw:
        note(log, codes.BWHI_SAMPLE, stored, max_bw)


# tcp_bbr.c bbr_main(), bbr_update_model()
@jit
def bbr_main(bbr: Bbr, tp: Socket, rs: RateSample, p: Params, log: Log) -> None:
    bbr_update_bw(bbr, tp, rs, p, log)
    bbr_update_ack_aggregation(bbr, tp, rs, p, log)
    bbr1_update_cycle_phase(bbr, tp, rs, p, log)
    bbr_check_full_bw_reached(bbr, rs, p, log)
    bbr_check_drain(bbr, tp, p, log)
    bbr1_update_min_rtt(bbr, tp, rs, p, log)
    bbr_update_gains(bbr, p)

    bw = bbr_bw(bbr, p)
    bbr_set_pacing_rate(bbr, tp, bw, bbr.pacing_gain, p, log)
    bbr1_set_cwnd(bbr, tp, rs, bw, bbr.cwnd_gain, p, log)


# tcp_bbr.c bbr_undo_cwnd(): returns cwnd as it is
@jit
def bbr_undo_cwnd(bbr: Bbr, tp: Socket, log: Log) -> None:
    note(log, codes.FULLBW_RESET_UNDO, bbr.full_bw)
    bbr.full_bw = 0  # the spurious slow-down may have hidden growth
    bbr.full_bw_cnt = 0
    note(log, codes.LT_RESET_UNDO, bbr.lt_bw)
    bbr_reset_lt_bw_sampling(bbr, tp)
    tcp_undo_cwnd_reduction(tp, tp.snd_cwnd, log)


# tcp_bbr.c bbr_set_state()
@jit
def bbr_set_state(
    bbr: Bbr, tp: Socket, rs: RateSample, new_state: int, p: Params, log: Log
) -> None:
    if new_state != TCP_CA_LOSS:
        note(log, codes.CWND_KEEP_RECOVERY, tp.icsk_ca_state, new_state, tp.snd_cwnd)
        return
    bbr.prev_ca_state = TCP_CA_LOSS
    note(log, codes.FULLBW_RESET_RTO, bbr.full_bw)
    bbr.full_bw = 0
    bbr.round_start = 1  # treat the timeout like the end of a round
    rs.losses = 1  # the kernel builds this rate sample on its stack
    bbr_lt_bw_sampling(bbr, tp, rs, p, log)


@jit
def dispatch(bbr: Bbr, ev: Event, p: Params, log: Log) -> None:
    """Run the callback that the event records."""
    kind, tp, rs = ev.ctl.kind, ev.tp, ev.rs
    if kind == MAIN:
        bbr_main(bbr, tp, rs, p, log)
    elif kind == SET_STATE:
        bbr_set_state(bbr, tp, rs, ev.ctl.arg, p, log)
    elif kind == CWND_EVENT:
        if ev.ctl.arg == CA_EVENT_TX_START:
            bbr_restart_from_idle(bbr, tp, p, log)
    elif kind == SSTHRESH:
        bbr_ssthresh(bbr, tp, p, log)
    elif kind == UNDO_CWND:
        bbr_undo_cwnd(bbr, tp, log)
