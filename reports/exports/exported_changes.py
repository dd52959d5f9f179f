"""What happened to a flow, one entry per change or decision: what each format shows in its way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...analyze.bbr.citations import kernel_function
from ...analyze.bbr.codes import CODES, Code
from ...analyze.story.changes import Change
from ...analyze.story.decision_list import EventFacts, decision_change, decisions_at
from ...analyze.story.event_flows import EventFlow
from ...analyze.story.flow_stories import RecordedFlow, changes_of
from ..text.print_table import printable
from ..text.stories.change_table import ChangeTable
from .export_scope import ExportScope

# Every ACK takes some of these: they tell the arithmetic of the window and of ACK aggregation.
_EACH_ACK = ("cwnd", "extra_acked")


@dataclass(frozen=True)
class ExportedChange:
    """A change or a decision in words.

    Attributes:
        change: as the story has it.
        what: from what to what, or the decision's name.
        why: the decision with its numbers, and the kernel's function.
        function: that of the decisive decision; empty: no decision is known.
    """

    change: Change
    what: str
    why: str
    function: str

    @property
    def line(self) -> str:
        """One line: phases begin with the word phase, other changes with what changes."""
        return f"{'phase ' if self.change.is_phase else ''}{self.what}: {self.why}"

    @property
    def evidence(self) -> dict[str, int]:
        """The numbers of all its decisions, in the kernel's units."""
        return {
            name: number
            for reason in reversed(self.change.reasons)
            for name, number in reason.evidence.items()
        }


def exported_changes(
    scope: ExportScope, flow: RecordedFlow, decisions: bool = True
) -> Iterator[ExportedChange]:
    """Yield what happened to a flow in the window, in the order of its events.

    Without `decisions` the story only: phases, bounds, time-outs and what else `explain` tells.
    """
    version = flow.version if isinstance(flow, EventFlow) else ""
    table = ChangeTable(scope.zero_ns, version, scope.names)
    for change in _changes(scope, flow, decisions):
        reasons = change.reasons
        function = kernel_function(reasons[0].code, version) if reasons else ""
        yield ExportedChange(
            change, printable(table.what(change)), printable(table.why(change)), function
        )


def _changes(scope: ExportScope, flow: RecordedFlow, decisions: bool) -> list[Change]:
    story = changes_of(scope.con, flow)
    changes = [change for change in story if scope.inside(change.ns)]
    if decisions and isinstance(flow, EventFlow) and flow.sampled is None:
        taken = {
            (change.seq, reason.code.number) for change in changes for reason in change.reasons
        }
        changes += _decisions(scope, flow, taken)
    return sorted(changes, key=lambda change: (change.ns, change.seq, not change.is_phase))


def _decisions(scope: ExportScope, flow: EventFlow, taken: set[tuple[int, int]]) -> list[Change]:
    """The decisions that the story leaves out."""
    chosen = [code for code in CODES.values() if scope.everything or _worth(code)]
    changes = [
        decision_change(seq, number, evidence)
        for seq, decided in decisions_at(scope.con, flow, chosen, scope.window).items()
        for number, evidence in decided
        if (seq, number) not in taken
    ]
    facts = EventFacts.of(scope.con, flow, [change.seq for change in changes])
    return [facts.attach(change) for change in changes]


def _worth(code: Code) -> bool:
    return code.change and code.about not in _EACH_ACK
