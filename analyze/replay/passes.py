"""Replay flows through the estimator, in step mode and in free run, and compare with the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import Any

import numpy as np

from ..bbr import codes, loops
from ..bbr.log import COLUMNS, MAX_PER_EVENT
from ..bbr.plain import records
from ..bbr.records import INIT, STATE, STATE_COLUMNS
from ..bbr.replay_loop import Loop, Memory, Recorded, Results, replay_loop
from ..bbr.variants.own_variant import is_variant, own_variant
from ..bbr.versions import v1, v2, v3
from .prepare import FlowEvents, copy_of

Array = np.ndarray[Any, Any]

MODES = ("step", "free-run")
_LOG_ROWS = 1 << 16

FIELD_NAMES = (*(name.removeprefix("bbr_") for name in STATE_COLUMNS), *loops.OUTPUTS)


@dataclass
class Pass:
    """One replay of successive events of a flow in one mode.

    Attributes:
        outcome: int8 [n], one of loops.NOT_COMPARED, EXACT, DIFFERENT per event.
        differences: int64 [fields + outputs], how often each differed.
        differing: int64 [n, words], which differ of each event that is DIFFERENT; see `fields_of`.
        decisions: int64 [m, 6] rows of (event index, code, evidence), or None if not recorded.
        after: EVENT [n], the inputs with what the callbacks wrote: snd_cwnd, sk_pacing_rate ...
        history: int64 [n, k], the watched fields after each event.
    """

    mode: str
    outcome: Array
    differences: Array
    differing: Array
    decisions: Array | None
    after: Array
    history: Array

    @property
    def compared(self) -> int:
        """How many events were compared with the kernel."""
        return int((self.outcome != loops.NOT_COMPARED).sum())

    @property
    def exact(self) -> int:
        """How many events agreed with the kernel in everything that is recorded."""
        return int((self.outcome == loops.EXACT).sum())

    def fields_of(self, index: int) -> frozenset[str]:
        """Columns of struct bbr and outputs in which an event that is DIFFERENT differs."""
        word = self.differing[index].tolist()
        return frozenset(
            name
            for place, name in enumerate((*STATE_COLUMNS, *loops.OUTPUTS))
            if word[place // loops.BITS] >> place % loops.BITS & 1
        )

    def differ_in(self, index: int, columns: tuple[str, ...]) -> None:
        """Take an event that was EXACT for one that differs in these columns of struct bbr."""
        self.outcome[index] = loops.DIFFERENT
        self.differing[index] = 0
        for place in map(STATE_COLUMNS.index, columns):
            self.differing[index, place // loops.BITS] |= 1 << place % loops.BITS

    def first_difference(self) -> int | None:
        """Index of the first event whose outcome differs from the kernel's."""
        different = np.flatnonzero(self.outcome == loops.DIFFERENT)
        return int(different[0]) if len(different) else None


@dataclass
class Workspace:
    """The working memory of a replay: struct bbr, twice, and what carries over between events."""

    state: Array = field(default_factory=lambda: np.zeros(1, STATE))
    saved: Array = field(default_factory=lambda: np.zeros(len(STATE_COLUMNS), np.int64))
    carry: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    carry_rate: Array = field(default_factory=lambda: np.zeros(1, np.uint64))
    entry: Array = field(default_factory=lambda: np.zeros(8, np.int64))

    @property
    def vector(self) -> Array:
        """The recorded state as one int64 per field, sharing its memory."""
        return self.state.view(np.int64)[: len(STATE_COLUMNS)]

    def copy(self) -> Workspace:
        """A machine that goes on from the same place."""
        parts = (self.state, self.saved, self.carry, self.carry_rate, self.entry)
        return Workspace(*(part.copy() for part in parts))

    def memory(self) -> Memory:
        """The same as the replay loop takes it."""
        bbr = records(self.state)[0]
        return Memory(bbr, self.vector, self.saved, self.carry, self.carry_rate, self.entry)


@cache
def loop_of(rules: str) -> Loop:
    """The replay loop of a version, a variant or a user's file; its first call compiles it."""
    variant = own_variant(rules) if is_variant(rules) else {"v1": v1, "v2": v2, "v3": v3}[rules]
    return replay_loop(variant.bbr_init, variant.dispatch)


