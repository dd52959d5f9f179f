"""What an export is of: a run, some of its flows, a window of time, and whose names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...analyze.story import names as naming
from ...analyze.story.event_flows import EventFlow
from ...analyze.story.flow_stories import RecordedFlow, flows_of
from ...collect.store.query import rung_of
from ...probes.base.errors import BbrscopeError

if TYPE_CHECKING:
    import duckdb

    from ...collect.store.store import Store


@dataclass(frozen=True)
class ExportScope:
    """A run's flows as they are exported.

    Attributes:
        con: the store's connection.
        run_id, run: which run.
        zero_ns: zero of the run's clock [ns, CLOCK_MONOTONIC].
        flows: the flows that are exported, the one that carried most first.
        chosen: those were asked for by number; else they are all that carry data.
        window: from and to [ns, CLOCK_MONOTONIC]; None: all of it.
        names: the kernel's, or the draft's.
        everything: every decision, those that each ACK takes and those to change nothing, too.
    """

    con: duckdb.DuckDBPyConnection
    run_id: int
    run: str
    zero_ns: int
    flows: tuple[RecordedFlow, ...]
    chosen: bool = False
    window: tuple[int, int] | None = None
    names: str = naming.KERNEL
    everything: bool = False

    def seconds(self, ns: int) -> float:
        """Return a time on the run's clock."""
        return (ns - self.zero_ns) / 1e9

    def inside(self, ns: int) -> bool:
        """Tell whether a time [ns, CLOCK_MONOTONIC] is in the window."""
        return self.window is None or self.window[0] <= ns <= self.window[1]

    def span(self, flow: RecordedFlow) -> tuple[int, int]:
        """Return the part of the window in which a flow was recorded [ns, CLOCK_MONOTONIC]."""
        first, last = int(flow.first_ns), int(flow.last_ns)
        if self.window is None:
            return first, last
        return max(first, self.window[0]), min(last, self.window[1])

    def translated(self, text: str) -> str:
        """Return a text with the names that were asked for."""
        return naming.translate(text, self.names)

    def event_flows(self, to: str) -> list[EventFlow]:
        """Return the flows if their decisions are known.

        Raises:
            BbrscopeError: they are not. `to` completes "RUN has no decisions to ..."
        """
        known = [flow for flow in self.flows if isinstance(flow, EventFlow)]
        if known and len(known) == len(self.flows):
            return known
        rung = rung_of(self.con, self.run_id)
        if not self.flows:
            raise BbrscopeError(f"{self.run} has no flow", "choose another run: bbrscope runs")
        by = f"{rung.name}, which cannot {rung.cannot}" if rung else "unknown means"
        raise BbrscopeError(
            f"{self.run} has no decisions to {to}: it was recorded by {by}",
            "record the sender with `bbrscope collect`, which sees them",
        )


def scope_of(
    store: Store,
    run: str,
    flow: int | None,
    between: tuple[int, int] | None,
    names: str,
    everything: bool,
) -> ExportScope:
    """Return what to export of a run; `between` is in ns on the run's clock.

    Raises:
        BbrscopeError: no such run or flow, or none of its flows is recorded in that time.
    """
    run_id = store.run_id(run)
    flows = flows_of(store.con, run_id)
    if flow is not None:
        chosen = [one_flow for one_flow in flows if one_flow.flow == flow]
        if not chosen:
            known = ", ".join(str(one_flow.flow) for one_flow in flows[:20]) or "none"
            raise BbrscopeError(f"{run} has no flow {flow}", f"it has {known}")
    else:
        chosen = [one_flow for one_flow in flows if not one_flow.tiny] or flows[:1]
    zero_ns = int(flows[0].zero_ns) if flows else 0
    window = None if between is None else (zero_ns + between[0], zero_ns + between[1])
    scope = ExportScope(
        store.con,
        run_id,
        run,
        zero_ns,
        tuple(chosen),
        flow is not None,
        window,
        names,
        everything,
    )
    _require_recorded(scope)
    return scope


def _require_recorded(scope: ExportScope) -> None:
    spans = [scope.span(flow) for flow in scope.flows]
    if scope.window is None or not spans or any(first <= last for first, last in spans):
        return
    first = scope.seconds(min(int(flow.first_ns) for flow in scope.flows))
    last = scope.seconds(max(int(flow.last_ns) for flow in scope.flows))
    which = f"flow {scope.flows[0].flow} of {scope.run}" if scope.chosen else scope.run
    start, end = map(scope.seconds, scope.window)
    raise BbrscopeError(
        f"nothing of {which} is recorded between {start:g} and {end:g} s",
        f"it was recorded from {first:.3f} to {last:.3f} s: choose --between in that",
    )
