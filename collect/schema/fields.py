"""Every kernel field that an event row can carry, by the name it has in ``events.csv``.

Widths are those of the C types; a bitfield has the widest declaration among BBR v1, v2 and v3.
Sources: ``struct rate_sample`` (include/net/tcp.h), ``struct tcp_sock`` (include/linux/tcp.h),
``struct sock`` (include/net/sock.h), ``struct tcp_skb_cb`` (include/net/tcp.h) and ``struct bbr``
(net/ipv4/tcp_bbr.c, tcp_bbr2.c).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Field:
    """One recorded kernel field.

    `name` is the name in the recording, `bits` its width (negative: signed), `unit` and `meaning`
    are what `bbrscope schema` prints.
    """

    name: str
    bits: int
    unit: str
    meaning: str

    @property
    def column(self) -> str:
        """The column's name in the store."""
        return column_name(self.name)

    @property
    def signed(self) -> bool:
        return self.bits < 0

    @property
    def storage_bytes(self) -> int:
        """Bytes of the smallest integer type that holds the field."""
        width = abs(self.bits)
        return next(size for size in (1, 2, 4, 8) if width <= 8 * size)

    @property
    def sql_type(self) -> str:
        """The DuckDB type."""
        name = {1: "TINYINT", 2: "SMALLINT", 4: "INTEGER", 8: "BIGINT"}[self.storage_bytes]
        return name if self.signed else "U" + name

    @property
    def maximum(self) -> int:
        """The largest value the kernel's own declaration can hold."""
        return (1 << (-self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1

    @property
    def minimum(self) -> int:
        """The smallest value the kernel's own declaration can hold."""
        return -(1 << (-self.bits - 1)) if self.signed else 0


def column_name(recorded: str) -> str:
    """Return the store's name of a recorded field.

    >>> column_name("bbr.bw.s[0].t"), column_name("sk.sk_pacing_rate")
    ('bbr_bw_s_0_t', 'sk_pacing_rate')
    """
    bare = recorded.removeprefix("sk.") if recorded.startswith("sk.sk_") else recorded
    return re.sub(r"[.\[]", "_", bare).replace("]", "")


BW = "packets/us << 24"
GAIN = "1/256"

ARGUMENTS = (
    Field("new_state", 8, "enum tcp_ca_state", "set_state's argument; icsk_ca_state is the old"),
    Field("event", 8, "enum tcp_ca_event", "cwnd_event's argument"),
)

RATE_SAMPLE = (
    Field("rs.prior_mstamp", 64, "us", "when the interval's first packet was delivered"),
    Field("rs.prior_delivered", 32, "packets", "tp.delivered when the acked packet was sent"),
    Field("rs.delivered", -32, "packets", "delivered over the interval; negative: no sample"),
    Field("rs.interval_us", -64, "us", "length of the interval; not positive: no sample"),
    Field("rs.snd_interval_us", 32, "us", "send side of the interval"),
    Field("rs.rcv_interval_us", 32, "us", "receive side of the interval"),
    Field("rs.rtt_us", -64, "us", "RTT of the last (S)ACKed packet; -1: none"),
    Field("rs.losses", -32, "packets", "packets marked lost on this ACK"),
    Field("rs.acked_sacked", 32, "packets", "packets newly (S)ACKed on this ACK"),
    Field("rs.prior_in_flight", 32, "packets", "in flight before this ACK"),
    Field("rs.is_app_limited", 1, "flag", "the sample began while the application limited it"),
    Field("rs.is_retrans", 1, "flag", "the sample comes from a retransmission"),
    Field("rs.is_ack_delayed", 1, "flag", "the ACK was probably delayed by the receiver"),
    Field("rs.prior_lost", 32, "packets", "tp.lost when the acked packet was sent"),
    Field("rs.prior_delivered_ce", 32, "packets", "tp.delivered_ce when that packet was sent"),
    Field("rs.tx_in_flight", 32, "packets", "in flight when the acked packet was sent"),
    Field("rs.lost", -32, "packets", "lost over the interval"),
    Field("rs.delivered_ce", -32, "packets", "delivered with CE marks over the interval"),
    Field("rs.is_ece", 1, "flag", "the ACK carried ECE"),
    Field("rs.is_acking_tlp_retrans_seq", 1, "flag", "acks a tail loss probe's retransmission"),
)

TCP_SOCK = (
    Field("tp.delivered", 32, "packets", "delivered since the connection began"),
    Field("tp.lost", 32, "packets", "marked lost since the connection began"),
    Field("tp.snd_cwnd", 32, "packets", "congestion window at entry"),
    Field("tp.snd_cwnd_clamp", 32, "packets", "upper bound of snd_cwnd"),
    Field("tp.app_limited", 32, "packets", "limited until delivered passes this; 0: not limited"),
    Field("tp.packets_out", 32, "packets", "sent and not cumulatively acked"),
    Field("tp.sacked_out", 32, "packets", "SACKed"),
    Field("tp.lost_out", 32, "packets", "marked lost"),
    Field("tp.retrans_out", 32, "packets", "retransmitted and outstanding"),
    Field("tp.srtt_us", 32, "us << 3", "smoothed RTT times 8"),
    Field("tp.rtt_min", 32, "us", "tcp_min_rtt() when init took it over; all ones: no sample yet"),
    Field("tp.mss_cache", 32, "bytes", "current segment size"),
    Field("tp.snd_ssthresh", 32, "packets", "slow start threshold"),
    Field("tp.delivered_mstamp", 64, "us", "when tp.delivered last grew"),
    Field("tp.tcp_mstamp", 64, "us", "the stack's clock at its last refresh"),
    Field("tp.tcp_clock_cache", 64, "ns", "the same clock in nanoseconds"),
    Field("tp.tcp_wstamp_ns", 64, "ns", "departure time of the next packet"),
    Field("tp.prior_cwnd", 32, "packets", "snd_cwnd before the recovery began"),
    Field("tp.snd_una", 32, "sequence", "first byte not acked"),
    Field("tp.snd_nxt", 32, "sequence", "next byte to send"),
    Field("tp.high_seq", 32, "sequence", "snd_nxt when the recovery began"),
    Field("tp.rcv_nxt", 32, "sequence", "next byte expected from the peer"),
    Field("tp.snd_wnd", 32, "bytes", "the peer's receive window"),
    Field("tp.tlp_orig_data_app_limited", 1, "flag", "application limited before the loss probe"),
    Field("tp.delivered_ce", 32, "packets", "delivered with CE marks"),
    Field("tp.is_cwnd_limited", 1, "flag", "snd_cwnd held sending back"),
    Field("tp.max_packets_out", 32, "packets", "largest packets_out of the last window"),
    Field("tp.ecn_flags", 8, "bits", "TCP_ECN_* flags"),
    Field("tp.fast_ack_mode", 2, "enum", "v2, v3: how eagerly the receiver acks"),
)

SOCK = (
    Field("sk.sk_pacing_rate", 64, "bytes/s", "pacing rate at entry; all ones: none"),
    Field("sk.sk_max_pacing_rate", 64, "bytes/s", "SO_MAX_PACING_RATE; all ones: none"),
    Field("sk.sk_pacing_shift", 8, "log2", "1 s >> shift is the TSO burst in time"),
    Field("sk.sk_gso_max_size", 32, "bytes", "largest GSO packet of the route"),
    Field("icsk_ca_state", 5, "enum tcp_ca_state", "Open 0 Disorder 1 CWR 2 Recovery 3 Loss 4"),
    Field("jiffies32", 32, "jiffies", "low 32 bits of jiffies"),
)

SKB = (
    Field("skb.in_flight", 20, "packets", "tx.in_flight: in flight when the skb was sent"),
    Field("skb.lost", 32, "packets", "tx.lost: tp.lost when the skb was sent"),
    Field("skb.is_app_limited", 1, "flag", "tx.is_app_limited: sent while application limited"),
    Field("skb.delivered_mstamp", 32, "us", "tx.delivered_mstamp, low 32 bits; 0: was SACKed"),
    Field("skb.gso_segs", 16, "packets", "tcp_gso_segs of the skb"),
    Field("skb.seq", 32, "sequence", "first byte of the skb"),
    Field("skb.end_seq", 32, "sequence", "byte after the skb"),
)

BBR = (
    Field("bbr.min_rtt_us", 32, "us", "windowed minimum RTT; all ones: none yet"),
    Field("bbr.min_rtt_stamp", 32, "jiffies", "when min_rtt_us was set"),
    Field("bbr.probe_rtt_done_stamp", 32, "jiffies", "end of PROBE_RTT's dwell; 0: not begun"),
    Field("bbr.probe_rtt_min_us", 32, "us", "v2, v3: minimum RTT of the PROBE_RTT window"),
    Field("bbr.probe_rtt_min_stamp", 32, "jiffies", "v2, v3: when probe_rtt_min_us was set"),
    Field("bbr.bw.s[0].t", 32, "rounds", "v1: round of the best bandwidth sample"),
    Field("bbr.bw.s[0].v", 32, BW, "v1: best bandwidth sample, max_bw"),
    Field("bbr.bw.s[1].t", 32, "rounds", "v1: round of the second best sample"),
    Field("bbr.bw.s[1].v", 32, BW, "v1: second best sample"),
    Field("bbr.bw.s[2].t", 32, "rounds", "v1: round of the third best sample"),
    Field("bbr.bw.s[2].v", 32, BW, "v1: third best sample"),
    Field("bbr.rtt_cnt", 32, "rounds", "v1: packet-timed rounds so far"),
    Field("bbr.next_rtt_delivered", 32, "packets", "tp.delivered that ends this round"),
    Field("bbr.prior_rcv_nxt", 32, "sequence", "v2, v3: rcv_nxt at the last ECN state change"),
    Field("bbr.cycle_mstamp", 64, "us", "when the PROBE_BW phase began"),
    Field("bbr.mode", 3, "enum", "STARTUP 0 DRAIN 1 PROBE_BW 2 PROBE_RTT 3"),
    Field("bbr.prev_ca_state", 3, "enum tcp_ca_state", "CA state at the last ACK"),
    Field("bbr.packet_conservation", 1, "flag", "v1, v2: packet conservation in recovery"),
    Field("bbr.round_start", 1, "flag", "this ACK began a round"),
    Field("bbr.ce_state", 1, "flag", "v2, v3: the last packet received carried CE"),
    Field("bbr.bw_probe_up_rounds", 5, "rounds", "v2, v3: rounds in PROBE_UP"),
    Field("bbr.try_fast_path", 1, "flag", "v2, v3: the model may be skipped on this ACK"),
    Field("bbr.idle_restart", 1, "flag", "restarting after idle"),
    Field("bbr.probe_rtt_round_done", 1, "flag", "a round passed at PROBE_RTT's window"),
    Field("bbr.lt_is_sampling", 1, "flag", "v1: sampling the long-term rate"),
    Field("bbr.lt_rtt_cnt", 7, "rounds", "v1: rounds in the long-term interval"),
    Field("bbr.lt_use_bw", 1, "flag", "v1: lt_bw is the bandwidth in use"),
    Field("bbr.lt_bw", 32, BW, "v1: long-term bandwidth (policer)"),
    Field("bbr.lt_last_delivered", 32, "packets", "v1: tp.delivered when the interval began"),
    Field("bbr.lt_last_stamp", 32, "ms", "v1: delivered_mstamp / 1000 when the interval began"),
    Field("bbr.lt_last_lost", 32, "packets", "v1: tp.lost when the interval began"),
    Field("bbr.cycle_idx", 3, "index", "phase of PROBE_BW"),
    Field("bbr.has_seen_rtt", 1, "flag", "an RTT sample has set the pacing rate"),
    Field("bbr.pacing_gain", 11, GAIN, "pacing gain"),
    Field("bbr.cwnd_gain", 11, GAIN, "window gain"),
    Field("bbr.full_bw_reached", 1, "flag", "the pipe was found full"),
    Field("bbr.full_bw_cnt", 2, "rounds", "rounds without much more bandwidth"),
    Field("bbr.init_cwnd", 7, "packets", "v2, v3: snd_cwnd at init"),
    Field("bbr.prior_cwnd", 32, "packets", "snd_cwnd saved before recovery or PROBE_RTT"),
    Field("bbr.full_bw", 32, BW, "bandwidth that the full-pipe estimate compares with"),
    Field("bbr.ack_epoch_mstamp", 64, "us", "when the ACK aggregation epoch began"),
    Field("bbr.extra_acked[0]", 16, "packets", "excess data acked, older window"),
    Field("bbr.extra_acked[1]", 16, "packets", "excess data acked, newer window"),
    Field("bbr.ack_epoch_acked", 20, "packets", "acked in the aggregation epoch"),
    Field("bbr.extra_acked_win_rtts", 5, "rounds", "age of the extra_acked window"),
    Field("bbr.extra_acked_win_idx", 1, "index", "which extra_acked window is current"),
    Field("bbr.full_bw_now", 1, "flag", "v3: the pipe looks full in this probe"),
    Field("bbr.startup_ecn_rounds", 2, "rounds", "v2, v3: STARTUP rounds with high ECN"),
    Field("bbr.loss_in_cycle", 1, "flag", "v2, v3: loss in this probing cycle"),
    Field("bbr.ecn_in_cycle", 1, "flag", "v2, v3: ECN in this probing cycle"),
    Field("bbr.loss_round_delivered", 32, "packets", "v2, v3: tp.delivered ending the loss round"),
    Field("bbr.undo_bw_lo", 32, BW, "v2, v3: bw_lo before the recovery"),
    Field("bbr.undo_inflight_lo", 32, "packets", "v2, v3: inflight_lo before the recovery"),
    Field("bbr.undo_inflight_hi", 32, "packets", "v2, v3: inflight_hi before the recovery"),
    Field("bbr.bw_latest", 32, BW, "v2, v3: best bandwidth of this loss round"),
    Field("bbr.bw_lo", 32, BW, "v2, v3: short-term lower bound; all ones: none"),
    Field("bbr.bw_hi[0]", 32, BW, "v2, v3: best bandwidth of the previous cycle"),
    Field("bbr.bw_hi[1]", 32, BW, "v2, v3: best bandwidth of this cycle"),
    Field("bbr.inflight_latest", 32, "packets", "v2, v3: most delivered in this loss round"),
    Field("bbr.inflight_lo", 32, "packets", "v2, v3: short-term bound; all ones: none"),
    Field("bbr.inflight_hi", 32, "packets", "v2, v3: long-term bound; all ones: none"),
    Field("bbr.bw_probe_up_cnt", 32, "packets", "v2, v3: acked packets per inflight_hi step"),
    Field("bbr.bw_probe_up_acks", 32, "packets", "v2, v3: acked since the last step"),
    Field("bbr.probe_wait_us", 32, "us", "v2, v3: wall time until the next probe"),
    Field("bbr.ecn_eligible", 1, "flag", "v2, v3: ECN response is in use"),
    Field("bbr.ecn_alpha", 9, GAIN, "v2, v3: average share of CE marks"),
    Field("bbr.bw_probe_samples", 1, "flag", "v2, v3: samples reflect the bandwidth probe"),
    Field("bbr.prev_probe_too_high", 1, "flag", "v2, v3: the last probe went too high"),
    Field("bbr.stopped_risky_probe", 1, "flag", "v2, v3: the last probe stopped for safety"),
    Field("bbr.rounds_since_probe", 8, "rounds", "v2, v3: rounds since the last probe"),
    Field("bbr.loss_round_start", 1, "flag", "v2, v3: this ACK began a loss round"),
    Field("bbr.loss_in_round", 1, "flag", "v2, v3: loss in this round"),
    Field("bbr.ecn_in_round", 1, "flag", "v2, v3: ECN in this round"),
    Field("bbr.ack_phase", 3, "enum", "v2, v3: what the ACKs arriving now measure"),
    Field("bbr.loss_events_in_round", 4, "events", "v2, v3: loss events in this round"),
    Field("bbr.initialized", 1, "flag", "v2, v3: init has run"),
    Field("bbr.alpha_last_delivered", 32, "packets", "v2, v3: tp.delivered at the alpha update"),
    Field("bbr.alpha_last_delivered_ce", 32, "packets", "v2, v3: tp.delivered_ce at that update"),
    Field("bbr.debug.event", 8, "character", "v2: debug.event, the letter of the last decision"),
    Field("bbr.debug.target_cwnd", 32, "packets", "v2: target window of the last ACK"),
    Field("bbr.debug.rs_bw", 32, BW, "v2: bandwidth of the last rate sample"),
    Field("bbr.plb.consec_cong_rounds", 5, "rounds", "v3: congested rounds in a row (PLB)"),
    Field("bbr.plb.pause_until", 32, "jiffies", "v3: no PLB rehash before this"),
)

EVENT_FIELDS = ARGUMENTS + RATE_SAMPLE + TCP_SOCK + SOCK + SKB + BBR

# What main and init leave behind outside struct bbr, read at the callback's exit.
EXIT_FIELDS = tuple(
    Field(name, bits, unit, meaning)
    for name, bits, unit, meaning in (
        ("tp.snd_cwnd", 32, "packets", "congestion window at exit"),
        ("sk.sk_pacing_rate", 64, "bytes/s", "pacing rate at exit"),
        ("tp.snd_ssthresh", 32, "packets", "slow start threshold at exit"),
        ("tp.app_limited", 32, "packets", "tp.app_limited at exit"),
        ("jiffies32", 32, "jiffies", "jiffies at exit; differs from entry if a tick fell between"),
    )
)


def exit_column_name(recorded: str) -> str:
    """Return the store's name of a field recorded at exit.

    >>> exit_column_name("tp.snd_cwnd"), exit_column_name("sk.sk_pacing_rate")
    ('exit_snd_cwnd', 'exit_sk_pacing_rate')
    """
    return "exit_" + column_name(recorded).removeprefix("tp_")


# struct bbr_params of v2, copied into each socket at init (tcp_bbr2.c bbr2_init()).
PARAMS = (
    Field("params.high_gain", 11, GAIN, "STARTUP's pacing gain"),
    Field("params.drain_gain", 10, GAIN, "DRAIN's pacing gain"),
    Field("params.cwnd_gain", 11, GAIN, "window gain outside STARTUP"),
    Field("params.cwnd_min_target", 4, "packets", "smallest window"),
    Field("params.min_rtt_win_sec", 5, "s", "window of min_rtt_us"),
    Field("params.probe_rtt_mode_ms", 9, "ms", "dwell in PROBE_RTT"),
    Field("params.full_bw_cnt", 3, "rounds", "rounds without growth that mean a full pipe"),
    Field("params.cwnd_tso_budget", 1, "flag", "add room for TSO bursts to the window"),
    Field("params.drain_to_target", 1, "flag", "drain to the target when leaving a probe"),
    Field("params.precise_ece_ack", 1, "flag", "ack every change of the CE state at once"),
    Field("params.extra_acked_in_startup", 1, "flag", "use extra_acked in STARTUP, too"),
    Field("params.fast_path", 1, "flag", "allow the fast path"),
    Field("params.full_bw_thresh", 10, GAIN, "growth that keeps STARTUP going"),
    Field("params.startup_cwnd_gain", 11, GAIN, "STARTUP's window gain"),
    Field("params.bw_probe_pif_gain", 9, GAIN, "in flight over BDP that ends PROBE_UP"),
    Field("params.usage_based_cwnd", 1, "flag", "judge the window's use by max_packets_out"),
    Field("params.probe_rtt_win_ms", 14, "ms", "interval between PROBE_RTTs"),
    Field("params.refill_add_inc", 2, "packets", "additive step while refilling"),
    Field("params.extra_acked_gain", 11, GAIN, "gain on extra_acked"),
    Field("params.extra_acked_win_rtts", 5, "rounds", "window of extra_acked"),
    Field("params.ecn_alpha_gain", 8, GAIN, "gain of ecn_alpha's average"),
    Field("params.ecn_factor", 8, GAIN, "cut of inflight_lo per ecn_alpha"),
    Field("params.ecn_thresh", 8, GAIN, "share of CE marks that counts as too high"),
    Field("params.beta", 8, GAIN, "cut on loss: keeps 1 - beta"),
    Field("params.ecn_max_rtt_us", 19, "us", "largest min_rtt with an ECN response; 0: any"),
    Field("params.bw_probe_reno_gain", 9, GAIN, "Reno coexistence: share of the BDP in rounds"),
    Field("params.full_loss_cnt", 4, "events", "loss events per round that end STARTUP"),
    Field("params.probe_rtt_cwnd_gain", 8, GAIN, "PROBE_RTT's window over the BDP"),
    Field("params.inflight_headroom", 8, GAIN, "share of inflight_hi left free in CRUISE"),
    Field("params.loss_thresh", 8, GAIN, "loss rate that counts as too high"),
    Field("params.bw_probe_max_rounds", 8, "rounds", "most rounds between probes"),
    Field("params.bw_probe_rand_rounds", 4, "rounds", "randomised rounds between probes"),
    Field("params.bw_probe_base_us", 26, "us", "least time between probes"),
    Field("params.full_ecn_cnt", 2, "rounds", "rounds of high ECN that end STARTUP"),
    Field("params.bw_probe_rand_us", 26, "us", "randomised time between probes"),
    Field("params.undo", 1, "flag", "undo the cuts of a spurious recovery"),
    Field("params.tso_rtt_shift", 4, "log2", "TSO burst grows with min_rtt >> shift"),
    Field("params.ecn_reprobe_gain", 9, GAIN, "share of inflight_hi that reprobing starts from"),
    Field("params.ecn_alpha_init", 9, GAIN, "ecn_alpha at init"),
    *(
        Field(f"params.pacing_gain[{i}]", 16, GAIN, f"pacing gain of PROBE_BW's phase {i}")
        for i in range(8)
    ),
)
