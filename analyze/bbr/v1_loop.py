"""The replay loop of v1: every event of one flow, in step mode or in free run."""

from __future__ import annotations

from typing import Any

from ...collect.jit import jit
from . import loops
from .init import bbr_init
from .log import MAX_PER_EVENT
from .loops import DIFFERENT, EXACT, NOT_COMPARED, STEP
from .params import Params
from .records import INIT, Bbr, Log
from .v1 import dispatch


@jit
def run(
    mode: int,
    bbr: Bbr,
    vec: Any,
    states: Any,
    events: Any,
    start: int,
    result: Any,
    differences: Any,
    compared: Any,
    carry: Any,
    carry_rate: Any,
    saved: Any,
    entry: Any,
    watched: Any,
    history: Any,
    p: Params,
    log: Log,
) -> int:
    """Replay events[start:]; see analyze/replay.py for the arguments.

    Returns the index of the first event not replayed: len(events), or less if `log` is full.
    """
    for i in range(start, len(events)):
        mark = 0
        if log is not None:
            mark = log[0, 0]
            if mark + MAX_PER_EVENT >= len(log):
                return i
            log[0, 1] = i
        ev = events[i]
        ctl = ev.ctl
        row = i + 1
        if mode == STEP or ctl.resync:
            loops.load_state(states, i, compared, vec)
        loops.load_event(ev, mode, carry[0], carry_rate[0], log)
        if ctl.kind == INIT:
            row = i  # of init, the state after it is recorded
            bbr_init(bbr, ev.tp, loops.clear_for_init(bbr, vec), p, log)
            exact = loops.matches(vec, states, row, compared, ev)
        else:
            rate = loops.save_entry(ev, entry)
            if ctl.may_tick:
                loops.copy_state(vec, saved)
            dispatch(bbr, ev, p, log)
            exact = loops.matches(vec, states, row, compared, ev)
            attempt = 0
            while not exact and attempt < ctl.may_tick:
                loops.copy_state(saved, vec)
                loops.prepare_retry(ev, entry, attempt)
                ev.tp.sk_pacing_rate = rate
                if log is not None:
                    log[0, 0] = mark
                dispatch(bbr, ev, p, log)
                exact = loops.matches(vec, states, row, compared, ev)
                attempt += 1
        loops.note_undo(ev, log)
        if ctl.has_next == 0 and ctl.check == 0:
            result[i] = NOT_COMPARED
        elif exact:
            result[i] = EXACT
        else:
            result[i] = DIFFERENT
            loops.count_differences(vec, states, row, compared, ev, differences)
        loops.keep_history(vec, watched, history, i)
        carry[0] = ev.tp.snd_cwnd
        carry_rate[0] = ev.tp.sk_pacing_rate
    return len(events)
