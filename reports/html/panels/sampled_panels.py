"""Which signals the charts show of a flow that was sampled by `ss` alone (rung inet_diag)."""

from __future__ import annotations

from .flow_panels import FLOW_PANELS
from .signals import Panel, Signal


def _signal(key: str, label: str, about: str, sql: str, scale: float = 1.0) -> Signal:
    """A line between samples: nothing is known of what lies between them."""
    return Signal(
        key,
        label,
        about,
        sql,
        scale,
        "line",
        where=f"({sql}) IS NOT NULL",
        source="samples",
        keep=True,
    )


_SAMPLES: dict[str, tuple[Signal, ...]] = {
    "rates": (
        _signal(
            "sample", "delivery rate", "of the newest rate sample", "delivery_rate / 1e3", 1e-3
        ),
        _signal("pacing", "pacing rate", "sk_pacing_rate", "sk_pacing_rate / 1e3", 1e-3),
        _signal("max_bw", "bw", "BBR's bandwidth (tcp_bbr_info)", "bw / 1e3", 1e-3),
    ),
    "volumes": (
        _signal("inflight", "inflight", "packets in flight at the sample", "in_flight"),
        _signal("cwnd", "cwnd", "snd_cwnd at the sample", "snd_cwnd"),
    ),
    "rtt": (
        _signal("srtt", "srtt", "smoothed RTT", "srtt_us", 1e-3),
        _signal("min_rtt", "min_rtt", "BBR's windowed minimum", "min_rtt_us", 1e-3),
    ),
    "loss": (
        Signal(
            "retrans_out",
            "sent again",
            "packets sent again since the sample before",
            "total_retrans - lag(total_retrans) OVER (ORDER BY ns)",
            1.0,
            "stem",
            source="samples",
        ),
    ),
}


def _panel(panel: Panel) -> Panel:
    """A chart of a flow without events: the samples' lines, and what packets tell."""
    beside = (signal for signal in panel.signals if signal.source != "events")
    return panel.of((*_SAMPLES.get(panel.key, ()), *beside))


SAMPLED_PANELS: tuple[Panel, ...] = tuple(map(_panel, FLOW_PANELS))
