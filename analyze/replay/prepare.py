"""From the store's event rows to what the loops replay: states, inputs and how to treat each event.

Which columns go where follows from the table of fields (probes/fields.csv).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...probes.fields import EXIT_FIELDS, FIELDS, with_role
from ..bbr.records import (
    EVENT,
    INIT,
    MAIN,
    RATE_SAMPLE_FIELDS,
    SKB_FIELDS,
    SOCKET_FIELDS,
    STATE_COLUMNS,
    Array,
)
from ..bbr.variants.own_variant import base_of
from .hidden_inputs import fill_hidden_inputs
from .known_outputs import fill_controls

# Records of an event -> the fields that fill them.
_INPUTS = {"tp": SOCKET_FIELDS, "rs": RATE_SAMPLE_FIELDS, "skb": SKB_FIELDS}

# What a replay reads of the table of events.
EVENT_COLUMNS = (
    *("seq", "ns", "kind", "line"),
    *(one.column for one in with_role("input")),
    *STATE_COLUMNS,
    "exit_ns",
    *(one.exit_column for one in EXIT_FIELDS),
)


@dataclass
class FlowEvents:
    """The replayable part of one flow, n events from `first_seq` on.

    Attributes:
        states: int64 [n + 1, fields]: the recorded state before each event (init: after it).
        events: EVENT [n]: inputs and controls.
        columns: the recorded columns of these events, by store name.
        compared: int64 [fields]: -1 where the recording has the field, else 0.
        pre_init: events before init on a zeroed state, left out.
        tail: events from the moment on at which the probes began to detach: calls may be missing.
        missing: inputs or state fields that the recording lacks.
    """

    states: Array
    events: Array
    columns: dict[str, Array]
    compared: Array
    first_seq: int
    pre_init: int = 0
    tail: int = 0
    missing: list[str] = field(default_factory=list)


def prepare(columns: dict[str, Array], rules: str, params: Array, last_exit_ns: int) -> FlowEvents:
    """Build the arrays of one flow.

    Args:
        columns: EVENT_COLUMNS of the flow in `seq` order (masked where NULL); kind as integers.
        rules: "v1", "v2" or "v3", or a variant.
        params: the parameter record (analyze/bbr/params.py).
        last_exit_ns: last exit row of the run; 0 if the recording has none.
    """
    start = _first_replayed(columns["kind"])
    recorded = {name: _zero_filled(column)[start:] for name, column in columns.items()}
    present = {name for name, column in columns.items() if has_values(column)}
    has_exit = _with_exit(columns)[start:]
    kind, ns, seq = recorded["kind"], recorded["ns"], recorded["seq"]

    states = _states(
        {name: columns[name][start:] for name in STATE_COLUMNS}, recorded, kind == INIT
    )
    events = _events(recorded)
    fill_controls(events, recorded, has_exit)
    if len(kind) and kind[-1] == INIT and not has_exit[-1]:
        events["ctl"]["has_next"][-1] = 0  # what it left, nobody saw
    fill_hidden_inputs(events, recorded, has_exit, states, rules, params)
    return FlowEvents(
        states,
        events,
        recorded,
        compared=np.array([-1 if name in present else 0 for name in STATE_COLUMNS], np.int64),
        first_seq=int(seq[0]) if len(seq) else 0,
        pre_init=start,
        tail=_events_while_detaching(kind, has_exit, ns, last_exit_ns),
        missing=_missing(base_of(rules), present, bool((kind == MAIN).any())),
    )


def copy_of(events: Array) -> Array:
    """A copy of EVENT [n]: as bytes, for numpy copies records field by field, 20 times slower."""
    return events.view(np.uint8).copy().view(EVENT)


def _first_replayed(kind: Array) -> int:
    """Index of the first init; 0 if there is none."""
    inits = np.flatnonzero(_zero_filled(kind) == INIT)
    return int(inits[0]) if len(inits) else 0


def _with_exit(columns: dict[str, Array]) -> Array:
    """Events whose exit row has values: of init's two rows, the second alone has a time only."""
    outputs = [~np.ma.getmaskarray(columns[one.exit_column]) for one in EXIT_FIELDS]
    found: Array = ~np.ma.getmaskarray(columns["exit_ns"]) & np.any(outputs, axis=0)
    return found


def _zero_filled(column: Array) -> Array:
    """The values, with NULL as 0."""
    return column.filled(0) if isinstance(column, np.ma.MaskedArray) else np.asarray(column)


def has_values(column: Array) -> bool:
    """Whether there is any value but NULL."""
    if not isinstance(column, np.ma.MaskedArray):
        return True
    return bool((~np.ma.getmaskarray(column)).any())


def _states(columns: dict[str, Array], recorded: dict[str, Array], is_init: Array) -> Array:
    """The recorded states before each event, and a last row for what nobody recorded.

    Of init, the state after it: where its exit was not recorded, the next event found the same.
    `recorded` are the columns with NULL as 0.
    """
    n = len(is_init)
    inits = np.flatnonzero(is_init)
    states = np.zeros((n + 1, len(STATE_COLUMNS)), np.int64)
    for index, name in enumerate(STATE_COLUMNS):
        states[:n, index] = recorded[name]
        if len(inits):
            lacking = inits[np.ma.getmaskarray(columns[name])[inits]]
            states[lacking, index] = states[np.minimum(lacking + 1, n - 1), index]
    return states


def _events(columns: dict[str, Array]) -> Array:
    """The recorded inputs."""
    events = np.zeros(len(columns["kind"]), EVENT)
    for record, fields in _INPUTS.items():
        for one in fields:
            events[record][one.record_place[0]] = columns[one.column]
    return events


def _events_while_detaching(kind: Array, has_exit: Array, ns: Array, last_exit_ns: int) -> int:
    """Events since the probes began to detach, which starts with those on function exits."""
    without_exit = np.flatnonzero((kind == MAIN) & ~has_exit & (ns > last_exit_ns))
    return len(kind) - int(without_exit[0]) if last_exit_ns and len(without_exit) else 0


def _missing(version: str, present: set[str], has_main: bool) -> list[str]:
    """Columns without which this version cannot be replayed; inputs matter to main() only."""
    return [
        one.column
        for one in FIELDS.values()
        if version in one.required
        and one.column not in present
        and (has_main or "input" not in one.roles)
    ]
