"""What bbr_init() sets when a connection comes under BBR's control."""

from __future__ import annotations

from ...collect.jit import jit
from . import codes
from .ints import U32_MAX, i64, u32
from .log import note
from .lower_bounds import bbr_reset_congestion_signals
from .minmax import minmax_reset
from .pacing import bbr_init_pacing_rate_from_rtt
from .params import Params
from .records import BBR_ACKS_INIT, BBR_STARTUP, TCP_CA_OPEN, Bbr, Log, Socket
from .v1_policer import bbr_reset_lt_bw_sampling

TCP_INFINITE_SSTHRESH = 0x7FFFFFFF


# tcp_bbr.c bbr_init(); tcp_bbr2.c bbr_init() and bbr2_init()
@jit
def bbr_init(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    """`min_rtt_us` is tcp_min_rtt(), which recordings do not carry.

    pacing_gain and cwnd_gain (v2: debug.event, v3: plb.consec_cong_rounds) survive from before.
    """
    bbr.mode = BBR_STARTUP
    bbr.prev_ca_state = TCP_CA_OPEN
    tp.snd_ssthresh = TCP_INFINITE_SSTHRESH
    bbr.next_rtt_delivered = 0 if p.version == 2 else tp.delivered
    bbr.min_rtt_us = min_rtt_us
    bbr.min_rtt_stamp = tp.jiffies32
    bbr.probe_rtt_done_stamp = 0
    bbr.probe_rtt_round_done = 0
    bbr.packet_conservation = 0
    bbr.round_start = 0
    bbr.idle_restart = 0
    bbr.full_bw_reached = 0
    bbr.full_bw = 0
    bbr.full_bw_cnt = 0
    bbr.cycle_mstamp = 0
    bbr.cycle_idx = 0
    bbr.ack_epoch_mstamp = tp.tcp_mstamp
    bbr.ack_epoch_acked = 0
    bbr.extra_acked_win_rtts = 0
    bbr.extra_acked_win_idx = 0
    bbr.extra_acked[0] = 0
    bbr.extra_acked[1] = 0
    bbr.has_seen_rtt = 0
    if p.version == 1:
        _init_v1(bbr, tp)
    else:
        _init_v2_v3(bbr, tp, min_rtt_us, p, log)
    bbr_init_pacing_rate_from_rtt(bbr, tp, p, log)
    note(log, codes.INIT, tp.snd_cwnd, min_rtt_us, i64(tp.sk_pacing_rate))


@jit
def _init_v1(bbr: Bbr, tp: Socket) -> None:
    bbr.prior_cwnd = 0
    bbr.rtt_cnt = 0
    minmax_reset(bbr, bbr.rtt_cnt, 0)
    bbr_reset_lt_bw_sampling(bbr, tp)


@jit
def _init_v2_v3(bbr: Bbr, tp: Socket, min_rtt_us: int, p: Params, log: Log) -> None:
    bbr.initialized = 1
    bbr.init_cwnd = min(0x7F, tp.snd_cwnd)
    bbr.prior_cwnd = tp.prior_cwnd
    bbr.probe_rtt_min_us = min_rtt_us
    bbr.probe_rtt_min_stamp = tp.jiffies32
    bbr.ce_state = 0
    bbr.prior_rcv_nxt = tp.rcv_nxt
    bbr.try_fast_path = 0
    bbr.full_bw_now = 0
    bbr.loss_round_delivered = u32(tp.delivered + 1)
    bbr.loss_round_start = 0
    bbr.undo_bw_lo = 0
    bbr.undo_inflight_lo = 0
    bbr.undo_inflight_hi = 0
    bbr.loss_events_in_round = 0
    bbr.startup_ecn_rounds = 0
    bbr_reset_congestion_signals(bbr, log)
    bbr.bw_lo = U32_MAX
    bbr.bw_hi[0] = 0
    bbr.bw_hi[1] = 0
    bbr.inflight_lo = U32_MAX
    bbr.inflight_hi = U32_MAX
    bbr.bw_probe_up_cnt = U32_MAX
    bbr.bw_probe_up_acks = 0
    bbr.bw_probe_up_rounds = 0
    bbr.probe_wait_us = 0
    bbr.stopped_risky_probe = 0
    bbr.ack_phase = BBR_ACKS_INIT
    bbr.rounds_since_probe = 0
    bbr.bw_probe_samples = 0
    bbr.prev_probe_too_high = 0
    bbr.ecn_eligible = 0
    bbr.ecn_alpha = p.ecn_alpha_init
    bbr.alpha_last_delivered = 0
    bbr.alpha_last_delivered_ce = 0
    bbr.debug_target_cwnd = 0
    bbr.debug_rs_bw = 0
    bbr.plb_pause_until = 0
