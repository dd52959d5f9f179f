"""The table of live flows: columns, order, and lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyze.live.live_flows import FlowNow

# Key of --sort -> heading, width, digits after the point, and how the value is scaled.
COLUMNS = {
    "flow": ("flow", 43, 0, 1.0),
    "phase": ("phase", 16, 0, 1.0),
    "delivered_mbps": ("Mbit/s", 8, 2, 1.0),
    "bw_mbps": ("bw", 8, 2, 1.0),
    "pacing_mbps": ("pacing", 8, 2, 1.0),
    "in_flight": ("flight", 7, 0, 1.0),
    "cwnd": ("cwnd", 6, 0, 1.0),
    "inflight_lo": ("lo", 6, 0, 1.0),
    "inflight_hi": ("hi", 6, 0, 1.0),
    "limit": ("limited by", 16, 0, 1.0),
    "loss": ("loss %", 7, 2, 100.0),
    "srtt_ms": ("rtt ms", 8, 2, 1.0),
    "min_rtt_ms": ("min", 8, 2, 1.0),
    "decision": ("last decision", 60, 0, 1.0),
}
SORTS = tuple(COLUMNS)


def ordered(flows: Sequence[FlowNow], sort: str, words: str = "") -> list[FlowNow]:
    """The flows that contain `words` in any text, largest of `sort` first; texts by alphabet."""
    chosen = [flow for flow in flows if words.lower() in text_of(flow)]
    told = [flow for flow in chosen if getattr(flow, sort) is not None]
    untold = [flow for flow in chosen if getattr(flow, sort) is None]
    is_text = all(isinstance(getattr(flow, sort), str) for flow in told)
    return sorted(told, key=lambda flow: getattr(flow, sort), reverse=not is_text) + untold


def text_of(flow: FlowNow) -> str:
    """What --filter looks in."""
    return f"{flow.flow} {flow.phase} {flow.limit} {flow.decision}".lower()


def heading() -> str:
    """The names of the columns."""
    return " ".join(_cell(text, width, key) for key, (text, width, _, _) in COLUMNS.items())


def line(flow: FlowNow) -> str:
    """One flow; what the rung does not tell is a dash."""
    return " ".join(_cell(value(flow, key), COLUMNS[key][1], key) for key in COLUMNS)


def value(flow: FlowNow, key: str) -> str:
    """One value as text."""
    _, _, digits, scale = COLUMNS[key]
    found = getattr(flow, key)
    if found is None:
        return "-"
    return found if isinstance(found, str) else f"{found * scale:.{digits}f}"


def _cell(text: str, width: int, key: str) -> str:
    cut = text[:width]
    is_text = key in ("flow", "phase", "limit", "decision")
    return cut.ljust(width) if is_text else cut.rjust(width)
