"""The estimator along a recording: every event predicted from the state before it, as it comes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from ..bbr import loops, params
from ..bbr.records import KINDS
from ..replay import run_params
from ..replay.passes import Array, run_pass
from ..replay.prepare import EVENT_COLUMNS, prepare
from ..story.sentences import sentence
from .live_events import GAIN, LiveEvent, LiveFlow

# What an event's values tell: EVENT_COLUMNS but for what every event has.
RECORDED = tuple(name for name in EVENT_COLUMNS if name not in ("seq", "line", "ns", "kind"))


@dataclass(frozen=True)
class LiveDecision:
    """A decision: the event at which it was taken, its code's number, and its evidence."""

    event: LiveEvent
    code: int
    evidence: tuple[int, ...]

    @property
    def words(self) -> str:
        """The decision as a sentence, see `sentences.sentence`."""
        values = self.event.values
        mss, cwnd = values.get("tp_mss_cache", 0), values.get("exit_snd_cwnd")
        return sentence(self.code, self.evidence, mss, left_cwnd=cwnd)


@dataclass
class _Pending:
    """Events of a flow: the last one that was replayed, if any, and those that were not.

    `told` is how many decisions are told already of the first that was not: up to a random draw.
    """

    number: int
    record: Array | None = None
    events: list[LiveEvent] = field(default_factory=list)
    done: int = 0
    told: int = 0
    begun: bool = False


class LiveReplay:
    """Replays flows step by step; `exact` and `compared` count events that agreed, and all.

    Args:
        version: "v1", "v2" or "v3".
        settings: the manifest of the recording at its start, for HZ and the kernel's settings.
        wanted: codes of the decisions that are told; None: all.
    """

    def __init__(
        self,
        version: str,
        columns: set[str],
        settings: Mapping[str, Any],
        wanted: Collection[int] | None = None,
    ) -> None:
        self.version = version
        patched = version == "v1" and "rs.tx_in_flight" in columns
        self.flavour = "v1-patched" if patched else version
        self.values = run_params.of_manifest(settings, self.flavour)
        self.exact = 0
        self.compared = 0
        self._wanted = None if wanted is None else np.array(sorted(wanted))
        # By socket, as a socket's next flow ends the one before; oldest last event first.
        self._flows: dict[str, _Pending] = {}
        self._waiting: dict[str, int] = {}

    def take(self, events: list[LiveEvent], before_ns: int = 0) -> list[LiveDecision]:
        """Take events in order; return what was decided at those that can be judged by now.

        The last event of a flow waits for the next, which shows the state after it, unless it was
        before `before_ns`; what hangs on a random draw waits even then.
        """
        decisions: list[LiveDecision] = []
        for event in events:
            decisions += self._add(event)
        for sk in dict.fromkeys(event.flow.sk for event in events):
            decisions += self._advance(self._flows[sk], False)
        for sk in list(takewhile(lambda sk: self._waiting[sk] < before_ns, self._waiting)):
            decisions += self._advance(self._flows[sk], True)
            del self._waiting[sk]
        return decisions

    def _add(self, event: LiveEvent) -> list[LiveDecision]:
        """Keep an event; return what was decided at the last one of the socket's flow before."""
        sk, decisions = event.flow.sk, list[LiveDecision]()
        pending = self._flows.get(sk)
        if pending is None or pending.number != event.flow.number:
            decisions = self._advance(pending, True) if pending else decisions
            pending = self._flows[sk] = _Pending(event.flow.number)
        before = pending.events[-1] if pending.events else None
        if before is not None and 0 <= before.seqno != event.seqno - 1:
            # Events are missing: begin anew.
            pending.events, pending.done, pending.told = [], 0, 0
        if not pending.begun:
            pending.begun = event.kind == "init" or event.values.get(GAIN, 0) > 0
        if pending.begun:  # else a callback before init, which may have written to struct bbr, too
            pending.events.append(event)
            self._waiting.pop(sk, None)
            self._waiting[sk] = event.ns
        return decisions

    def _advance(self, pending: _Pending, whole: bool) -> list[LiveDecision]:
        events = pending.events
        stop = len(events) if whole else len(events) - 1
        if stop <= pending.done:
            return []
        if pending.record is None:
            pending.record = self._record(events[0].flow)
        flow = prepare(columns_of(events), self.version, pending.record, 0)
        if flow.facts.pre_init:  # what came before init ran on a zeroed struct bbr
            pending.events, pending.done = events[flow.facts.pre_init :], 0
            return self._advance(pending, whole)
        done, _ = run_pass(flow, self.version, pending.record, "step", True, stop=stop)
        waits = int(whole and flow.last_draw_is_unknown)
        fresh = done.outcome[pending.done : stop - waits]
        self.compared += int((fresh != loops.NOT_COMPARED).sum())
        self.exact += int((fresh == loops.EXACT).sum())
        assert done.decisions is not None
        taken = done.decisions[done.decisions[:, 0] >= pending.done][pending.told :]
        pending.told = waits and int((done.decisions[:, 0] == stop - 1).sum())
        if self._wanted is not None:
            taken = taken[np.isin(taken[:, 1], self._wanted)]
        decisions = [LiveDecision(events[row[0]], row[1], tuple(row[2:])) for row in taken.tolist()]
        kept = max(stop - 1 - waits, 0)
        pending.events, pending.done = events[kept:], stop - waits - kept
        return decisions

    def _record(self, flow: LiveFlow) -> Array:
        """The flow's parameters."""
        values = run_params.with_recorded(self.values, flow.params)
        if flow.max_header:
            values["max_tcp_header"] = flow.max_header
        return params.make(values)


def columns_of(events: list[LiveEvent]) -> dict[str, Array]:
    """EVENT_COLUMNS of a flow's events as arrays, masked where nothing was recorded.

    Few events come at a time, of many flows: what costs is the number of arrays, masked ones most.
    """
    count = len(events)
    columns: dict[str, Array] = {
        "seq": np.arange(count),
        "line": np.zeros(count, np.int64),
        "ns": np.array([event.ns for event in events], np.int64),
        "kind": np.array([KINDS.index(event.kind) for event in events], np.int64),
    }
    nothing = np.ma.MaskedArray(np.zeros(count, np.int64), np.ones(count, bool))
    rows = [map(event.values.get, RECORDED) for event in events]
    for name, values in zip(RECORDED, zip(*rows, strict=True), strict=True):
        lacking = values.count(None)
        columns[name] = nothing if lacking == count else _array(values, lacking > 0)
    return columns


def _array(values: Sequence[int | None], is_masked: bool) -> Array:
    numbers = [value or 0 for value in values] if is_masked else values
    try:
        array: Array = np.array(numbers, np.int64)
    except OverflowError:  # a 64-bit "none" of all ones
        array = np.array(numbers, np.uint64)
    if not is_masked:
        return array
    return np.ma.MaskedArray(array, np.array([value is None for value in values]))
