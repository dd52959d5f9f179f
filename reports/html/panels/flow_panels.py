"""The charts of a flow, as data: BBR's model and bounds, and what TCP saw at each event."""

from __future__ import annotations

from .path_panels import SEQUENCE, WIRE
from .signals import Panel, Signal

UNSET64 = 18446744073709551615


def _kbit(bw: str) -> str:
    """Payload in kbit/s of a bandwidth in the kernel's unit."""
    return f"bw_to_mbps({bw}, tp_mss_cache) * 1000"


def _bound(column: str) -> str:
    return f"{column} IS NOT NULL AND {column} <> unset()"


# What a row knows of its round trip: its own sample, else the smoothed one (of retransmitted data
# there is no sample). Between two rows further apart than that nothing was seen.
_ROUND_TRIP = "CASE WHEN rs_rtt_us > 0 THEN rs_rtt_us ELSE tp_srtt_us / 8 END"
_MAX_BW = "max_bw(bbr_bw_hi_0, bbr_bw_hi_1, bbr_bw_s_0_v)"

RATES = Panel(
    "rates",
    "Rates",
    "Mbit/s",
    (
        Signal(
            "sample",
            "rate sample",
            "delivery rate of each ACK's sample (rs.delivered / rs.interval_us)",
            "rs_delivered::DOUBLE * tp_mss_cache * 8000 / rs_interval_us",
            1e-3,
            "line",
            "rs_delivered > 0 AND rs_interval_us > 0",
            width=1.0,
            round_trip=_ROUND_TRIP,
        ),
        Signal(
            "pacing",
            "pacing rate",
            "sk_pacing_rate when the callback returned",
            "coalesce(exit_sk_pacing_rate, sk_pacing_rate)::DOUBLE * 8 / 1000",
            1e-3,
            where=f"coalesce(exit_sk_pacing_rate, sk_pacing_rate) <> {UNSET64}",
        ),
        Signal(
            "max_bw",
            "max_bw",
            "the windowed maximum of the delivery rate, BBR's estimate of the bottleneck",
            _kbit(_MAX_BW),
            1e-3,
            where=f"{_MAX_BW} > 0",
            state=True,
            keep=True,
            width=2.0,
        ),
        Signal(
            "bw_lo",
            "bw_lo",
            "short-term bound on the bandwidth after loss or ECN",
            _kbit("bbr_bw_lo"),
            1e-3,
            where=_bound("bbr_bw_lo"),
            state=True,
            keep=True,
            dash=(5, 3),
        ),
        Signal(
            "lt_bw",
            "lt_bw",
            "long-term bandwidth of a suspected policer, while in use",
            _kbit("bbr_lt_bw"),
            1e-3,
            where="bbr_lt_use_bw = 1",
            state=True,
            keep=True,
            dash=(5, 3),
        ),
        Signal(
            "link_rate",
            "link",
            "what the link's rate, by the set-up, leaves for payload",
            "bits_per_s / 1000 * mss / frame",
            1e-3,
            where="bits_per_s > 0 AND mss > 0",
            source="path",
            keep=True,
            dash=(2, 3),
        ),
        Signal(
            "pacing_cap",
            "SO_MAX_PACING_RATE",
            "sk_max_pacing_rate: the application's limit, above which BBR never paces",
            "sk_max_pacing_rate::DOUBLE * 8 / 1000",
            1e-3,
            where=f"sk_max_pacing_rate <> {UNSET64}",
            keep=True,
            dash=(5, 3),
        ),
    ),
    height=170,
)

VOLUMES = Panel(
    "volumes",
    "Data in flight and its bounds",
    "packets",
    (
        Signal(
            "inflight",
            "inflight",
            "packets in flight at each event (tcp_packets_in_flight)",
            "packets_in_flight(tp_packets_out, tp_sacked_out, tp_lost_out, tp_retrans_out)",
            1.0,
            "line",
            width=1.2,
            round_trip=_ROUND_TRIP,
        ),
        Signal(
            "cwnd",
            "cwnd",
            "snd_cwnd when the callback returned",
            "coalesce(exit_snd_cwnd, tp_snd_cwnd)",
        ),
        Signal(
            "bdp",
            "BDP",
            "max_bw x min_rtt, in packets; read out with what inflight is above or below it",
            f"bw_to_packets({_MAX_BW}, bbr_min_rtt_us) * 10",
            0.1,
            where=f"{_MAX_BW} > 0 AND {_bound('bbr_min_rtt_us')}",
            state=True,
            dash=(2, 3),
            width=2.0,
            against="inflight",
        ),
        Signal(
            "inflight_hi",
            "inflight_hi",
            "long-term bound on data in flight; not drawn while unset",
            "bbr_inflight_hi",
            where=_bound("bbr_inflight_hi"),
            state=True,
            keep=True,
            width=2.2,
        ),
        Signal(
            "inflight_lo",
            "inflight_lo",
            "short-term bound on data in flight; not drawn while unset",
            "bbr_inflight_lo",
            where=_bound("bbr_inflight_lo"),
            state=True,
            keep=True,
            dash=(5, 3),
            width=2.0,
        ),
        Signal(
            "extra_acked",
            "extra_acked",
            "what more than expected was acknowledged at once (ACK aggregation); added to the "
            "window",
            "greatest(bbr_extra_acked_0, bbr_extra_acked_1)",
            where="greatest(bbr_extra_acked_0, bbr_extra_acked_1) > 0",
            state=True,
            width=1.2,
        ),
    ),
    height=210,
)

