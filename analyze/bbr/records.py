"""What the estimator works on: struct bbr, the socket and rate sample of one event, parameters.

One superset record serves all three kernels, so that the code they share is compiled once and the
versions differ in which fields they use. Field names are the kernel's.
"""

from __future__ import annotations

import numpy as np

_I8, _U8 = "i8", "u8"


def _fields(names: str, kind: str = _I8) -> list[tuple[str, str]]:
    return [(name, kind) for name in names.split()]


# struct bbr of tcp_bbr.c (v1), tcp_bbr2.c (v2alpha) and tcp_bbr.c (v3).
STATE = np.dtype(
    [
        *_fields("min_rtt_us min_rtt_stamp probe_rtt_done_stamp"),
        *_fields("probe_rtt_min_us probe_rtt_min_stamp"),
        *_fields("rtt_cnt next_rtt_delivered prior_rcv_nxt cycle_mstamp"),
        *_fields("mode prev_ca_state packet_conservation round_start ce_state bw_probe_up_rounds"),
        *_fields("try_fast_path idle_restart probe_rtt_round_done init_cwnd"),
        *_fields("lt_is_sampling lt_rtt_cnt lt_use_bw lt_bw"),
        *_fields("lt_last_delivered lt_last_stamp lt_last_lost"),
        *_fields("pacing_gain cwnd_gain full_bw_reached full_bw_cnt cycle_idx has_seen_rtt"),
        *_fields("prior_cwnd full_bw ack_epoch_mstamp"),
        ("extra_acked", _I8, (2,)),
        *_fields("ack_epoch_acked extra_acked_win_rtts extra_acked_win_idx"),
        *_fields("full_bw_now startup_ecn_rounds loss_in_cycle ecn_in_cycle"),
        *_fields("loss_round_delivered undo_bw_lo undo_inflight_lo undo_inflight_hi"),
        *_fields("bw_latest bw_lo"),
        ("bw_hi", _I8, (2,)),
        *_fields("inflight_latest inflight_lo inflight_hi"),
        *_fields("bw_probe_up_cnt bw_probe_up_acks probe_wait_us ecn_eligible ecn_alpha"),
        *_fields("bw_probe_samples prev_probe_too_high stopped_risky_probe rounds_since_probe"),
        *_fields("loss_round_start loss_in_round ecn_in_round ack_phase loss_events_in_round"),
        *_fields("initialized alpha_last_delivered alpha_last_delivered_ce"),
        ("bw_t", _I8, (3,)),  # v1: bw.s[].t, round of each of the three best samples
        ("bw_v", _I8, (3,)),  # v1: bw.s[].v
        *_fields("debug_event debug_target_cwnd debug_rs_bw"),  # v2: debug.*
        *_fields("plb_consec_cong_rounds plb_pause_until"),  # v3: plb.*
    ]
)

# struct tcp_sock, sock and inet_connection_sock at entry, as far as BBR reads them.
SOCKET = np.dtype(
    [
        *_fields("delivered delivered_ce lost snd_cwnd snd_cwnd_clamp app_limited"),
        *_fields("packets_out sacked_out lost_out retrans_out srtt_us mss_cache snd_ssthresh"),
        *_fields("delivered_mstamp tcp_mstamp tcp_clock_cache tcp_wstamp_ns prior_cwnd"),
        *_fields("rcv_nxt is_cwnd_limited max_packets_out ecn_flags tlp_orig_data_app_limited"),
        *_fields("icsk_ca_state sk_pacing_shift"),
        *_fields("sk_pacing_rate sk_max_pacing_rate", _U8),
        # Hidden inputs: the clock tick, which may advance inside the call, and random draws.
        *_fields("jiffies32 jiffies32_late jiffies_reads jiffies_split"),
        *_fields("rand_rounds rand_wait_us rand_cycle rand_pause draws"),
    ]
)

# struct rate_sample, plus bbr_context.sample_bw.
RATE_SAMPLE = np.dtype(
    _fields(
        "prior_delivered delivered interval_us rtt_us losses acked_sacked prior_in_flight"
        " is_app_limited is_ack_delayed tx_in_flight lost delivered_ce is_ece"
        " is_acking_tlp_retrans_seq sample_bw"
    )
)

# struct tcp_skb_cb's tx fields of the skb handed to skb_marked_lost.
SKB = np.dtype(_fields("in_flight lost is_app_limited delivered_mstamp gso_segs"))

# How the replay treats one event; filled by analyze/prepare.py.
CONTROL = np.dtype(
    _fields(
        "kind arg resync has_next take_cwnd take_pacing check may_tick"
        " entry_snd_cwnd exit_snd_cwnd exit_snd_ssthresh exit_app_limited"
    )
    + _fields("entry_sk_pacing_rate exit_sk_pacing_rate", _U8)
)

EVENT = np.dtype([("ctl", CONTROL), ("tp", SOCKET), ("rs", RATE_SAMPLE), ("skb", SKB)])

KINDS = (
    "init",
    "main",
    "set_state",
    "cwnd_event",
    "ssthresh",
    "undo_cwnd",
    "skb_marked_lost",
)
INIT, MAIN, SET_STATE, CWND_EVENT, SSTHRESH, UNDO_CWND, SKB_MARKED_LOST = range(len(KINDS))

# Bits of ctl.check: which outputs of the event the recording lets us compare.
CHECK_CWND, CHECK_PACING, CHECK_SSTHRESH, CHECK_APP_LIMITED = 1, 2, 4, 8

# enum bbr_mode
BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BW, BBR_PROBE_RTT = range(4)
MODES = ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
# enum bbr_pacing_gain_phase (v2, v3)
BBR_BW_PROBE_UP, BBR_BW_PROBE_DOWN, BBR_BW_PROBE_CRUISE, BBR_BW_PROBE_REFILL = range(4)
PHASES = ("UP", "DOWN", "CRUISE", "REFILL")
# enum bbr_ack_phase (v2, v3)
(
    BBR_ACKS_INIT,
    BBR_ACKS_REFILLING,
    BBR_ACKS_PROBE_STARTING,
    BBR_ACKS_PROBE_FEEDBACK,
    BBR_ACKS_PROBE_STOPPING,
) = range(5)
# enum tcp_ca_state
TCP_CA_OPEN, TCP_CA_DISORDER, TCP_CA_CWR, TCP_CA_RECOVERY, TCP_CA_LOSS = range(5)
CA_STATES = ("Open", "Disorder", "CWR", "Recovery", "Loss")
# enum tcp_ca_event; TLP_RECOVERY exists with the v3 patch only
CA_EVENT_TX_START, CA_EVENT_CWND_RESTART, CA_EVENT_COMPLETE_CWR, CA_EVENT_LOSS = range(4)
CA_EVENT_ECN_NO_CE, CA_EVENT_ECN_IS_CE, CA_EVENT_TLP_RECOVERY = 4, 5, 6
# include/net/tcp.h (with the v3 patch for ECN_LOW)
TCP_ECN_OK, TCP_ECN_LOW = 1, 16
TCP_INIT_CWND = 10
