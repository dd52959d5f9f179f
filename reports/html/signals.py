"""Which signals the charts show: kernel fields, units, shapes and colours, as data.

Expressions are SQL over one row of `events`, or of another source (see sources.py). Those of struct
bbr are the state before the event, in force since the event before; `state` marks them, and they
are drawn from there on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UNSET32 = 4294967295
UNSET64 = 18446744073709551615
# pkts/us << 24 times bytes times 8 is Mbit/s << 24; kept in kbit/s.
_KBIT = "* tp_mss_cache::DOUBLE * 8000 / 16777216"


@dataclass(frozen=True)
class Signal:
    """One line of a chart.

    Attributes:
        key: name in the page and of the colour.
        label: what the legend says.
        about: what it is, for the tooltip.
        sql: value in whole steps of `scale`.
        scale: what a step is worth in the panel's unit.
        shape: step (holds until the next), line, stem (happens at an instant), or range (from
            `base` below the value up to it, at an instant).
        where: SQL condition under which the row has a value.
        source: name of the rows it is read from, see sources.py.
        base: SQL, how far down a range reaches.
        wraps: a sequence number of 32 bits; drawn from the flow's first one on, without wrapping.
        state: the value holds since the event before.
        keep: every change is kept, whatever the size.
        dash: lengths of dash and space; none: solid.
        width: of the line, in pixels.
        colour: its name in palette.py, if it is not the key.
        against: key of the signal that the read-out tells beside it, as its difference from this.
    """

    key: str
    label: str
    about: str
    sql: str
    scale: float = 1.0
    shape: str = "step"
    where: str = "true"
    state: bool = False
    keep: bool = False
    dash: tuple[int, ...] = ()
    width: float = 1.6
    source: str = "events"
    base: str = ""
    wraps: bool = False
    colour: str = ""
    against: str = ""

    @property
    def paint(self) -> str:
        """Name of the colour, see palette.py."""
        return self.colour or self.key


@dataclass(frozen=True)
class Panel:
    """One chart: signals of the same unit; `domain` fixes the axis, which else fits the window."""

    key: str
    title: str
    unit: str
    signals: tuple[Signal, ...]
    zero: bool = True
    height: int = 150
    domain: tuple[float, float] | None = None

    def of(self, signals: tuple[Signal, ...]) -> Panel:
        """Return the same chart with other signals."""
        return replace(self, signals=signals)


def _bound(column: str) -> str:
    return f"{column} IS NOT NULL AND {column} <> {UNSET32}"


_MAX_BW = "coalesce(greatest(bbr_bw_hi_0, bbr_bw_hi_1), bbr_bw_s_0_v)"

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
            f"{_MAX_BW}::DOUBLE {_KBIT}",
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
            f"bbr_bw_lo::DOUBLE {_KBIT}",
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
            f"bbr_lt_bw::DOUBLE {_KBIT}",
            1e-3,
            where="bbr_lt_use_bw = 1",
            state=True,
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
            "tp_packets_out::BIGINT + tp_retrans_out - tp_sacked_out - tp_lost_out",
            1.0,
            "line",
            width=1.2,
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
            f"{_MAX_BW}::DOUBLE * bbr_min_rtt_us * 10 / 16777216",
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
        ),
    ),
    zero=False,
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

SEQUENCE = Panel(
    "sequence",
    "Time and sequence",
    "MB",
    (
        Signal(
            "rwin",
            "receive window",
            "end of what the receiver allows: tp.snd_una + tp.snd_wnd",
            "(tp_snd_una::BIGINT + tp_snd_wnd) % 4294967296",
            1e-6,
            wraps=True,
            where="tp_snd_wnd > 0",
        ),
        Signal(
            "sent",
            "sent",
            "tp.snd_nxt: the next new byte to send",
            "tp_snd_nxt",
            1e-6,
            wraps=True,
            width=1.2,
        ),
        Signal(
            "acked",
            "acknowledged",
            "tp.snd_una: the first byte not acknowledged",
            "tp_snd_una",
            1e-6,
            wraps=True,
        ),
        Signal(
            "segment",
            "segments",
            "data as it passed the capture point",
            "edge",
            1e-6,
            "range",
            "NOT again",
            source="segments",
            base="len",
            wraps=True,
            width=2.0,
        ),
        Signal(
            "ce_segment",
            "with CE mark",
            "data that passed the capture point with a CE mark",
            "edge",
            1e-6,
            "range",
            "ce",
            source="segments",
            base="len",
            wraps=True,
            width=2.4,
            colour="ce",
        ),
        Signal(
            "resent",
            "sent again",
            "data below what had passed the capture point already: sent again, or overtaken",
            "edge",
            1e-6,
            "range",
            "again",
            source="segments",
            base="len",
            wraps=True,
            width=2.4,
            colour="retrans_out",
        ),
        Signal(
            "sack",
            "SACK",
            "first block of each selective acknowledgement as it passed the capture point",
            "sack_edge",
            1e-6,
            "range",
            "sack_edge IS NOT NULL",
            source="acks",
            base="sack_len",
            wraps=True,
            width=2.0,
        ),
        Signal(
            "lost_segment",
            "marked lost",
            "segments that the kernel marked lost (skb_marked_lost)",
            "skb_end_seq",
            1e-6,
            "range",
            "kind = 'skb_marked_lost'",
            # Not down to skb_seq, which reads as something else where skbs were lost.
            base="skb_gso_segs::BIGINT * tp_mss_cache",
            wraps=True,
            width=2.4,
            colour="lost",
        ),
    ),
    zero=False,
    height=240,
)

WIRE = Panel(
    "wire",
    "On the wire",
    "Mbit/s",
    (
        Signal(
            "wire_rate",
            "throughput",
            "whole frames of data that passed the capture point",
            "bits / seconds / 1000",
            1e-3,
            source="wire",
        ),
        Signal(
            "wire_goodput",
            "goodput",
            "payload newly acknowledged in order, by ACKs that passed the capture point",
            "acked_bits / seconds / 1000",
            1e-3,
            source="wire",
            colour="acked",
        ),
        Signal(
            "wire_again",
            "sent again",
            "whole frames of data sent again, or overtaken",
            "again_bits / seconds / 1000",
            1e-3,
            source="wire",
            where="again_any",
            colour="retrans_out",
        ),
    ),
    height=120,
)

FLOW_PANELS = (RATES, VOLUMES, RTT, LOSS, ROUNDS, SEQUENCE, WIRE)

# Of the run, not of a flow.
QUEUE = Panel(
    "queue",
    "Bottleneck queue",
    "packets",
    (
        Signal(
            "backlog",
            "backlog",
            "packets in the bottleneck's queue when it was sampled",
            "backlog_pkts",
            1.0,
            "line",
            source="queue",
        ),
        Signal(
            "dropped",
            "dropped",
            "packets dropped since the sample before",
            "dropped - lag(dropped) OVER (ORDER BY boottime_ns)",
            1.0,
            "stem",
            source="queue",
        ),
    ),
    height=110,
)
