"""From the store's event rows to what the loops replay: states, inputs and how to treat each event.

Which columns go where follows from the table of fields (probes/fields.csv).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...probes.fields import EXIT_FIELDS, with_role
from ..bbr.records import (
    EVENT,
    INIT,
    RATE_SAMPLE_FIELDS,
    SKB_FIELDS,
    SOCKET_FIELDS,
    STATE_COLUMNS,
    Array,
)
from .flow_facts import FlowFacts, facts_of
from .flow_rows import Columns, part_of, rows_at_hand, with_exit, zero_filled
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
    """Successive events of one flow that can be replayed, n of them.

    Attributes:
        states: int64 [n + 1, fields]: the recorded state before each event (init: after it).
        events: EVENT [n]: inputs and controls.
        columns: the recorded columns of these events, by store name.
        compared: int64 [fields]: -1 where the recording has the field, else 0.
        facts: the flow as a whole.
        first: how many of the flow's replayed events come before these.
    """

    states: Array
    events: Array
    columns: Columns
    compared: Array
    facts: FlowFacts = field(default_factory=FlowFacts)
    first: int = 0

    @property
    def followed(self) -> int:
        """How many of these events are followed by another one."""
        n = len(self.events)
        return n if self.first + n < self.facts.count else n - 1

    @property
    def last_draw_is_unknown(self) -> bool:
        """The flow's last event drew at random, as replayed, and nothing recorded tells what."""
        last = self.events[max(self.followed, 0) :]
        return bool(((last["tp"]["draws"] > 0) & (last["ctl"]["has_next"] == 0)).any())

    def part(self, start: int, stop: int) -> FlowEvents:
        """Those from `start` to `stop`, sharing their memory."""
        if (start, stop) == (0, len(self.events)):
            return self
        return FlowEvents(
            self.states[start : stop + 1],
            self.events[start:stop],
            part_of(self.columns, slice(start, stop)),
            self.compared,
            self.facts,
            self.first + start,
        )


def prepare(columns: Columns, rules: str, params: Array, last_exit_ns: int) -> FlowEvents:
    """Build the arrays of a whole flow.

    Args:
        columns: EVENT_COLUMNS of the flow in `seq` order (masked where NULL); kind as integers.
        rules: "v1", "v2" or "v3", or a variant.
        params: the parameter record (analyze/bbr/params.py).
        last_exit_ns: last exit row of the run; 0 if the recording has none.
    """
    facts = facts_of(rows_at_hand(0, columns), last_exit_ns)
    return prepare_rows(part_of(columns, slice(facts.pre_init, None)), facts, 0, rules, params)


def prepare_rows(
    columns: Columns, facts: FlowFacts, first: int, rules: str, params: Array
) -> FlowEvents:
    """Build the arrays of successive events of a flow, the first of them number `first`.

    Those of the first one are right where it is the flow's first, those of the last two where
    these are the flow's last: what lies beyond is taken for the flow's end.
    """
    recorded = {name: zero_filled(column) for name, column in columns.items()}
    has_exit, kind = with_exit(columns), recorded["kind"]
    states = _states(columns, recorded, kind == INIT)
    events = _events(recorded)
    fill_controls(events, recorded, has_exit)
    if len(kind) and kind[-1] == INIT and not has_exit[-1]:
        events["ctl"]["has_next"][-1] = 0  # what it left, nobody saw
    fill_hidden_inputs(events, recorded, has_exit, states, rules, params)
    compared = np.array([-1 if name in facts.present else 0 for name in STATE_COLUMNS], np.int64)
    return FlowEvents(states, events, recorded, compared, facts, first)


def copy_of(events: Array) -> Array:
    """A copy of EVENT [n]: as bytes, for numpy copies records field by field, 20 times slower."""
    return events.view(np.uint8).copy().view(EVENT)


def _states(columns: Columns, recorded: Columns, is_init: Array) -> Array:
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


def _events(columns: Columns) -> Array:
    """The recorded inputs."""
    events = np.zeros(len(columns["kind"]), EVENT)
    for record, fields in _INPUTS.items():
        for one in fields:
            events[record][one.record_place[0]] = columns[one.column]
    return events
