"""Inputs that no BPF probe can read, settled from what the recording shows after each event.

Random draws are read off the state that they led to. A clock that ticked inside a callback is
marked, and the loop tries before which of its reads the tick fell.
"""

from __future__ import annotations

import numpy as np

from ..bbr.records import CWND_EVENT, INIT, MAIN, SET_STATE, STATE_COLUMNS, Array
from ..bbr.variants.own_variant import base_of, is_variant, own_variant

# A callback that was interrupted may last for many ticks; more are not tried.
_MOST_TICKS = 128
_U32 = 0xFFFFFFFF
# bbr_reset_probe_bw_mode() (v1) begins at one of CYCLE_LEN - 1 phases: get_random_u32_below(7).
_CYCLE_LEN = 8

# The fields that random draws are read off.
DRAWN = {
    "v1": ("bbr_cycle_idx",),
    "v2": ("bbr_rounds_since_probe", "bbr_probe_wait_us"),
    "v3": ("bbr_rounds_since_probe", "bbr_probe_wait_us"),
}


def fill_hidden_inputs(
    events: Array,
    columns: dict[str, Array],
    has_exit: Array,
    states: Array,
    rules: str,
    params: Array,
) -> None:
    """Fill clock and random draws of every event.

    Args:
        events: EVENT [n], their control records filled.
        columns: the recorded columns of these events; NULL is 0.
        has_exit: bool [n], the event's exit row was recorded.
        states: int64 [n + 1, fields], the recorded state before each event; the last is unknown.
        rules: "v1", "v2" or "v3", or a variant.
        params: the parameter record (analyze/bbr/params.py).
    """
    _mark_ticks(events, columns, has_exit)
    tp = events["tp"]
    after = states[1:]
    if base_of(rules) == "v1":
        draws = _v1_draws(after)
    else:
        draws = _v2_draws(after, tp["jiffies32"], params)
    for name, values in draws.items():
        tp[name][:-1] = values[:-1]  # nothing recorded after the last event
    if is_variant(rules) and (fill := own_variant(rules).fill_draws):
        fill(events, states)


def _mark_ticks(events: Array, columns: dict[str, Array], has_exit: Array) -> None:
    """By how much jiffies may have grown inside the callback: up to its exit, or else, where that
    is unknown, up to the next event."""
    kind, entry = events["ctl"]["kind"], events["tp"]["jiffies32"]
    recorded = columns["exit_jiffies32"].astype(np.int64)
    known = has_exit & (recorded != 0)
    late = np.where(known, recorded, (entry + 1) & _U32)
    events["tp"]["jiffies32_late"] = late
    reads_clock = np.isin(kind, (INIT, MAIN, CWND_EVENT, SET_STATE))
    grown = np.minimum((late - entry) & _U32, _MOST_TICKS)
    until_next = np.ones_like(grown)
    until_next[:-1] = np.minimum((entry[1:] - entry[:-1]) & _U32, _MOST_TICKS)
    # One tick, `late`, is tried first: of several, all are tried after it.
    unknown = until_next + (until_next > 1)
    events["ctl"]["may_tick"] = np.where(reads_clock, np.where(known, grown, unknown), 0)


def _v1_draws(after: Array) -> dict[str, Array]:
    """The phase that PROBE_BW began with."""
    return {"rand_cycle": (_CYCLE_LEN - _field(after, "bbr_cycle_idx")) & (_CYCLE_LEN - 1)}


def _v2_draws(after: Array, jiffies: Array, params: Array) -> dict[str, Array]:
    """v2, v3: rounds and time until the next probe, and (v3) the seconds that PLB pauses."""
    pause = int(params["plb_suspend_rto_sec"][0]) * int(params["HZ"][0])
    base_us = int(params["bw_probe_base_us"][0])
    return {
        "rand_rounds": _field(after, "bbr_rounds_since_probe"),
        "rand_wait_us": _field(after, "bbr_probe_wait_us") - base_us,
        "rand_pause": (_field(after, "bbr_plb_pause_until") - jiffies - pause) & _U32,
    }


def _field(states: Array, column: str) -> Array:
    values: Array = states[:, STATE_COLUMNS.index(column)]
    return values


def illegal_draws(events: Array, drew: Array, version: str, params: Array) -> Array:
    """Indices of events that drew a number no kernel could have drawn.

    There the replay drew where BBR did not. `drew` is bool [n]: the replay of the event drew.
    """
    tp = events["tp"]
    if version == "v1":
        return np.flatnonzero(drew & (tp["rand_cycle"] > _CYCLE_LEN - 2))
    illegal = _outside(tp["rand_rounds"], params["bw_probe_rand_rounds"])
    illegal |= _outside(tp["rand_wait_us"], params["bw_probe_rand_us"])
    if params["plb_enabled"][0]:
        illegal &= events["ctl"]["kind"] != SET_STATE  # there PLB draws its pause
    return np.flatnonzero(drew & illegal)


def _outside(draws: Array, below: Array) -> Array:
    """Where a draw is not in 0 ... below - 1; below 1 means that 0 is the only draw."""
    outside: Array = (draws < 0) | (draws >= max(int(below[0]), 1))
    return outside
