"""A run's summary as OpenMetrics 1.0: a snapshot for a CI's dashboards.

No label tells one connection from another, as each new value of a label is a new series to whoever
stores them; --flow asks for one flow's numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

from ...analyze.diagnosis.engine import diagnose
from ...analyze.story.completeness import simulated_of_many
from ...analyze.story.event_flows import EventFlow
from ...collect.store.query import Row, one, rows
from .export_scope import ExportScope
from .flow_lanes import LIMIT, PHASE, lane, lanes_of

# Bounds of a histogram's buckets: a phase lasts from a few round trips to many seconds.
BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_MBPS, _US = 1e6, 1e-6

Labels = tuple[tuple[str, str], ...]


@dataclass
class Family:
    """A metric with its samples, by suffix of the name (_total ...) and labels, in their order."""

    name: str
    kind: str
    unit: str
    about: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def add(self, labels: Labels, value: float, suffix: str = "") -> None:
        """Add `value` to the sample with these labels and suffix; it begins at 0."""
        self.samples[suffix, labels] = self.samples.get((suffix, labels), 0) + value

    def text(self) -> Iterator[str]:
        """Yield its lines of OpenMetrics text."""
        yield f"# TYPE {self.name} {self.kind}\n"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}\n"
        yield f"# HELP {self.name} {_escaped(self.about)}\n"
        for (suffix, labels), value in self.samples.items():
            pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            yield f"{self.name}{suffix}{{{pairs}}} {_number(value)}\n"


# Columns of metrics_by_run, and of metrics_by_flow if one flow was asked for, as metrics: what each
# is called, its unit, and the column's value in it. Those of type counter grow with the run.
_GAUGES = (
    ("goodput_bits_per_second", "", "goodput_mbps", _MBPS),
    ("utilisation_ratio", "ratio", "utilisation", 1.0),
    ("rtt_min_seconds", "seconds", "rtt_min_us", _US),
    ("rtt_mean_seconds", "seconds", "rtt_mean_us", _US),
    ("rtt_p99_seconds", "seconds", "rtt_p99_us", _US),
    ("queue_delay_mean_seconds", "seconds", "queue_delay_mean_us", _US),
    ("standing_queue_bytes", "bytes", "standing_queue_bytes", 1.0),
    ("jain_ratio", "ratio", "jain", 1.0),
    ("loss_ratio", "ratio", "loss_rate", 1.0),
)
_COUNTERS = (
    ("lost_packets", "packets", "lost_packets"),
    ("retransmitted_packets", "packets", "pkt_retransmissions"),
    ("queue_dropped_packets", "packets", "dropped_packets"),
)
_DECISIONS = """
SELECT about, name, count(*) FROM decision_log
WHERE run = ? AND run_id = ? AND flow = ? AND change AND ns BETWEEN ? AND ?
GROUP BY ALL ORDER BY ALL
"""


class Snapshot:
    """The families of some runs; a family's samples stand together, as the format wants it."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, scope: ExportScope) -> None:
        """Add a run's metrics."""
        labels: Labels = (("run", scope.run),)
        if scope.chosen:
            labels += (("flow", str(scope.flows[0].flow)),)
        self._about_run(scope, labels)
        if scope.window is None:
            self._columns(scope, labels)
            if not scope.chosen:
                self._findings(scope, labels)
        for flow in scope.flows:
            if PHASE in lanes_of(flow):
                for span in lane(scope, flow, PHASE):
                    phase = scope.translated(span.name)
                    seconds = (span.end_ns - span.start_ns) / 1e9
                    reason = span.ended or "end"
                    self._phase((*labels, ("phase", phase), ("reason", reason)), seconds)
            if isinstance(flow, EventFlow):
                self._of_events(scope, flow, labels)

    def write(self, file: IO[bytes]) -> int:
        """Write all families; return how many samples there are."""
        for family in self._families.values():
            file.write("".join(family.text()).encode("utf-8", "replace"))
        file.write(b"# EOF\n")
        return sum(len(family.samples) for family in self._families.values())

    def _family(self, name: str, kind: str, unit: str, about: str) -> Family:
        name = f"bbrscope_{name}"
        return self._families.setdefault(name, Family(name, kind, unit, about))

    def _about_run(self, scope: ExportScope, labels: Labels) -> None:
        run = one(
            scope.con, "SELECT version, kernel, rung FROM runs WHERE run_id = ?", scope.run_id
        )
        about = tuple((name, str(value)) for name, value in run.items() if value is not None)
        # Gauges: the text format of the textfile collector and the push gateway has no type info.
        family = self._family("run_info", "gauge", "", "What the run is.")
        family.add(labels + about, 1)
        for holds in simulated_of_many(scope.con, [scope.run_id]).values():
            meaning = "How far a simulation's numbers hold."
            family = self._family("simulated_info", "gauge", "", meaning)
            family.add((*labels, ("fidelity", holds)), 1)
        flows = self._family("flows", "gauge", "", "Flows that carry data.")
        flows.add(labels, len(scope.flows))

    def _columns(self, scope: ExportScope, labels: Labels) -> None:
        row = _metrics(scope)
        for name, unit, column, factor in _GAUGES:
            value = row.get(column)
            if isinstance(value, int | float):
                about = f"See column {column} of metrics_by_run and metrics_by_flow."
                family = self._family(name, "gauge", unit, about)
                family.add(labels, value * factor)
        for name, unit, column in _COUNTERS:
            value = row.get(column)
            if isinstance(value, int | float):
                about = f"See column {column} of metrics_by_run and metrics_by_flow."
                family = self._family(name, "counter", unit, about)
                family.add(labels, value, "_total")

    def _findings(self, scope: ExportScope, labels: Labels) -> None:
        family = self._family("findings", "gauge", "", "Findings of bbrscope diagnose.")
        if any(isinstance(flow, EventFlow) for flow in scope.flows):
            for finding in diagnose(scope.con, scope.run_id).findings:
                about = (("finding", finding.rule.name), ("severity", finding.severity))
                family.add(labels + about, 1)

    def _of_events(self, scope: ExportScope, flow: EventFlow, labels: Labels) -> None:
        limits = self._family(
            "limited_seconds", "counter", "seconds", "Time by what limited sending, see binding."
        )
        for span in lane(scope, flow, LIMIT):
            limit = (("limit", scope.translated(span.name)),)
            limits.add(labels + limit, (span.end_ns - span.start_ns) / 1e9, "_total")
        taken = self._family("decisions", "counter", "", "Decisions that changed something.")
        first, last = scope.span(flow)
        values = [flow.run, flow.run_id, flow.flow, max(first, 0), max(last, 0)]
        for about, name, count in scope.con.execute(_DECISIONS, values).fetchall():
            decided = (("about", scope.translated(about)), ("decision", name))
            taken.add(labels + decided, count, "_total")
        replays = self._family(
            "replayed_events", "counter", "", "Events that the replay compared with the kernel."
        )
        for row in rows(
            scope.con,
            "SELECT mode::VARCHAR AS mode, events, exact FROM replays WHERE run_id = ? AND flow = ?"
            " ORDER BY mode",
            *(flow.run_id, flow.flow),
        ):
            for agrees, count in (("yes", row["exact"]), ("no", row["events"] - row["exact"])):
                outcome_labels = (("mode", str(row["mode"])), ("exact", agrees))
                replays.add(labels + outcome_labels, count, "_total")

    def _phase(self, labels: Labels, seconds: float) -> None:
        family = self._family(
            "phase_duration_seconds", "histogram", "seconds", "Phases by what ended them."
        )
        for bound in (*BUCKETS_S, float("inf")):
            le = (("le", "+Inf" if bound == float("inf") else repr(bound)),)
            family.add(labels + le, seconds <= bound, "_bucket")
        family.add(labels, 1, "_count")
        family.add(labels, seconds, "_sum")


def write(scopes: Sequence[ExportScope], file: IO[bytes]) -> int:
    """Write a snapshot of runs; return how many samples it has."""
    snapshot = Snapshot()
    for scope in scopes:
        snapshot.add(scope)
    return snapshot.write(file)


def _metrics(scope: ExportScope) -> Row:
    """The run in numbers; if one flow was asked for, that flow."""
    if scope.chosen:
        records = rows(
            scope.con,
            "SELECT * FROM metrics_by_flow WHERE run_id = ? AND flow = ?",
            *(scope.run_id, scope.flows[0].flow),
        )
    else:
        records = rows(scope.con, "SELECT * FROM metrics_by_run WHERE run_id = ?", scope.run_id)
    return records[0] if records else {}


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
