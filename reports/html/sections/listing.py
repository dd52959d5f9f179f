"""The tables under the charts: every phase change and every change of a bound, with its reason.

Long tables are cut and say so; nothing but the tables is made from these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....analyze.bbr.citations import kernel_function
from ....analyze.story.changes import BOUNDS, GAP, MID_FLOW, SAMPLED, Change
from ....analyze.story.flow_stories import FlowStory
from ....analyze.story.sampled_flows import SampledFlow
from ....probes.base.plurals import plural
from ...text.stories.sampled_story import sentence
from ...text.stories.story_prose import value_of
from .links import fragment

# Longer tables slow a browser down, so flows share as many rows; what is left out is in `bbrscope
# explain`.
MOST_ROWS, LEAST_ROWS = 1500, 150
# Of these, as many are printed; page.css hides the others.
MOST_ON_PAPER = 12
_WITHOUT = {
    GAP: "The recording lacks events here: why it happened is not known.",
    SAMPLED: "Seen by sampling: why it happened is not recorded.",
    MID_FLOW: "The recording starts in the middle of the flow, in this phase.",
    None: "No decision is known: the run was not replayed.",
}
# What a change is called in the table that is not of a bound.
_CALLED = {"core": "cwnd", "mss": "MSS", "max_pacing_rate": "SO_MAX_PACING_RATE"}
_CALLED |= {"tlp": "tail loss probe", "loss_state": "state Loss"}


@dataclass(frozen=True)
class ChangeRow:
    """A row of a table: when (seconds, on the axis and since the flow began), what and why.

    `a` and `b` are the window that a click opens; `source` is the kernel function that decided;
    `colour` names one of the palette.
    """

    at: float
    flow_at: float
    a: float
    b: float
    what: str
    old: str
    new: str
    code: str
    source: str
    why: str
    colour: str

    @property
    def href(self) -> str:
        """The link that opens the charts there."""
        return fragment(self.a, self.b)


@dataclass(frozen=True)
class Listing:
    """Rows of a table, and what was left out of it, in words; empty: nothing."""

    lines: list[ChangeRow]
    left_out: str = ""


@dataclass(frozen=True)
class Listings:
    """What a flow did: its phases; its bounds, and what TCP did to the window behind BBR's back."""

    phases: Listing
    bounds: Listing


def listings(story: FlowStory, flows_drawn: int) -> Listings:
    """Return the tables of a flow; the more flows are drawn, the fewer rows each has."""
    most = max(LEAST_ROWS, MOST_ROWS // max(1, flows_drawn))
    phases = [change for change in story.changes if change.is_phase]
    others = [change for change in story.changes if not change.is_phase]
    return Listings(_phases(story, phases, most), _bounds(story, others, most))


def _phases(story: FlowStory, changes: Sequence[Change], most: int) -> Listing:
    """Of very many changes, those of the mode only, and of these the first."""
    rows = []
    for index, change in enumerate(changes):
        before = change.ns - changes[index - 1].ns if index else 0
        after = changes[index + 1].ns - change.ns if index + 1 < len(changes) else 0
        rows.append(_row(story, change, _around(before), _around(after)))
    if len(rows) <= most:
        return Listing(rows)
    modes = [row for row in rows if _mode(row.old) != _mode(row.new)]
    left = len(rows) - len(modes[:most])
    first = f"the first {plural(most, 'change')}" if len(modes) > most else "changes"
    return Listing(modes[:most], f"Only {first} of the mode are listed: {left:,} more of the phase")


def _bounds(story: FlowStory, changes: Sequence[Change], most: int) -> Listing:
    """Of very many changes, the first."""
    rows = [_row(story, change, 0.25, 0.25) for change in changes[:most]]
    left = len(changes) - len(rows)
    words = f"Of {plural(len(changes), 'change')} only the first {most:,} can be listed: the others"
    return Listing(rows, words if left else "")


def _mode(phase: str) -> str:
    return "PROBE_BW" if phase.startswith("PROBE_BW") else phase


def _around(ns: int) -> float:
    """As much of a phase as shows it, but not so much that the change gets lost; seconds."""
    return min(max(0.7 * ns / 1e9, 0.03), 1.0)


def _row(story: FlowStory, change: Change, before: float, after: float) -> ChangeRow:
    flow = story.flow
    at = (change.ns - flow.zero_ns) // 1000 / 1e6
    version = story.facts.version or ""
    return ChangeRow(
        at,
        (change.ns - flow.first_ns) / 1e9,
        at - before,
        at + after,
        _CALLED.get(change.about, change.about),
        value_of(change, change.old),
        value_of(change, change.new),
        change.name or "",
        kernel_function(change.reasons[0].code, version) if change.reasons else "",
        _why(change),
        change.about if change.about in BOUNDS else "cwnd",
    )


def _why(change: Change) -> str:
    words = [reason.sentence for reason in change.reasons] or [_WITHOUT.get(change.name, "")]
    if change.doubt:
        words.append(f"({change.doubt})")
    return " ".join(words)


def modes(flow: SampledFlow) -> Listing:
    """Return the modes that samples show, as rows of the table of phases."""
    rows, old = [], ""
    for seen in flow.modes:
        at = (seen.first_ns - flow.zero_ns) // 1000 / 1e6
        began = at if seen.before_ns is None else at - (seen.first_ns - seen.before_ns) / 1e9
        why = sentence(seen, flow.zero_ns).capitalize() + "."
        since = (seen.first_ns - flow.first_ns) / 1e9
        ends = (began - 0.5, at + 0.5)
        rows.append(ChangeRow(at, since, *ends, "phase", old, seen.mode, SAMPLED, "", why, "cwnd"))
        old = seen.mode
    return Listing(rows)
