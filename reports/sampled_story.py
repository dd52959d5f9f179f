"""The story of flows that were sampled alone, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..analyze.sampled import SampledFlow, Seen
from ..analyze.sentences import milliseconds
from .story import seconds
from .tables import printable


def text(flow: SampledFlow, between: tuple[int, int] | None) -> Iterable[str]:
    """Yield a flow's story: who, how much, in which modes it was seen, what cannot be known."""
    s = flow.summary
    facts = [f"{s['duration_ns'] / 1e9:.1f} s in {s['samples']} samples"]
    if s["goodput_mbps"] is not None:
        facts.append(f"{s['goodput_mbps']:.2f} Mbit/s acknowledged")
    for name, what in (("retrans_packets", "sent again"), ("lost_packets", "marked lost")):
        if s[name] is not None:
            facts.append(f"{s[name]:,} packets {what}")
    if s["min_rtt_us"] is not None:
        facts.append(f"min_rtt {milliseconds(round(s['min_rtt_us']))}")
    if s["bw_max_mbps"]:
        facts.append(f"bw {s['bw_max_mbps']:.2f} Mbit/s at most")
    yield printable(f"{s['run']}, flow {flow.flow}: {s['local'] or '?'} -> {s['remote']}")
    yield f"  {', '.join(facts)}"
    yield f"  recorded by {flow.rung.name}: {flow.rung.can}"
    yield f"  it cannot {flow.rung.cannot}"
    for seen in modes(flow, between):
        yield f"{seconds(seen.first_ns):>9}  {seen.mode:<10} {sentence(seen)}"
    yield ""


def modes(flow: SampledFlow, between: tuple[int, int] | None) -> list[Seen]:
    """The modes seen in a window of time [ns since the flow's first sample]."""
    if between is None:
        return flow.modes
    return [m for m in flow.modes if m.first_ns <= between[1] and m.last_ns >= between[0]]


def sentence(seen: Seen) -> str:
    """When it was seen, and how well the beginning is known."""
    until = f"seen until {seconds(seen.last_ns)} s" if seen.samples > 1 else "seen in one sample"
    if seen.before_ns is None:
        return until
    return f"{until}; began after {seconds(seen.before_ns)} s; why is not recorded"


def document(flow: SampledFlow, between: tuple[int, int] | None) -> dict[str, Any]:
    """The same as JSON; times in ns since the flow's first sample."""
    return {
        "flow": flow.flow,
        "rung": asdict(flow.rung),
        "summary": {name: value for name, value in flow.summary.items() if name != "run_id"},
        "modes": [asdict(seen) for seen in modes(flow, between)],
    }
