"""The columns of metrics, whatever a flow's time is sliced by."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..runs.sender_views import FLOW_OR_NONE, LOCAL, REMOTE, STREAM
from ..view_parts import RUN

# From the kernel's events, and the time that they cover.
_OF_EVENTS = (
    Column(
        "start_s",
        "DOUBLE",
        "s",
        "on the run's clock, see senders.zero_ns; may be negative",
    ),
    Column("duration_s", "DOUBLE", "s", "from its first packet or event to its last"),
    Column("acked_bytes", "BIGINT", "bytes", "growth of tp.snd_una: acknowledged in order"),
    Column("goodput_mbps", "DOUBLE", "Mbit/s", "acked_bytes over the time that events cover"),
    Column(
        "utilisation",
        "DOUBLE",
        "",
        "of the link, by what was delivered, in whole frames; NULL: no rate is known",
    ),
    Column("delivered_packets", "BIGINT", "packets", "growth of tp.delivered: ACKed or SACKed"),
    Column("delivery_rate_mbps", "DOUBLE", "Mbit/s", "median rate sample: rs.delivered x mss"),
    Column("delivery_rate_max_mbps", "DOUBLE", "Mbit/s", "largest rate sample"),
    Column("lost_packets", "BIGINT", "packets", "growth of tp.lost: marked lost"),
    Column("loss_rate", "DOUBLE", "", "lost over lost and delivered"),
    Column("ce_rate", "DOUBLE", "", "tp.delivered_ce over tp.delivered; NULL: not recorded"),
    Column("rtt_min_us", "BIGINT", "us", "smallest rs.rtt_us"),
    Column("rtt_mean_us", "DOUBLE", "us", "mean over ACKs"),
    Column("rtt_p50_us", "DOUBLE", "us", "median over ACKs"),
    Column("rtt_p95_us", "DOUBLE", "us", "95th percentile over ACKs"),
    Column("rtt_p99_us", "DOUBLE", "us", "99th percentile over ACKs"),
    Column("queue_delay_us", "DOUBLE", "us", "mean RTT above the path's own (base_rtts), or 0"),
    Column(
        "queue_sampled_us",
        "DOUBLE",
        "us",
        "mean of the bottleneck queue's sampled backlog at the link's rate; NULL: no samples",
    ),
    Column("inflight_packets", "DOUBLE", "packets", "in flight, mean over time"),
    Column(
        "inflight_minus_bdp_packets",
        "DOUBLE",
        "packets",
        "in flight above link rate x the path's own RTT, mean over time; NULL: no rate",
    ),
    Column("cwnd_packets", "DOUBLE", "packets", "snd_cwnd, mean over time"),
    Column("pacing_mbps", "DOUBLE", "Mbit/s", "sk_pacing_rate, mean over time"),
    Column("app_limited_share", "DOUBLE", "", "share of time limited so, see view binding"),
    Column(
        "rwnd_limited_share",
        "DOUBLE",
        "",
        "share of time limited so, see view binding; NULL: no ACK told of a window",
    ),
    Column(
        "sndbuf_limited_share", "DOUBLE", "", "the same for the send buffer, by samples; NULL: none"
    ),
)

# From captured packets on their own.
_OF_PACKETS = (
    Column("pkt_wire_bytes", "BIGINT", "bytes", "frames at the capture point"),
    Column("pkt_throughput_mbps", "DOUBLE", "Mbit/s", "the same over the captured time"),
    Column("pkt_utilisation", "DOUBLE", "", "of the link; NULL: no rate is known"),
    Column("pkt_acked_bytes", "BIGINT", "bytes", "growth of the acknowledgement number"),
    Column("pkt_goodput_mbps", "DOUBLE", "Mbit/s", "the same over the captured time"),
    Column("pkt_segments", "BIGINT", "packets", "with payload"),
    Column(
        "pkt_retransmissions",
        "BIGINT",
        "packets",
        "below the highest byte seen, with the newest timestamp: sent again",
    ),
    Column("pkt_retransmission_rate", "DOUBLE", "", "of pkt_segments"),
    Column("pkt_reordered", "BIGINT", "packets", "below it, with an older timestamp: overtaken"),
    Column("pkt_ce_rate", "DOUBLE", "", "segments with the CE codepoint"),
    Column(
        "pkt_inflight_bytes",
        "DOUBLE",
        "bytes",
        "past the capture point and not acknowledged there, by tshark, mean over segments",
    ),
    Column(
        "pkt_rtt_min_us",
        "DOUBLE",
        "us",
        "from timestamps, as fine as their tick; of the way between sender and capture point "
        "the least that it took (without a handshake: nothing)",
    ),
    Column("pkt_rtt_mean_us", "DOUBLE", "us", "mean over ACKs that advance"),
    Column("pkt_rtt_p50_us", "DOUBLE", "us", "median over ACKs that advance"),
    Column("pkt_rtt_p95_us", "DOUBLE", "us", "95th percentile"),
    Column("pkt_rtt_p99_us", "DOUBLE", "us", "99th percentile"),
)


def metric_columns(label: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns, with those that say which slice a row is about."""
    return (
        RUN_ID,
        RUN,
        FLOW_OR_NONE,
        STREAM,
        LOCAL,
        REMOTE,
        *label,
        *_OF_EVENTS,
        *_OF_PACKETS,
    )
