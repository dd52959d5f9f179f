"""Runs as a Perfetto trace: a process per run, a group of tracks per flow.

A time in the trace is the time on the run's clock plus a lead, which is room for what came before
zero (the handshake). The lead is the same for all runs, so that their zeros lie one under another.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from ...analyze.story.changes import Change
from ...analyze.story.completeness import simulated_of_many
from ...analyze.story.event_flows import EventFlow
from ...analyze.story.flow_stories import RecordedFlow
from ..html.data.select import bin_ns
from ..html.panels.path_panels import QUEUE
from ..html.panels.signals import Panel, Signal
from ..text.print_table import printable
from .export_scope import ExportScope
from .exported_changes import ExportedChange, exported_changes
from .flow_lanes import LaneSpan, SignalValues, lanes, lanes_of, panels_of, signal_values
from .perfetto_trace import BYTES, COUNT, NANOSECONDS, NO_UNIT, Argument, PerfettoTrace

DECISIONS, LOSSES, ACKS = "decisions", "losses", "ACKs that decisions rest on"
# Added to the name of a counter whose value may be unset.
UNSET = " (0: unset)"
# So long before the run's zero its handshake may have begun.
LEAD_NS = 1_000_000_000
# What a step of a panel's unit is in whole numbers of which unit.
_WHOLE = {
    "Mbit/s": (1e6, NO_UNIT, "bit/s"),
    "ms": (1e6, NANOSECONDS, ""),
    "kB": (1e3, BYTES, ""),
    "packets": (1.0, COUNT, ""),
}
_AT_ONCE = 20_000

_ACKS = """
SELECT flow, seq, packet, coalesce(packet_ns, ns)::BIGINT AS ns, acked_sacked, losses, rtt_us,
  snd_una
FROM ack_timeline WHERE run = $run AND run_id = $run_id
  AND (flow, seq) IN (SELECT (unnest($flows), unnest($seqs))) ORDER BY flow, seq
"""
_LOSSES = """
SELECT flow, ns::BIGINT, skb_seq, skb_end_seq, skb_gso_segs, repair_ns FROM repairs
WHERE run = $run AND run_id = $run_id AND flow IN (SELECT unnest($flows)) ORDER BY flow, ns
"""


@dataclass
class _Counter:
    """A counter's track, how its steps become its unit, and its last value (None: none yet)."""

    track: int
    factor: float
    whole: bool
    last: int | None = field(default=None)


def write(scopes: Sequence[ExportScope], file: IO[bytes], advance: Callable[[int], None]) -> int:
    """Write a trace of runs; return how many packets of the trace format it has.

    `advance` is called with 1 when a flow is done.
    """
    trace = PerfettoTrace(file)
    lead = max([LEAD_NS, *(s.zero_ns - int(f.first_ns) for s in scopes for f in s.flows)])
    for number, scope in enumerate(scopes, 1):
        holds = simulated_of_many(scope.con, [scope.run_id]).get(scope.run_id)
        note = f" (simulated, fidelity: {holds})" if holds else ""
        run = trace.process(number, printable(scope.run + note))
        writer = _RunWriter(trace, scope, lead - scope.zero_ns, number)
        groups = {
            flow.flow: trace.group(run, _title(flow), rank)
            for rank, flow in enumerate(scope.flows, 1)
        }
        writer.flows(groups, advance)
        writer.counters({0: run}, {0: 1}, QUEUE)
    trace.finish()
    return trace.packets


def _title(flow: RecordedFlow) -> str:
    ends = [flow.summary.get(end) for end in ("local", "remote")]
    between = f" {ends[0]} -> {ends[1]}" if all(ends) else ""
    return printable(f"flow {flow.flow}{between}")


