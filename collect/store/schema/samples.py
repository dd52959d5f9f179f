"""The table of what was seen of a flow from time to time, by ss or in the kernel's log."""

from __future__ import annotations

from .recorded_tables import FLOW, RUN_ID
from .table import Column, Table

SAMPLES = Table(
    "samples",
    "What ss or v2alpha's debug lines in the kernel's log showed of a flow, one row per flow and "
    "time. Far less than events: nothing can be replayed from it. NULL: not printed.",
    (
        RUN_ID,
        FLOW,
        Column(
            "poll",
            "INTEGER",
            "",
            "from 1: the call of ss, which shows all flows, or the line",
        ),
        Column("ns", "UBIGINT", "ns", "CLOCK_MONOTONIC, or CLOCK_REALTIME: see runs.decoded_as"),
        Column("source", "VARCHAR", "", "ss, kernel_log or tcp_info"),
        Column("bbr_version", "UTINYINT", "", "as printed; NULL: this form does not say"),
        Column("phase", "VARCHAR", "", "see phases; as printed, or by the gains (ss of v1)"),
        Column("bw", "BIGINT", "bit/s", "BBR's bandwidth; kernel_log: largest in the filter"),
        Column("bw_hi", "BIGINT", "bit/s", "v3: largest in the filter; NULL: not printed"),
        Column("bw_lo", "BIGINT", "bit/s", "v2, v3; NULL: unset"),
        Column("sample_bw", "BIGINT", "bit/s", "latest delivery rate sample (kernel_log)"),
        Column("inflight_hi", "BIGINT", "packets", "v2, v3; NULL: unset"),
        Column("inflight_lo", "BIGINT", "packets", "v2, v3; NULL: unset"),
        Column("extra_acked", "BIGINT", "packets", "largest excess in the filter"),
        Column("min_rtt_us", "BIGINT", "us", "BBR's min_rtt"),
        Column("pacing_gain", "DOUBLE", "", "BBR's gain"),
        Column("cwnd_gain", "DOUBLE", "", "BBR's gain"),
        Column("sk_pacing_rate", "BIGINT", "bit/s", "rate at which the socket paces"),
        Column("delivery_rate", "BIGINT", "bit/s", "TCP's last delivery rate (ss)"),
        Column("app_limited", "BOOLEAN", "", "the rate sample is limited by the application"),
        Column("snd_cwnd", "BIGINT", "packets", "congestion window"),
        Column("snd_ssthresh", "BIGINT", "packets", "slow start threshold; NULL: unset"),
        Column("mss", "BIGINT", "bytes", "segment size"),
        Column("srtt_us", "BIGINT", "us", "smoothed RTT (ss)"),
        Column("rttvar_us", "BIGINT", "us", "its mean deviation (ss)"),
        Column("rtt_us", "BIGINT", "us", "latest RTT sample (kernel_log)"),
        Column("tcp_min_rtt_us", "BIGINT", "us", "TCP's own windowed minimum (ss)"),
        Column("unacked", "BIGINT", "packets", "tp.packets_out"),
        Column("sacked", "BIGINT", "packets", "tp.sacked_out"),
        Column("lost_out", "BIGINT", "packets", "tp.lost_out"),
        Column("retrans_out", "BIGINT", "packets", "tp.retrans_out"),
        Column("in_flight", "BIGINT", "packets", "in flight"),
        Column("notsent_bytes", "BIGINT", "bytes", "in the send buffer, not sent yet"),
        Column("bytes_acked", "BIGINT", "bytes", "acknowledged since the connection began"),
        Column("bytes_sent", "BIGINT", "bytes", "payload sent, retransmissions included"),
        Column("bytes_retrans", "BIGINT", "bytes", "of these, retransmissions"),
        Column("data_segs_out", "BIGINT", "packets", "segments with payload sent"),
        Column("total_retrans", "BIGINT", "packets", "retransmissions since the beginning"),
        Column("delivered", "BIGINT", "packets", "tp.delivered"),
        Column("delivered_ce", "BIGINT", "packets", "tp.delivered_ce"),
        Column("lost", "BIGINT", "packets", "tp.lost (kernel_log)"),
        Column("busy_ms", "BIGINT", "ms", "time with data in flight or waiting"),
        Column("rwnd_limited_ms", "BIGINT", "ms", "of this, limited by the receive window"),
        Column("sndbuf_limited_ms", "BIGINT", "ms", "of this, limited by the send buffer"),
        Column("ca_state", "VARCHAR", "", "Open, Disorder, CWR, Recovery or Loss (kernel_log)"),
        Column("ack_phase", "VARCHAR", "", "bbr.ack_phase in words (kernel_log)"),
        Column("event", "VARCHAR", "", "letter of the debug event (kernel_log); NULL: none"),
        Column("loss_rate", "DOUBLE", "", "lost over lost and delivered, in thousandths kept"),
        Column("ce_rate", "DOUBLE", "", "marked over delivered, in thousandths kept"),
        Column("ecn_alpha", "DOUBLE", "", "bbr.ecn_alpha, in thousandths kept"),
        Column("round_start", "BOOLEAN", "", "the ACK began a round (kernel_log)"),
    ),
)

TABLES = (SAMPLES,)
