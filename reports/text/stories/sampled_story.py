"""The story of flows of which there are only samples, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ....analyze.story.sampled_flows import SampledFlow, SeenMode
from ....analyze.story.sentences import milliseconds
from ....probes.base.plurals import plural
from ..print_table import printable


def text(flow: SampledFlow, between: tuple[int, int] | None) -> Iterable[str]:
    """Yield a flow's story: who, how much, in which modes it was seen, what cannot be known."""
    s = flow.summary
    facts = [f"{s['duration_ns'] / 1e9:.1f} s in {plural(s['samples'], 'sample')}"]
    if s["goodput_mbps"] is not None:
        facts.append(f"{s['goodput_mbps']:.2f} Mbit/s acknowledged")
    for name, what in (("retrans_packets", "sent again"), ("lost_packets", "marked lost")):
        if s[name] is not None:
            facts.append(f"{plural(s[name], 'packet')} {what}")
    if s["min_rtt_us"] is not None:
        facts.append(f"min_rtt {milliseconds(round(s['min_rtt_us']))} at the end")
    if s["bw_max_mbps"]:
        facts.append(f"bw {s['bw_max_mbps']:.2f} Mbit/s at most")
    yield printable(f"{s['run']}, flow {flow.flow}: {s['local'] or '?'} -> {s['remote']}")
    yield f"  {', '.join(facts)}"
    yield f"  recorded by {flow.rung.name}: {flow.rung.can}"
    yield f"  it cannot {flow.rung.cannot}"
    for seen in modes(flow, between):
        at = (seen.first_ns - flow.zero_ns) / 1e9
        yield f"{at:>9.3f}  {seen.mode:<10} {sentence(seen, flow.zero_ns)}"
    yield ""


def modes(flow: SampledFlow, between: tuple[int, int] | None) -> list[SeenMode]:
    """Return the modes seen in a window of time [ns, CLOCK_MONOTONIC]; None: all."""
    if between is None:
        return flow.modes
    return [m for m in flow.modes if m.first_ns <= between[1] and m.last_ns >= between[0]]


def sentence(seen: SeenMode, zero_ns: int) -> str:
    """Return when it was seen, and how well the beginning is known."""
    last_s = (seen.last_ns - zero_ns) / 1e9
    until = f"seen until {last_s:.3f} s" if seen.samples > 1 else "seen in one sample"
    if seen.before_ns is None:
        return until
    before_s = (seen.before_ns - zero_ns) / 1e9
    return f"{until}; began after {before_s:.3f} s; why is not recorded"


def document(flow: SampledFlow, between: tuple[int, int] | None) -> dict[str, Any]:
    """Return the same as JSON; times in `modes` in ns since the flow's first sample."""
    return {
        "flow": flow.flow,
        "zero_ns": flow.zero_ns,
        "first_ns": flow.first_ns,
        "rung": asdict(flow.rung),
        "summary": {name: value for name, value in flow.summary.items() if name != "run_id"},
        "modes": [_mode_document(flow, seen) for seen in modes(flow, between)],
    }


def _mode_document(flow: SampledFlow, seen: SeenMode) -> dict[str, Any]:
    document = asdict(seen)
    times = [name for name in document if name.endswith("_ns") and document[name] is not None]
    return document | {name: document[name] - flow.first_ns for name in times}
