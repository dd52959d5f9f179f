"""Triggers of the flight recorder that need the estimator, or SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from ...collect.flight.triggers import (
    OF_DECISIONS,
    OF_EVENTS,
    Happened,
    LiveBatch,
    Watcher,
    needs_rung,
)
from ...probes.base.errors import BbrscopeError
from ..bbr.codes import BY_NAME, CODES
from .follower import Follower
from .live_events import LiveEvent
from .live_replay import RECORDED

SQL = re.compile(r"sql:(.+)", re.DOTALL)
NO_EVENT = -1
TABLE = "batch_of_events"


class Decision:
    """A code of the decision vocabulary: the estimator runs along and says when it is taken."""

    def __init__(self, name: str, follower: Follower) -> None:
        self.name = name
        self.number = BY_NAME[name].number
        self.follower = follower
        if follower.wanted is not None:
            follower.wanted.add(self.number)

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Have the estimator ready.

        Raises:
            HostError: the recording's rung shows no decisions.
        """
        needs_rung(self.name, manifest, OF_DECISIONS)
        self.follower.begin(manifest)

    def check(self, batch: LiveBatch) -> Happened | None:
        """Return the flow and the decision's sentence if the batch told that it was taken."""
        for decision in self.follower.take(batch).decisions:
            if decision.code == self.number:
                event = decision.event
                return Happened(f"{event.flow.name}: {decision.words}", event.ns)
        return None


class SqlCondition:
    """A condition of SQL that an event meets, by the columns of the table events.

    Raises:
        BbrscopeError: DuckDB does not understand it.
    """

    def __init__(self, condition: str, follower: Follower) -> None:
        self.condition = condition
        self.follower = follower
        self._columns = columns_in(condition)
        self._con = duckdb.connect(config={"enable_external_access": "false"})
        try:
            self._first([])
        except duckdb.Error as error:
            raise BbrscopeError(
                f"sql:{_unanswered(condition, error)}",
                "it is a condition over the columns of events: bbrscope schema events",
            ) from error

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Learn the recording's settings.

        Raises:
            HostError: the recording's rung shows no events.
        """
        needs_rung(f"sql:{self.condition}", manifest, OF_EVENTS)
        self.follower.begin(manifest)

    def check(self, batch: LiveBatch) -> Happened | None:
        """Say which event of the batch meets the condition, the first; None if none does.

        A condition that cannot be worked out of these values fires, too, and says so: silence
        would hide that it cannot, and the recording goes on.
        """
        events = self.follower.take(batch).events
        try:
            index = self._first(events) if events else NO_EVENT
        except duckdb.Error as error:
            return Happened(_unanswered(self.condition, error), events[0].ns)
        if index == NO_EVENT:
            return None
        event = events[index]
        why = f"{event.flow.name}: {self.condition} at a call of {event.kind}"
        return Happened(why, event.ns)

    def _first(self, events: list[LiveEvent]) -> int:
        """Index of the first event that meets the condition; -1: none does."""
        self._con.register(TABLE, table_of(events, self._columns))
        query = f"SELECT place FROM {TABLE} WHERE ({self.condition}) LIMIT 1"
        rows = self._con.execute(query).fetchall()
        return int(rows[0][0]) if rows else NO_EVENT


def _unanswered(condition: str, error: duckdb.Error) -> str:
    """That DuckDB cannot answer a condition, in its own words."""
    return f"{condition} is not understood: {str(error).splitlines()[0]}"


def columns_in(condition: str) -> tuple[str, ...]:
    """Those of RECORDED that a condition may read: making the others costs more than all else.

    >>> columns_in("tp_srtt_us/8 > 200000 AND kind = 'main'")
    ('tp_srtt_us',)
    """
    text = condition.lower()
    if "columns" in text or TABLE in text:  # they may mean all without a name
        return RECORDED
    return tuple(name for name in RECORDED if name in text)


def table_of(events: list[LiveEvent], names: Sequence[str]) -> pa.Table:
    """These columns of the table events, what every event has, and `place`, their index."""
    columns: dict[str, pa.Array] = {
        "place": pa.array(range(len(events)), pa.int64()),
        "flow": pa.array([event.flow.number for event in events], pa.int64()),
        "ns": pa.array([event.ns for event in events], pa.int64()),
        "kind": pa.array([event.kind for event in events], pa.string()),
    }
    for name in names:
        values = [event.values.get(name) for event in events]
        columns[name] = pa.array(values, _kind(values))
    return pa.table(columns)


def _kind(values: list[int | None]) -> pa.DataType:
    """int64 holds every value but a 64-bit "none" of all ones."""
    return pa.uint64() if any(value and value >= 1 << 63 for value in values) else pa.int64()


def of_analysis(text: str, follower: Follower) -> Watcher:
    """The watcher of a decision's code, or of a condition in SQL.

    Raises:
        BbrscopeError: there is no such trigger.
    """
    if match := SQL.fullmatch(text):
        return SqlCondition(match[1], follower)
    if text.upper() in BY_NAME:
        return Decision(text.upper(), follower)
    near = [name for name in (code.name for code in CODES.values()) if text.upper() in name]
    raise BbrscopeError(
        f"there is no trigger {text[:60]!r}",
        f"decisions with that in their name: {', '.join(near[:8])}"
        if near
        else "signal, rto, rate<5mbit/3s, losses>=100/1s, sql:CONDITION, or a decision's code"
        " (bbrscope schema --codes)",
    )
