"""The story of a flow of kernel events as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from ....analyze.story import names as naming
from ....analyze.story.event_flows import EventFlow
from ....analyze.story.facts import StoryFacts
from ....analyze.story.sentences import milliseconds
from ....probes.base.plurals import plural
from ..findings.completeness_text import completeness
from ..print_table import printable
from ..quantities import share
from .change_table import short
from .prose import plain
from .story_prose import StoryWords

WIDTH = 96
_PHASE_ORDER = (
    "ALL",
    "STARTUP",
    "DRAIN",
    "PROBE_BW_REFILL",
    "PROBE_BW_UP",
    "PROBE_BW_1.25",
    "PROBE_BW_DOWN",
    "PROBE_BW_0.75",
    "PROBE_BW_CRUISE",
    "PROBE_BW_1.0",
    "PROBE_BW_LT",
    "PROBE_RTT",
)
_UNKNOWN = (
    "unknown: nothing recorded held the sender back (no data to send, a full send buffer or the"
    " small-queue limit), or the recording has a gap there"
)


def header(flow: EventFlow, names: str) -> list[str]:
    """Who the flow is, how it did, and how far the story may be trusted."""
    s = flow.summary
    ends = f": {s['local']} -> {s['remote']}" if s["local"] and s["remote"] else ""
    return [
        printable(f"{flow.run}, flow {flow.flow}{ends}"),
        naming.translate("  " + ", ".join(_totals(flow)), names),
        printable(f"  decoded as {flow.version} because {flow.decoded_as}"),
        *(f"  {text}" for text in trust(flow)),
    ]


def _totals(flow: EventFlow) -> list[str]:
    """How long the flow lasted, and what it carried and lost; what is not known is left out."""
    s = flow.summary
    facts = [f"{s['duration_ns'] / 1e9:.1f} s"]
    if flow.first_ns != flow.zero_ns:
        facts[0] += f" from {(flow.first_ns - flow.zero_ns) / 1e9:.3f} s of the run on"
    if s["throughput_mbps"] is not None:
        facts.append(f"{s['throughput_mbps']:.2f} Mbit/s delivered")
    if s["delivered"] is not None:
        facts.append(plural(s["delivered"], "packet"))
    if s["lost"] is not None:
        facts.append(f"{s['lost']:,} lost")
    if s["retransmits"]:
        facts.append(f"{s['retransmits']:,} sent again")
    if s["min_rtt_us"] is not None:
        facts.append(f"min_rtt {milliseconds(s['min_rtt_us'])} at the end")
    if s["max_bw_mbps"]:
        facts.append(f"max_bw {s['max_bw_mbps']:.2f} Mbit/s at its largest")
    return facts


def summary(flow: EventFlow, facts: StoryFacts, names: str, width: int | None) -> list[str]:
    """Return what sums up the story, beyond what the header says: paragraphs of text."""
    text: list[str] = []
    for paragraph in StoryWords(facts, flow.zero_ns).beyond_totals():
        said = naming.translate(plain(paragraph).strip(), names)
        text += textwrap.wrap(said, width or WIDTH, initial_indent="  ", subsequent_indent="    ")
    return text


def trust(flow: EventFlow) -> list[str]:
    """How sure the capture allows one to be."""
    return [*flow.left, *_recorded(flow)]


def _recorded(flow: EventFlow) -> list[str]:
    """How complete the recording is, what its rung can tell and what the replay confirms."""
    state, meaning = completeness(flow.completeness, flow.rung)
    # Of a complete recording the line on the replay says enough.
    recording = [] if state == "good" else [f"the run: {meaning[:1].lower()}{meaning[1:]}"]
    if flow.sampled:
        return [
            *recording,
            f"recorded by {flow.sampled.name}: {flow.sampled.can}",
            f"it cannot {flow.sampled.cannot}",
        ]
    lines = [_replayed(flow), *recording]
    if not flow.summary["has_init"]:
        lines.append("the recording starts in the middle of the flow: what came before is unknown")
    if flow.missing:
        lines.append(f"the recording lacks {flow.missing}")
    return lines + _gaps(flow)


def _replayed(flow: EventFlow) -> str:
    """How the replay agrees with the kernel."""
    compared, exact = flow.summary["replayed"] or 0, flow.summary["exact"] or 0
    if not compared:
        return "the replay could compare no event: nothing here is confirmed by the kernel"
    if exact == compared:
        # Of a simulated run, the line on its completeness says that no kernel was there.
        whose = "" if flow.completeness.simulated else "; the reasons are the kernel's own"
        return f"replay: {exact:,} of {plural(compared, 'event')} exact{whose}"
    first = flow.first_divergence or {}
    return (
        f"replay: only {exact:,} of {plural(compared, 'event')} exact; be careful from event"
        f" {first.get('seq', 0)} on (bbrscope replay {flow.run})"
    )


def _gaps(flow: EventFlow) -> list[str]:
    """How much of the time lies in gaps of the recording, and where the first of them are."""
    if not flow.gaps:
        return []
    duration_ns = flow.summary["duration_ns"]
    hidden = flow.hidden_ns / duration_ns if duration_ns else 0
    lines = [
        f"{plural(len(flow.gaps), 'gap')} in the recording"
        f" {'hides' if len(flow.gaps) == 1 else 'hide'} {share(hidden)} of the time;"
        " a change inside one has no recorded reason"
    ]
    for gap in flow.gaps[:3]:
        at = (gap.start_ns - flow.zero_ns) / 1e9
        lasted = (gap.end_ns - gap.start_ns) / 1e6
        lines.append(f"  gap at {at:.3f} s, {lasted:.1f} ms: {gap.detail}")
    return lines


def binding_table(flow: EventFlow, names: str) -> list[str]:
    """What limited the flow, % of time, overall and per phase."""
    phases = sorted({row["phase"] for row in flow.binding}, key=_phase_order)
    shares = {(row["phase"], row["binding"]): row["share"] for row in flow.binding}
    bindings = [row["binding"] for row in flow.binding if row["phase"] == "ALL"]
    if not bindings:
        return []
    heads = ["all" if phase == "ALL" else short(phase, names) for phase in phases]
    labels = [naming.translate(name, names) for name in bindings]
    widths = [max(len(head), 5) for head in heads]
    first = max(len("% of time limited by"), *map(len, labels))

    def row(label: str, cells: Sequence[str]) -> str:
        padded = (f"{text:>{width}}" for text, width in zip(cells, widths, strict=True))
        return f"  {label:<{first}}  " + "  ".join(padded)

    lines = [row("% of time limited by", heads)]
    for binding, label in zip(bindings, labels, strict=True):
        cells = [percent(shares.get((phase, binding))) for phase in phases]
        lines.append(row(label, cells))
    sums = (sum(shares.get((phase, binding), 0) for binding in bindings) for phase in phases)
    lines.append(row("sum", [f"{100 * total:.1f}" for total in sums]))
    if "unknown" in bindings:
        lines += textwrap.wrap(_UNKNOWN, 96, initial_indent="  ", subsequent_indent="    ")
    return lines


def _phase_order(phase: str | None) -> int:
    """Where a phase stands; one that no recording can tell, or that is not known, comes last."""
    return _PHASE_ORDER.index(phase) if phase in _PHASE_ORDER else len(_PHASE_ORDER)


def percent(share: float | None) -> str:
    """Return a share as a percentage, as short as a table's cell needs it."""
    return "." if share is None else "<0.1" if share < 0.0005 else f"{100 * share:.1f}"
