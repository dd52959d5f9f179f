"""Which signals a flow's charts show: kernel fields, units, shapes and colours, as data.

Expressions are SQL over one row of `events`. Those of struct bbr are the state before the event, in
force since the event before; `state` marks them, and they are drawn from there on.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        shape: step (holds until the next), line, or stem (happens at an instant).
        where: SQL condition under which the row has a value.
        state: the value holds since the event before.
        keep: every change is kept, whatever the size.
        dash: lengths of dash and space; none: solid.
        width: of the line, in pixels.
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


@dataclass(frozen=True)
class Panel:
    """One chart: signals of the same unit."""

    key: str
    title: str
    unit: str
    signals: tuple[Signal, ...]
    zero: bool = True
    height: int = 150


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
            "max_bw x min_rtt, in packets",
            f"{_MAX_BW}::DOUBLE * bbr_min_rtt_us * 10 / 16777216",
            0.1,
            where=f"{_MAX_BW} > 0 AND {_bound('bbr_min_rtt_us')}",
            state=True,
            dash=(2, 3),
            width=2.0,
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

FLOW_PANELS = (RATES, VOLUMES, RTT, LOSS)

# Of the run, not of a flow: queue_samples, filled by select.py.
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
        ),
        Signal(
            "dropped",
            "dropped",
            "packets dropped since the sample before",
            "dropped - lag(dropped) OVER (ORDER BY boottime_ns)",
            1.0,
            "stem",
        ),
    ),
    height=110,
)
