"""A flow at one instant, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....analyze.story import names as naming
from ....analyze.story.event_flows import EventFlow
from ....analyze.story.instant import Instant
from ..print_table import printable
from .flow_story import trust


@dataclass(frozen=True)
class LimitWords:
    """What a binding constraint is called, and what it means where there is room for it."""

    short: str
    meaning: str = ""

    @property
    def full(self) -> str:
        """Both."""
        return f"{self.short}: {self.meaning}" if self.meaning else self.short


# By `limits.binding`, for one instant.
_LIMIT_WORDS = {
    "cwnd_target": LimitWords("cwnd, at its target (gain x BDP + extra_acked) or on the way there"),
    "inflight_hi": LimitWords("cwnd, capped by inflight_hi"),
    "inflight_hi_headroom": LimitWords("cwnd, capped by inflight_hi less headroom"),
    "inflight_lo": LimitWords("cwnd, capped by inflight_lo"),
    "probe_rtt": LimitWords("cwnd, capped by PROBE_RTT"),
    "recovery": LimitWords("cwnd, cut by loss recovery"),
    "pacing_bw_lo": LimitWords("pacing at bw_lo"),
    "pacing_max_bw": LimitWords("pacing at max_bw x gain"),
    "max_pacing_rate": LimitWords("pacing at the application's SO_MAX_PACING_RATE"),
    "policer": LimitWords("pacing at the policer's rate lt_bw"),
    "receive_window": LimitWords("the peer's receive window"),
    "application": LimitWords("the application", "it had nothing to send"),
    "unknown": LimitWords(
        "unknown",
        "no data, send buffer or small queues (no recorded signal tells which), "
        "or a gap of the recording",
    ),
}


def limit_words(binding: str) -> LimitWords:
    """Return the words of a binding constraint, at worst its own name."""
    return _LIMIT_WORDS.get(binding, LimitWords(binding))


def instant_text(flow: EventFlow, instant: Instant, names: str) -> list[str]:
    """State at one instant, what limits sending and what BBR waits for, as aligned lines."""
    limit = limit_words(instant.binding).full
    if not instant.after:
        limit = "unknown: the recording ends or has a gap here"
    first, *others = instant.waits
    rows = [*instant.rows, ("limited by", limit), ("waits for", first)]
    rows += [("", text) for text in others]
    rows = [(naming.translate(a, names), naming.translate(b, names)) for a, b in rows]
    column = max(len(label) for label, _ in rows)
    when = "after" if instant.after else "before"
    event_s = (instant.event_ns - flow.zero_ns) / 1e9
    own_s = (instant.ns - flow.first_ns) / 1e9
    own = f" ({own_s:.3f} s after the flow began)" if flow.first_ns != flow.zero_ns else ""
    lines = [
        printable(f"{flow.run}, flow {flow.flow} at {(instant.ns - flow.zero_ns) / 1e9:.3f} s"),
        f"  state {when} event {instant.seq} ({instant.kind}) at {event_s:.6f} s{own}",
        f"  {trust(flow)[0]}",
    ]
    if not instant.after:
        lines.append("  what the event left behind is not recorded")
    return [*lines, *(f"  {label:<{column}}  {text}" for label, text in rows), ""]


def instant_document(flow: EventFlow, instant: Instant, names: str) -> dict[str, Any]:
    """The same as JSON; state in kernel units."""
    return {
        "flow": flow.flow,
        "version": flow.version,
        "t_ns": instant.ns - flow.zero_ns,
        "flow_t_ns": instant.ns - flow.first_ns,
        "seq": instant.seq,
        "event_t_ns": instant.event_ns - flow.zero_ns,
        "state_is": "after" if instant.after else "before",
        "phase": naming.translate(instant.phase, names),
        "phase_since_t_ns": instant.phase_since_ns - flow.zero_ns,
        "state": {naming.translate(name, names): v for name, v in instant.state.items()},
        "binding": naming.translate(instant.binding, names),
        "waits_for": [naming.translate(text, names) for text in instant.waits],
        "trust": trust(flow),
    }
