"""What a replay finds out about one flow: decisions as they come, and the rest at its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..bbr.records import Array
from .gaps import GapPlace
from .run_info import RunInfo


@dataclass(frozen=True)
class Agreed:
    """How many events one mode compared with the kernel, and of these exact in all recorded."""

    compared: int
    exact: int


@dataclass(frozen=True)
class Decisions:
    """Decisions of step mode, taken from the kernel's own state, at successive events of a flow.

    Attributes:
        rows: int64 [m, 6] of (index among these events, code, evidence).
        seq, ns: [m], of the event of each.
    """

    run_id: int
    flow: int
    rows: Array
    seq: Array
    ns: Array


@dataclass
class FlowReplay:
    """What the replay found out about one flow: all that is stored and told, but not its inputs.

    A run may have thousands of flows, whose results wait in memory until it is stored.

    Attributes:
        values: the parameters that it ran with.
        count: events that were replayed.
        first_seq, pre_init, tail, missing: see `flow_facts.FlowFacts`.
        has_init: the recording has the flow's init; else it starts in the middle of the flow.
        passes: by mode.
        counts: by mode, then by field or output: events compared, and of these exact.
        divergences: by mode, the first event that differs.
        decisions: those that were not stored as they came.
    """

    info: RunInfo
    flow: int
    values: dict[str, Any]
    count: int
    first_seq: int
    pre_init: int
    tail: int
    missing: list[str]
    has_init: bool
    passes: dict[str, Agreed]
    counts: dict[str, dict[str, tuple[int, int]]]
    gaps: list[GapPlace]
    divergences: dict[str, dict[str, Any] | None]
    decisions: tuple[Decisions, ...] = ()

    @property
    def exact(self) -> bool:
        """Nothing differs from the kernel outside the recording's gaps."""
        return not any(self.divergences.values())


@dataclass(frozen=True)
class FlowPart:
    """What was found at successive events of a flow.

    Attributes:
        events: how many they are.
        decisions: None: they were not asked for.
        flow: of the last part, what was found of the whole flow.
    """

    run_id: int
    events: int
    decisions: Decisions | None
    flow: FlowReplay | None


def whole_flows(parts: Iterable[FlowPart]) -> list[FlowReplay]:
    """Gather the flows of a run, in order, each with its decisions."""
    found: list[FlowReplay] = []
    waiting: dict[int, list[Decisions]] = {}
    for part in parts:
        if part.decisions is not None:
            waiting.setdefault(part.decisions.flow, []).append(part.decisions)
        if part.flow is not None:
            found.append(replace(part.flow, decisions=(*waiting.pop(part.flow.flow, ()),)))
    return sorted(found, key=lambda one: one.flow)
