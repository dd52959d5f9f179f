"""What held from when to when of a flow: its phases, TCP's congestion state, what limited sending.

And its signals over time: those that the report's charts draw, each value and not thinned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...analyze.bbr.records import CA_STATES
from ...analyze.story.captured_flows import CapturedFlow
from ...analyze.story.flow_stories import RecordedFlow
from ...analyze.story.sampled_flows import SampledFlow
from ..html.panels.captured_panels import CAPTURED_PANELS
from ..html.panels.flow_panels import FLOW_PANELS
from ..html.panels.sampled_panels import SAMPLED_PANELS
from ..html.panels.signals import Panel, Signal
from ..html.panels.sources import SOURCES
from .export_scope import ExportScope

if TYPE_CHECKING:
    import pyarrow as pa

PHASE, CA_STATE, LIMIT = "phase", "congestion state", "limit"
_ROWS = 50_000

# A row where the value changes: its time, its name, and why it ended if that is known. set_state is
# called before the state changes.
_STATES = ", ".join(f"'{name}'" for name in CA_STATES)
_LANES = {
    PHASE: "SELECT flow, start_ns::BIGINT AS ns, seq, phase AS name, end_name AS ended FROM phases"
    " WHERE run = $run AND run_id = $run_id",
    CA_STATE: "SELECT flow, ns::BIGINT AS ns, seq, list_extract([" + _STATES + "], 1 + CASE WHEN"
    " kind = 'set_state' THEN new_state ELSE icsk_ca_state END) AS name, NULL AS ended FROM events"
    " JOIN flows USING (run_id, flow) WHERE run_id = $run_id AND $run <> '' AND seq >= pre_init",
    LIMIT: "SELECT flow, ns::BIGINT AS ns, seq, binding AS name, NULL AS ended FROM binding"
    " WHERE run = $run AND run_id = $run_id",
}
_SAMPLED = {
    PHASE: "SELECT flow, first_ns::BIGINT AS ns, first_ns AS seq, mode AS name, 'SAMPLED' AS ended"
    " FROM sampled_modes WHERE run = $run AND run_id = $run_id",
}
_EVENTS = """
SELECT *, coalesce(lag(ns) OVER (ORDER BY seq), ns)::BIGINT AS held_ns
FROM events JOIN (SELECT run_id, flow, pre_init FROM flows) USING (run_id, flow)
WHERE run_id = $run_id AND flow = $flow AND seq >= pre_init
"""


@dataclass(frozen=True)
class LaneSpan:
    """A value and from when to when it held [ns, CLOCK_MONOTONIC].

    `ended` names the decision that ended a phase; None: not known, or the end.
    """

    name: str
    start_ns: int
    end_ns: int
    ended: str | None


@dataclass(frozen=True)
class SignalValues:
    """Some values of a signal: times [ns, CLOCK_MONOTONIC], values in its steps, which exist."""

    signal: Signal
    ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.int64]
    exists: npt.NDArray[np.bool_]


def lanes_of(flow: RecordedFlow) -> Sequence[str]:
    """Return the lanes that this way of recording knows of a flow."""
    if isinstance(flow, CapturedFlow):
        return ()
    return tuple(_SAMPLED if isinstance(flow, SampledFlow) else _LANES)


def lane(scope: ExportScope, flow: RecordedFlow, name: str) -> Iterator[LaneSpan]:
    """Yield the spans of a lane of `lanes_of` in the window, in order."""
    for _, span in lanes(scope, [flow], name):
        yield span


def lanes(
    scope: ExportScope, flows: Sequence[RecordedFlow], name: str
) -> Iterator[tuple[int, LaneSpan]]:
    """Yield the number of a flow and a span of its lane, by flow, in order; one query for all."""
    by_number = {flow.flow: flow for flow in flows}
    source = (_SAMPLED if isinstance(flows[0], SampledFlow) else _LANES)[name]
    query = (
        f"SELECT flow, ns, name, ended FROM ({source}) WHERE flow IN (SELECT unnest($flows))"
        " QUALIFY lag(name) OVER (PARTITION BY flow ORDER BY seq) IS DISTINCT FROM name"
        " ORDER BY flow, seq"
    )
    values = {"run": scope.run, "run_id": scope.run_id, "flows": list(by_number)}
    for number, some in groupby(_rows(scope, query, values), lambda row: row[0]):
        first, last = scope.span(by_number[number])
        before: tuple[int, str, str | None] | None = None
        for _, ns, held, ended in some:
            yield from ((number, span) for span in _span(before, ns, first, last))
            before = (ns, held, ended)
        yield from ((number, span) for span in _span(before, last, first, last))


def _span(
    begun: tuple[int, str | None, str | None] | None, end_ns: int, first: int, last: int
) -> Iterator[LaneSpan]:
    if begun is None or begun[1] is None:
        return
    start, end = max(begun[0], first), min(end_ns, last)
    if start <= end and begun[0] <= last and end_ns >= first:
        yield LaneSpan(begun[1], start, end, begun[2])


def panels_of(flow: RecordedFlow) -> tuple[Panel, ...]:
    """Return the charts whose signals are known of a flow."""
    if isinstance(flow, CapturedFlow):
        return CAPTURED_PANELS
    return SAMPLED_PANELS if isinstance(flow, SampledFlow) else FLOW_PANELS


def signal_values(
    scope: ExportScope, bins: Mapping[int, int], signals: Sequence[Signal]
) -> Iterator[tuple[int, SignalValues]]:
    """Yield a flow's number and signals of one source, some rows of each at a time, by flow.

    Args:
        bins: of each flow's number the length of its bins [ns], for what is counted in bins. 0
            stands for the run itself, whose signals are of the queue.
        signals: of one source, see sources.py.
    """
    source = signals[0].source
    query = (_EVENTS if source == "events" else SOURCES[source]).replace("$flow", "asked.flow")
    values = {"run_id": scope.run_id, "flows": list(bins), "bins": list(bins.values())}
    held = "CASE WHEN kind = 'init' THEN ns ELSE held_ns END" if source == "events" else "ns"
    first, last = scope.window or (0, (1 << 63) - 1)
    columns = ", ".join(signal.column for signal in signals)
    # What a source says of a flow is asked for each of them, in one query.
    chosen = (
        "SELECT asked.flow AS of_flow, of_one.* FROM"
        " (SELECT unnest($flows)::INTEGER AS flow, unnest($bins)::BIGINT AS bin_ns) asked,"
        f" LATERAL (SELECT ns::BIGINT AS ns, seq, ({held})::BIGINT AS held, {columns}"
        f" FROM ({query.replace('$bin_ns', 'asked.bin_ns')})) of_one"
        f" WHERE ns BETWEEN {first} AND {last} ORDER BY of_flow, seq"
    )
    # On a connection of its own: what the shared one was asked before may not be read to its end.
    with scope.con.cursor() as cursor:
        stream: pa.RecordBatchReader = cursor.sql(chosen, params=values).to_arrow_reader(_ROWS)
        for batch in stream:
            yield from _by_flow(batch, signals)


def _by_flow(
    batch: pa.RecordBatch, signals: Sequence[Signal]
) -> Iterator[tuple[int, SignalValues]]:
    numbers = batch.column("of_flow").to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for start, end in pairwise(starts):
        if start < end:
            for values in _signals_in(batch.slice(start, end - start), signals):
                yield int(numbers[start]), values


def _signals_in(batch: pa.RecordBatch, signals: Sequence[Signal]) -> Iterator[SignalValues]:
    names = batch.schema.names
    read = {name: batch.column(names.index(name)) for name in ("ns", "held")}
    times = {name: column.to_numpy(zero_copy_only=False) for name, column in read.items()}
    for signal in signals:
        column = batch.column(names.index(signal.key))
        exists = column.is_valid().to_numpy(zero_copy_only=False)
        filled = column.fill_null(0).to_numpy(zero_copy_only=False)
        yield SignalValues(signal, times["held" if signal.state else "ns"], filled, exists)


def _rows(
    scope: ExportScope, query: str, values: dict[str, Any]
) -> Iterator[tuple[int, int, str, str | None]]:
    records = scope.con.execute(query, values)
    while some := records.fetchmany(_ROWS):
        yield from some
