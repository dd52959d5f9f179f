"""Runs as a Perfetto trace: a process per run, a group of tracks per flow.

A time in the trace is the time on the run's clock plus a lead, which is room for what came before
zero (the handshake). The lead is the same for all runs, so that their zeros lie one under another.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
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
from .flow_lanes import SignalValues, lane, lanes_of, panels_of, signal_values
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
SELECT seq, packet, coalesce(packet_ns, ns)::BIGINT AS ns, acked_sacked, losses, rtt_us, snd_una
FROM ack_timeline WHERE run = $run AND run_id = $run_id AND flow = $flow
  AND seq IN (SELECT unnest($seqs)) ORDER BY seq
"""
_LOSSES = """
SELECT ns::BIGINT, skb_seq, skb_end_seq, skb_gso_segs, repair_ns FROM repairs
WHERE run = $run AND run_id = $run_id AND flow = $flow AND ns BETWEEN $first AND $last ORDER BY ns
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
        for rank, flow in enumerate(scope.flows, 1):
            writer.flow(trace.group(run, _title(flow), rank), flow)
            advance(1)
        writer.counters(run, None, QUEUE)
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

    def flow(self, group: int, flow: RecordedFlow) -> None:
        """Write the tracks of a flow below `group`."""
        for name in lanes_of(flow):
            self._lane(self._track(group, name), flow, name)
        self._decisions(group, flow)
        for panel in panels_of(flow):
            self.counters(group, flow, panel)

    def _track(self, group: int, name: str) -> int:
        self.rank += 1
        return self.trace.track(group, name, self.rank)

    def _lane(self, track: int, flow: RecordedFlow, name: str) -> None:
        for span in lane(self.scope, flow, name):
            ended: dict[str, Argument] = {"ended_by": span.ended} if span.ended else {}
            start, end = span.start_ns + self.shift, span.end_ns + self.shift
            self.trace.slice(track, self.scope.translated(printable(span.name)), start, end, ended)

    def _decisions(self, group: int, flow: RecordedFlow) -> None:
        track = self._track(group, DECISIONS)
        seqs: dict[int, int] = {}
        for item in exported_changes(self.scope, flow):
            change = item.change
            ns = change.ns + self.shift
            self.trace.instant(
                track, item.what, ns, _arguments(item), self._arrow(flow, change.seq)
            )
            seqs[change.seq] = change.ns
        if isinstance(flow, EventFlow):
            self._acks(self._track(group, ACKS), flow, sorted(seqs))
            self._losses(self._track(group, LOSSES), flow, seqs)

    def _acks(self, track: int, flow: EventFlow, seqs: list[int]) -> None:
        for at in range(0, len(seqs), _AT_ONCE):
            values = {"run": flow.run, "run_id": flow.run_id, "flow": flow.flow}
            records = self.scope.con.execute(_ACKS, values | {"seqs": seqs[at : at + _AT_ONCE]})
            for seq, packet, ns, acked, losses, rtt_us, una in records.fetchall():
                arguments: dict[str, Argument] = {
                    "acked_sacked": acked or 0,
                    "losses": losses or 0,
                    "rtt_us": -1 if rtt_us is None else rtt_us,
                    "snd_una": una or 0,
                }
                if packet is not None:
                    arguments["packet"] = packet
                when = ns + self.shift
                self.trace.instant(track, f"ACK {una}", when, arguments, self._arrow(flow, seq))

    def _losses(self, track: int, flow: EventFlow, seqs: dict[int, int]) -> None:
        first, last = self.scope.span(flow)
        values = {"run": flow.run, "run_id": flow.run_id, "flow": flow.flow}
        decided = {ns: seq for seq, ns in seqs.items()}
        records = self.scope.con.execute(_LOSSES, values | {"first": first, "last": last})
        while some := records.fetchmany(_AT_ONCE):
            for ns, start, end, segments, repair in some:
                arguments: dict[str, Argument] = {
                    "skb_seq": start or 0,
                    "skb_end_seq": end or 0,
                    "packets": segments or 1,
                }
                if repair is not None:
                    arguments["sent_again_after_ns"] = repair
                arrow = self._arrow(flow, decided[ns]) if ns in decided else None
                self.trace.instant(track, "marked lost", ns + self.shift, arguments, arrow)

    def _arrow(self, flow: RecordedFlow, seq: int) -> int:
        """What binds an event's decisions to its ACK: a number of their own."""
        text = f"{self.number}/{flow.flow}/{seq}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def counters(self, group: int, flow: RecordedFlow | None, panel: Panel) -> None:
        """Write the signals of a chart, unless they happen at instants, as counters."""
        by_source: dict[str, list[Signal]] = defaultdict(list)
        for signal in panel.signals:
            if signal.shape in ("step", "line") and not signal.wraps:
                by_source[signal.source].append(signal)
        span = 1
        if flow is not None:
            first, last = self.scope.span(flow)
            span = max(last - first, 1)
        for signals in by_source.values():
            open_counters: dict[str, _Counter] = {}
            for values in signal_values(self.scope, flow, signals, bin_ns(span)):
                key = values.signal.key
                if key not in open_counters and values.exists.any():
                    open_counters[key] = self._counter(group, panel, values.signal)
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
