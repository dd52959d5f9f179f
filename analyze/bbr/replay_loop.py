"""The replay loop: every event of one flow, in step mode or in free run, for any variant of BBR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...probes.base.jit import jit
from . import loops
from .log import MAX_PER_EVENT
from .loops import DIFFERENT, EXACT, NOT_COMPARED, STEP
from .params import Params
from .records import INIT, Array, Bbr, Event, Log, Socket

Init = Callable[[Bbr, Socket, int, Params, Log], None]
Dispatch = Callable[[Bbr, Event, Params, Log], None]


class Recorded(NamedTuple):
    """What the kernel did, n events of one flow.

    Attributes:
        events: EVENT [n]; callbacks write to them.
        states: int64 [n + 1, fields], the state before each event, and after the last one.
        compared: int64 [fields], -1 where the recording has the field, else 0.
    """

    events: Any
    states: Any
    compared: Any


class Memory(NamedTuple):
    """What a replay carries from one event to the next.

    Attributes:
        bbr: the record of struct bbr.
        vec: int64 [fields], the same memory as one number per field.
        saved: int64 [fields], the state before an event that may have to be tried again.
        carry: int64 [1], snd_cwnd as the last callback left it.
        carry_rate: uint64 [1], likewise sk_pacing_rate.
        entry: int64 [8], what a callback overwrites in its own inputs.
    """

    bbr: Bbr
    vec: Any
    saved: Any
    carry: Any
    carry_rate: Any
    entry: Any


class Results(NamedTuple):
    """What the loop writes down.

    Attributes:
        outcome: int8 [n], NOT_COMPARED, EXACT or DIFFERENT per event.
        differences: int64 [fields + outputs], how often each differed.
        differing: int64 [n, words], of events that are DIFFERENT the fields and outputs that differ
            whenever the clock ticked, BITS of them in each word.
        watched: int64 [k], indices of the state's fields to keep.
        history: int64 [n, k], these fields after each event.
    """

    outcome: Any
    differences: Any
    differing: Any
    watched: Any
    history: Any


Loop = Callable[[Recorded, Memory, Results, Params, Log, int, int], int]


def replay_loop(bbr_init: Init, dispatch: Dispatch) -> Loop:
    """The loop that runs one variant's callbacks, both of them `jit`.

    Args:
        bbr_init: what init() does; its third argument is tcp_min_rtt().
        dispatch: runs the callback that an event records, any but init().
    """

    @jit
    def call(bbr: Bbr, vec: Array, ev: Event, p: Params, log: Log) -> None:
        """Run the callback that an event records."""
        if ev.ctl.kind == INIT:
            bbr_init(bbr, ev.tp, loops.clear_for_init(bbr, vec), p, log)
        else:
            dispatch(bbr, ev, p, log)

    @jit
    def run(
        recorded: Recorded,
        memory: Memory,
        results: Results,
        p: Params,
        log: Log,
        mode: int,
        start: int,
    ) -> int:
        """Replay the events from `start` on, in STEP or FREE_RUN.

        Returns the index of the first event not replayed: their number, or less if `log` is full.
        """
        events, states, compared = recorded
        bbr, vec, saved, carry, carry_rate, entry = memory
        outcome, differences, differing, watched, history = results
        for i in range(start, len(events)):
            mark = 0
            if log is not None:
                mark = log[0, 0]
                if mark + MAX_PER_EVENT >= len(log):
                    return i
                log[0, 1] = i
            ev = events[i]
            ctl = ev.ctl
            row = i if ctl.kind == INIT else i + 1  # of init, the state after it is recorded
            if mode == STEP or ctl.resync:
                loops.load_state(states, i, compared, vec)
            loops.load_event(ev, mode, carry[0], carry_rate[0], log)
            rate = loops.save_entry(ev, entry)
            if ctl.may_tick:
                loops.copy_state(vec, saved)
            call(bbr, vec, ev, p, log)
            exact = loops.matches(vec, states, row, compared, ev)
            if not exact:
                loops.mark_differing(vec, states, row, compared, ev, differing, i)
            # At last none again: of an event that no tick explains, state and decisions are those
            # of a clock that stood still.
            attempt, tries = 0, loops.MOST_CLOCK_READS * ctl.may_tick + 1 if ctl.may_tick else 0
            while not exact and attempt < tries:
                loops.copy_state(saved, vec)
                loops.prepare_retry(ev, entry, attempt)
                ev.tp.sk_pacing_rate = rate
                if log is not None:
                    log[0, 0] = mark
                call(bbr, vec, ev, p, log)
                exact = loops.matches(vec, states, row, compared, ev)
                if not exact:
                    loops.mark_differing(vec, states, row, compared, ev, differing, i)
                attempt += 1
            loops.note_undo(ev, log)
            if ctl.has_next == 0 and ctl.check == 0:
                outcome[i] = NOT_COMPARED
            elif exact:
                outcome[i] = EXACT
            else:
                outcome[i] = DIFFERENT
                loops.count_differences(vec, states, row, compared, ev, differences)
            loops.keep_history(vec, watched, history, i)
            carry[0] = ev.tp.snd_cwnd
            carry_rate[0] = ev.tp.sk_pacing_rate
        return len(events)

    return run