@dataclass
class _RunWriter:
    """Writes what there is of one run; `shift` is added to its times."""

    trace: PerfettoTrace
    scope: ExportScope
    shift: int
    number: int
    rank: int = 0

    def flows(self, groups: Mapping[int, int], advance: Callable[[int], None]) -> None:
        """Write the tracks of flows below the groups that they have by their numbers."""
        flows = self.scope.flows
        if not flows:
            return
        for name in lanes_of(flows[0]):
            tracks = self._tracks(groups, name)
            for number, span in lanes(self.scope, flows, name):
                self._slice(tracks[number], span)
        self._decisions(groups, advance)
        spans = {flow.flow: self.scope.span(flow) for flow in flows}
        bins = {number: bin_ns(max(last - first, 1)) for number, (first, last) in spans.items()}
        for panel in panels_of(flows[0]):
            self.counters(groups, bins, panel)

    def _tracks(self, groups: Mapping[int, int], name: str) -> dict[int, int]:
        """Add a track to each group; return them by flow."""
        self.rank += 1
        return {
            number: self.trace.track(group, name, self.rank) for number, group in groups.items()
        }

    def _slice(self, track: int, span: LaneSpan) -> None:
        ended: dict[str, Argument] = {"ended_by": span.ended} if span.ended else {}
        start, end = span.start_ns + self.shift, span.end_ns + self.shift
        self.trace.slice(track, self.scope.translated(printable(span.name)), start, end, ended)

    def _decisions(self, groups: Mapping[int, int], advance: Callable[[int], None]) -> None:
        """Write the decisions of each flow, and before them the ACKs and losses that they rest on.

        An ACK may have the time of its decisions: then the order in the file is that of an arrow.
        """
        tracks, of_events = (
            self._tracks(groups, DECISIONS),
            isinstance(self.scope.flows[0], EventFlow),
        )
        ack_tracks = self._tracks(groups, ACKS) if of_events else {}
        if of_events:
            self._losses(self._tracks(groups, LOSSES))
        some: list[tuple[int, ExportedChange]] = []

        def finish() -> None:
            decided = Counter((flow, item.change.seq) for flow, item in some)
            if of_events:
                self._acks(ack_tracks, decided)
            told = Counter[tuple[int, int]]()
            for flow, item in some:
                event = flow, item.change.seq
                arrows = [self._arrow("ack", *event, told[event])]
                if not told[event]:
                    arrows.append(self._arrow("loss", flow, item.change.ns))
                told[event] += 1
                when = item.change.ns + self.shift
                self.trace.instant(tracks[flow], item.what, when, _arguments(item), arrows)
            some.clear()

        for flow in self.scope.flows:
            for item in exported_changes(self.scope, flow):
                # Those of one event stay together.
                if len(some) >= _AT_ONCE and some[-1][1].change.seq != item.change.seq:
                    finish()
                some.append((flow.flow, item))
            advance(1)
        finish()

    def _acks(self, tracks: Mapping[int, int], decided: Mapping[tuple[int, int], int]) -> None:
        """Write the ACKs of events by flow and seq, with how many decisions they had."""
        if not decided:
            return
        flows, seqs = zip(*sorted(decided), strict=True)
        values = {"run": self.scope.run, "run_id": self.scope.run_id}
        found = self.scope.con.execute(_ACKS, {**values, "flows": flows, "seqs": seqs})
        for number, seq, packet, ns, acked, losses, rtt_us, una in found.fetchall():
            arguments: dict[str, Argument] = {
                "acked_sacked": acked or 0,
                "losses": losses or 0,
                "rtt_us": -1 if rtt_us is None else rtt_us,
                "snd_una": una or 0,
            }
            if packet is not None:
                arguments["packet"] = packet
            count = decided[number, seq]
            arrows = [self._arrow("ack", number, seq, one) for one in range(count)]
            when = ns + self.shift
            self.trace.instant(tracks[number], f"ACK {una}", when, arguments, arrows)

    def _losses(self, tracks: Mapping[int, int]) -> None:
        spans = {flow.flow: self.scope.span(flow) for flow in self.scope.flows}
        values = {"run": self.scope.run, "run_id": self.scope.run_id, "flows": list(spans)}
        records = self.scope.con.execute(_LOSSES, values)
        while some := records.fetchmany(_AT_ONCE):
            for number, ns, start, end, segments, repair in some:
                if not spans[number][0] <= ns <= spans[number][1]:
                    continue
                arguments: dict[str, Argument] = {
                    "skb_seq": start or 0,
                    "skb_end_seq": end or 0,
                    "packets": segments or 1,
                }
                if repair is not None:
                    arguments["sent_again_after_ns"] = repair
                arrow = self._arrow("loss", number, ns)
                when = ns + self.shift
                self.trace.instant(tracks[number], "marked lost", when, arguments, [arrow])

    def _arrow(self, cause: str, flow: int, *event: int) -> int:
        """What binds a cause to a decision: a number of their own."""
        text = "/".join(map(str, (self.number, cause, flow, *event))).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def counters(self, groups: Mapping[int, int], bins: Mapping[int, int], panel: Panel) -> None:
        """Write the signals of a chart, unless they happen at instants, as counters.

        Both say something of each flow by its number: its group, and how long its bins are [ns].
        """
        by_source: dict[str, list[Signal]] = defaultdict(list)
        for signal in panel.signals:
            if signal.shape in ("step", "line") and not signal.wraps:
                by_source[signal.source].append(signal)
        for signals in by_source.values():
            open_counters: dict[tuple[int, str], _Counter] = {}
            for number, values in signal_values(self.scope, bins, signals):
                key = (number, values.signal.key)
                if key not in open_counters and values.exists.any():
                    open_counters[key] = self._counter(groups[number], panel, values.signal)
                if key in open_counters:
                    self._count(open_counters[key], values)

    def _counter(self, group: int, panel: Panel, signal: Signal) -> _Counter:
        self.rank += 1
        steps, unit, unit_name = _WHOLE.get(panel.unit, (0.0, NO_UNIT, panel.unit))
        factor = steps * signal.scale
        whole = factor >= 1 and factor == round(factor)
        if not whole:
            factor, unit, unit_name = signal.scale, NO_UNIT, panel.unit
        name = self.scope.translated(signal.label)
        if signal.shape == "step" and signal.where != "true":
            name += UNSET
        return _Counter(self.trace.counter(group, name, unit, unit_name, self.rank), factor, whole)

    def _count(self, counter: _Counter, values: SignalValues) -> None:
        """Write where the value changes: nothing before there is one, and 0 while it is unset.

        A counter holds until its next value: without one, a bound that was lifted would still be
        shown.
        """
        # The queue was sampled long before the run began: a trace has no such time.
        chosen = values.ns + self.shift >= 0
        if values.signal.shape == "line":
            chosen &= values.exists
        elif counter.last is None:
            chosen &= np.logical_or.accumulate(values.exists)
        ns, data = values.ns[chosen], values.values[chosen]
        if not len(data):
            return
        changed = np.append(counter.last is None or data[0] != counter.last, data[1:] != data[:-1])
        counter.last = int(data[-1])
        times, changed_values = (ns[changed] + self.shift).tolist(), data[changed]
        if counter.whole:
            self.trace.counts(
                counter.track, times, (changed_values * round(counter.factor)).tolist()
            )
        else:
            self.trace.measures(counter.track, times, (changed_values * counter.factor).tolist())


def _arguments(item: ExportedChange) -> dict[str, Argument]:
    """The evidence by name, in the kernel's units, and the decision in words."""
    change: Change = item.change
    arguments: dict[str, Argument] = {"about": change.about, "why": item.why}
    if change.name is not None:
        arguments["decision"] = change.name
    if item.function:
        arguments["function"] = item.function
    if item.evidence:
        # Names of their own: Perfetto makes a dot in a name an underscore.
        arguments["evidence"] = item.evidence
    return arguments
