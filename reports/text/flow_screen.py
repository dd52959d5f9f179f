"""The table of live flows: columns, order, and lines that fit a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyze.live.live_flows import FlowNow
from .print_table import printable

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
NUMBERS = frozenset(COLUMNS) - {"flow", "phase", "limit", "decision"}
# In which order columns go that find no room, and how little of a decision still says something.
DROPPED = (
    "min_rtt_ms pacing_mbps inflight_lo cwnd bw_mbps in_flight inflight_hi loss decision srtt_ms"
    " limit delivered_mbps phase"
).split()
LEAST_DECISION = 24
# Of an end that is too long for its column, an IPv6 address, as much of its tail: what tells
# interfaces apart, and the port.
END_TAIL = 11


def ordered(flows: Sequence[FlowNow], sort: str, words: str = "") -> list[FlowNow]:
    """The flows with `words` in any text, by the column `sort`: largest number first, or A to Z."""
    chosen = [flow for flow in flows if words.lower() in text_of(flow)]
    known = [flow for flow in chosen if getattr(flow, sort) is not None]
    unknown = [flow for flow in chosen if getattr(flow, sort) is None]
    is_text = all(isinstance(getattr(flow, sort), str) for flow in known)
    return sorted(known, key=lambda flow: getattr(flow, sort), reverse=not is_text) + unknown


def text_of(flow: FlowNow) -> str:
    """What --filter looks in."""
    return f"{flow.flow} {flow.phase} {flow.limit} {flow.decision}".lower()


def columns(flows: Sequence[FlowNow], width: int | None = None) -> dict[str, int]:
    """The columns that fit `width` (None: all, and uncut), as wide as these flows need them.

    Where there is too little room, columns without any value go first, then those that others
    nearly replace; the last decision takes the room that is left.
    """
    wide = {key: _needed(flows, key, width is None) for key in COLUMNS}
    if width is None:
        return wide
    untold = [key for key in DROPPED if all(getattr(flow, key) is None for flow in flows)]
    for key in [*untold, *(key for key in DROPPED if key not in untold)]:
        if _room(wide, width) >= min(wide.get("decision", 0), LEAST_DECISION):
            break
        del wide[key]
    if "decision" in wide:
        wide["decision"] = max(min(wide["decision"], _room(wide, width)), 0)
    return wide


def _needed(flows: Sequence[FlowNow], key: str, uncut: bool) -> int:
    """The width of a column: its heading and values, at most what COLUMNS allows if not `uncut`."""
    heading, most, _, _ = COLUMNS[key]
    least = most if key in NUMBERS else len(heading)
    longest = max((len(value(flow, key)) for flow in flows), default=0)
    return max(least, longest if uncut else min(most, longest))


def _room(wide: dict[str, int], width: int) -> int:
    """What the columns before the last decision leave of a line."""
    return width - sum(size + 1 for key, size in wide.items() if key != "decision")


def heading(wide: dict[str, int]) -> str:
    """The names of the columns."""
    return " ".join(_cell(COLUMNS[key][0], size, key) for key, size in wide.items())


def line(flow: FlowNow, wide: dict[str, int]) -> str:
    """One flow; what the rung does not tell is a dash."""
    return " ".join(_cell(value(flow, key), size, key) for key, size in wide.items())


def value(flow: FlowNow, key: str) -> str:
    """One value as text; a number has as many digits after the point as there is room for."""
    _, width, digits, scale = COLUMNS[key]
    number = getattr(flow, key)
    if number is None:
        return "-"
    if isinstance(number, str):
        return printable(number)
    texts = [f"{number * scale:.{count}f}" for count in range(digits, -1, -1)]
    return next((text for text in texts if len(text) <= width), f"{number * scale:.1e}")


def _cell(text: str, width: int, key: str) -> str:
    if key == "flow" and len(text) > width:
        text = _short_ends(text, width)
    cut = text if len(text) <= width else text[: max(width - 1, 0)] + "~"[:width]
    return cut.rjust(width) if key in NUMBERS else cut.ljust(width)


def _short_ends(flow: str, width: int) -> str:
    """A flow's ends, the long ones cut in their midst, so that both and their ports are seen.

    >>> _short_ends("[2001:db8:7::9:5678]:443 > [2001:db8:7::12:1ab4]:50123", 43)
    '[2001:db~9:5678]:443 > [2001:db~1ab4]:50123'
    """
    ends = flow.split(" > ")
    room = (width - 3 * (len(ends) - 1)) // len(ends)
    if room < END_TAIL + 2:
        return flow
    return " > ".join(
        end if len(end) <= room else f"{end[: room - END_TAIL - 1]}~{end[-END_TAIL:]}"
        for end in ends
    )