RTT = Panel(
    "rtt",
    "Round-trip time",
    "ms",
    (
        Signal(
            "rtt",
            "RTT sample",
            "RTT of the newest packet that an ACK covers (rs.rtt_us)",
            "rs_rtt_us",
            1e-3,
            "line",
            "rs_rtt_us > 0",
            width=1.0,
            round_trip="rs_rtt_us",
        ),
        Signal(
            "srtt",
            "srtt",
            "smoothed RTT (tp.srtt_us / 8)",
            "tp_srtt_us::DOUBLE / 8",
            1e-3,
            where="tp_srtt_us > 0",
        ),
        Signal(
            "min_rtt",
            "min_rtt",
            "BBR's windowed minimum",
            "bbr_min_rtt_us",
            1e-3,
            where=_bound("bbr_min_rtt_us"),
            state=True,
            keep=True,
            width=2.0,
        ),
        Signal(
            "pkt_rtt",
            "RTT from the capture on",
            "from the capture point to the receiver and back, for packets sent once (tshark)",
            "rtt_us",
            1e-3,
            "line",
            "rtt_us IS NOT NULL",
            width=1.0,
            source="acks",
            round_trip="rtt_us",
        ),
        Signal(
            "base_rtt",
            "path",
            "what the path takes without a queue: by the set-up, else the least RTT of the flow",
            "base_us",
            1e-3,
            where="base_us > 0",
            source="path",
            keep=True,
            dash=(2, 3),
        ),
    ),
    zero=False,
)

# Drawn where it changes: else it is one number.
SEGMENT_SIZE = Panel(
    "mss",
    "Segment size",
    "bytes",
    (
        Signal(
            "mss",
            "mss_cache",
            "bytes of payload in a full segment (tp.mss_cache): BBR counts segments, so that its "
            "rates change with it",
            "CASE WHEN max(tp_mss_cache) OVER () > min(tp_mss_cache) OVER () THEN tp_mss_cache END",
            keep=True,
        ),
    ),
    height=80,
)

LOSS = Panel(
    "loss",
    "Loss and ECN",
    "packets",
    (
        Signal(
            "lost",
            "marked lost",
            "packets newly marked lost since the event before (tp.lost)",
            "tp_lost::BIGINT - lag(tp_lost) OVER (ORDER BY seq)",
            1.0,
            "stem",
            width=1.6,
        ),
        Signal(
            "ce",
            "CE marks",
            "packets newly acknowledged with CE marks (tp.delivered_ce)",
            "tp_delivered_ce::BIGINT - lag(tp_delivered_ce) OVER (ORDER BY seq)",
            1.0,
            "stem",
            width=1.2,
        ),
        Signal(
            "retrans_out",
            "retransmissions in flight",
            "retransmitted and not yet acknowledged (tp.retrans_out)",
            "tp_retrans_out",
        ),
    ),
    height=100,
)

ROUNDS = Panel(
    "rounds",
    "Loss and ECN per round",
    "%",
    (
        Signal(
            "loss_rate",
            "lost",
            "marked lost in a packet-timed round, of lost and delivered",
            "1e4 * lost / nullif(lost + delivered, 0)",
            1e-2,
            source="rounds",
        ),
        Signal(
            "ce_rate",
            "CE-marked",
            "delivered with CE marks in a packet-timed round, of delivered",
            "1e4 * ce / nullif(delivered, 0)",
            1e-2,
            source="rounds",
            where="marked",
        ),
        Signal(
            "ecn_alpha",
            "ecn_alpha",
            "BBR's average share of CE marks",
            "bbr_ecn_alpha::DOUBLE * 1e4 / 256",
            1e-2,
            where="bbr_ecn_eligible = 1",
            state=True,
            dash=(5, 3),
        ),
    ),
    height=100,
)

FLOW_PANELS = (RATES, VOLUMES, RTT, LOSS, ROUNDS, SEGMENT_SIZE, SEQUENCE, WIRE)
