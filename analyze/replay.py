"""Replay flows through the estimator, in step mode and in free run, and compare with the kernel."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from ..collect.jit import PLAIN
from .bbr import loops
from .bbr.log import COLUMNS, MAX_PER_EVENT
from .bbr.records import STATE
from .prepare import STATE_COLUMNS, FlowEvents

Array = np.ndarray[Any, Any]

MODES = ("step", "free-run")
_LOG_ROWS = 1 << 16

# Bits of the loops' result: the outcome, then how often the event drew random numbers.
_OUTCOME_MASK = 3

FIELD_NAMES = (*(name.removeprefix("bbr_") for name in STATE_COLUMNS), *loops.OUTPUTS)


@dataclass
class Pass:
    """One replay of one flow in one mode.

    Attributes:
        outcome: int8 [n], one of loops.NOT_COMPARED, EXACT, DIFFERENT per event.
        differences: int64 [fields + outputs], how often each differed.
        decisions: int64 [m, 6] rows of (event index, code, evidence), or None if not recorded.
        after: EVENT [n], the inputs with what the callbacks wrote: snd_cwnd, sk_pacing_rate ...
        history: int64 [n, k], the watched fields after each event.
    """

    mode: str
    outcome: Array
    differences: Array
    decisions: Array | None
    after: Array
    history: Array

    @property
    def compared(self) -> int:
        return int((self.outcome != loops.NOT_COMPARED).sum())

    @property
    def exact(self) -> int:
        return int((self.outcome == loops.EXACT).sum())

    def first_difference(self) -> int | None:
        """Index of the first event whose outcome differs from the kernel's."""
        found = np.flatnonzero(self.outcome == loops.DIFFERENT)
        return int(found[0]) if len(found) else None


@dataclass
class Machine:
    """The working memory of a replay: struct bbr, twice, and what carries over between events."""

    state: Array = field(default_factory=lambda: np.zeros(1, STATE))
    saved: Array = field(default_factory=lambda: np.zeros(len(STATE_COLUMNS), np.int64))
    carry: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    carry_rate: Array = field(default_factory=lambda: np.zeros(1, np.uint64))
    entry: Array = field(default_factory=lambda: np.zeros(8, np.int64))

    @property
    def vector(self) -> Array:
        """The state as one int64 per field, sharing its memory."""
        return self.state.view(np.int64)


def loop_of(version: str) -> Callable[..., int]:
    """The version's `run` loop; importing it compiles nothing yet."""
    module = importlib.import_module(f".bbr.{version}_loop", __package__)
    run: Callable[..., int] = module.run
    return run


def run_pass(
    flow: FlowEvents,
    version: str,
    params: Array,
    mode: str,
    decisions: bool,
    stop: int | None = None,
    timings: list[float] | None = None,
    watch: tuple[str, ...] = (),
) -> tuple[Pass, Machine]:
    """Replay one flow (up to event `stop`); the machine holds the state after the last event.

    The seconds spent in the loop alone are appended to `timings`; the state fields named in `watch`
    (as columns of events) are kept after every event.
    """
    n = len(flow.events) if stop is None else stop
    events = flow.events[:n].copy()  # callbacks write to their inputs
    outcome = np.zeros(n, np.int8)
    differences = np.zeros(len(FIELD_NAMES), np.int64)
    machine = Machine()
    log = np.zeros((_LOG_ROWS, COLUMNS), np.int64) if decisions else None
    watched = np.array([STATE_COLUMNS.index(name) for name in watch], np.int64)
    history = np.zeros((n if watch else 0, len(watch)), np.int64)
    noted: list[Array] = []
    run = loop_of(version)
    mode_number = MODES.index(mode)
    bbr, wrapped_events, record = _records(machine.state, events, params)
    start = 0
    while start < n:
        began = perf_counter()
        start = run(
            mode_number,
            bbr,
            machine.vector,
            flow.states,
            wrapped_events,
            start,
            outcome,
            differences,
            flow.compared,
            machine.carry,
            machine.carry_rate,
            machine.saved,
            machine.entry,
            watched,
            history,
            record,
            log,
        )
        if timings is not None:
            timings.append(perf_counter() - began)
        if log is not None:
            used = int(log[0, 0])
            noted.append(log[1 : used + 1].copy())
            log[0, 0] = 0
    flow.events["tp"]["draws"][:n] = events["tp"]["draws"]
    rows = None
    if decisions:
        rows = np.concatenate(noted) if noted else np.zeros((0, COLUMNS), np.int64)
    return Pass(mode, outcome, differences, rows, events, history), machine


def _records(state: Array, events: Array, params: Array) -> tuple[Any, Any, Any]:
    """What the loop gets: numba records, or Python objects of the same attributes."""
    if PLAIN:
        from .bbr.plain import Record, Records

        return Record(state, 0), Records(events), Record(params, 0)
    return state[0], events, params[0]


assert MAX_PER_EVENT < _LOG_ROWS