def run_pass(
    flow: FlowEvents,
    version: str,
    params: Array,
    mode: str,
    decisions: bool,
    stop: int | None = None,
    timings: list[float] | None = None,
    watch: tuple[str, ...] = (),
    machine: Workspace | None = None,
) -> tuple[Pass, Workspace]:
    """Replay events of a flow (up to event `stop`); return the state after the last one, too.

    `machine` is as it was left by those before, and goes on from there. The seconds spent in the
    loop alone are appended to `timings`; the state fields named in `watch` (as columns of events)
    are kept after every event.
    """
    n = len(flow.events) if stop is None else stop
    events = copy_of(flow.events[:n])  # callbacks write to their inputs
    machine = machine or Workspace()
    results = _empty_results(n, watch)
    recorded = Recorded(records(events), flow.states, flow.compared)
    log = np.zeros((_LOG_ROWS, COLUMNS), np.int64) if decisions else None
    call = _Call(loop_of(version), recorded, machine.memory(), results, records(params)[0], log)
    batches = list(call.batches(MODES.index(mode), timings))
    flow.events["tp"]["draws"][:n] = events["tp"]["draws"]
    rows = _without_unknown_draw(flow, np.concatenate(batches)) if decisions else None
    found = results.outcome, results.differences, results.differing
    result = Pass(mode, *found, rows, events, results.history)
    if mode == "step":
        _compare_what_init_left(flow, result)
    return result, machine


def _without_unknown_draw(flow: FlowEvents, decisions: Array) -> Array:
    """Leave out what hangs on a random draw of the flow's last event, which nothing tells.

    By the phase that v1 drew it paces, and bbr_quantization_budget() adds to the window: what it
    decided before, such as to leave PROBE_RTT, is known. How long PLB pauses decides nothing else.
    """
    if not flow.last_draw_is_unknown:
        return decisions
    of_last = decisions[:, 0] == len(flow.events) - 1
    by_phase = np.cumsum(of_last & (decisions[:, 1] == codes.PBW_ENTER_PHASE_RANDOM)) > 0
    pause = of_last & (decisions[:, 1] == codes.PLB_PAUSE_RTO)
    kept: Array = decisions[~(by_phase | pause)]
    return kept


def _compare_what_init_left(flow: FlowEvents, result: Pass) -> None:
    """What init() left is recorded at its exit, and compared there; a call that is missing between
    it and the next event shows in nothing but what that one found."""
    known = np.flatnonzero(flow.compared)
    followed = flow.events["ctl"]["kind"][: min(len(result.outcome), flow.followed)]
    for i in np.flatnonzero(followed == INIT):
        if result.outcome[i] != loops.EXACT or not flow.events["ctl"]["has_next"][i]:
            continue
        changed = known[flow.states[i, known] != flow.states[i + 1, known]]
        if len(changed):
            result.differ_in(int(i), tuple(STATE_COLUMNS[place] for place in changed))


def _empty_results(n: int, watch: tuple[str, ...]) -> Results:
    """What a loop over n events fills in."""
    return Results(
        outcome=np.zeros(n, np.int8),
        differences=np.zeros(len(FIELD_NAMES), np.int64),
        differing=np.full((n, -(-len(FIELD_NAMES) // loops.BITS)), -1, np.int64),
        watched=np.array([STATE_COLUMNS.index(name) for name in watch], np.int64),
        history=np.zeros((n if watch else 0, len(watch)), np.int64),
    )


@dataclass(frozen=True)
class _Call:
    """A loop and what it is called with."""

    loop: Loop
    recorded: Recorded
    memory: Memory
    results: Results
    params: Any
    log: Array | None

    def batches(self, mode: int, timings: list[float] | None) -> Iterator[Array]:
        """Run the loop to its end; yield the decisions each time that they fill their array."""
        yield np.zeros((0, COLUMNS), np.int64)
        start, end = 0, len(self.results.outcome)
        while True:  # once at least: a loop over no events is compiled all the same
            began = perf_counter()
            start = self.loop(
                self.recorded, self.memory, self.results, self.params, self.log, mode, start
            )
            if timings is not None:
                timings.append(perf_counter() - began)
            if self.log is not None:
                used = int(self.log[0, 0])
                yield self.log[1 : used + 1].copy()
                self.log[0, 0] = 0
            if start >= end:
                return


assert MAX_PER_EVENT < _LOG_ROWS
