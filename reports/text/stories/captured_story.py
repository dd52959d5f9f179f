"""The story of flows of which only packets are known (rung capture), as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict

from ....analyze.story.captured_flows import CapturedFlow
from ....analyze.story.facts import StoryFacts
from ....collect.bundle.rungs import CAPTURE
from ....collect.store.query import Row
from ..print_table import printable
from .prose import plain
from .story_prose import StoryWords

BEYOND = (
    "Packets do not tell the sender's state: which congestion control it had, BBR's phase and"
    " bounds, or why it sent as it did. `bbrscope collect` on the sender records"
    " that, if it is Linux."
)


def text(flow: CapturedFlow, facts: StoryFacts) -> Iterable[str]:
    """Yield a flow's story as lines."""
    row = flow.summary
    yield printable(f"{flow.run}, flow {flow.flow}: {row['local']} -> {row['remote']}")
    for prose in StoryWords(facts, flow.zero_ns).paragraphs():
        yield from textwrap.wrap(plain(prose), 96, initial_indent="  ", subsequent_indent="  ")
    yield f"  recorded by {CAPTURE.name}: {CAPTURE.can}"
    yield f"  it cannot {CAPTURE.cannot}"
    yield ""


def document(flow: CapturedFlow) -> Row:
    """Return the same as JSON."""
    row = flow.summary
    summary = {name: row[name] for name in row if name not in ("run_id", "run", "flow")}
    stalls = [
        {
            "start_s": (stall.span.start_ns - flow.zero_ns) / 1e9,
            "duration_s": stall.span.duration_ns / 1e9,
            "outstanding_bytes": stall.outstanding_bytes,
            "resent_count": stall.resent_count,
        }
        for stall in flow.stalls
    ]
    return {"flow": flow.flow, "rung": asdict(CAPTURE), "summary": summary, "stalls": stalls}
