"""Read the events of flows out of the store, some flows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...collect.store.schema.recorded_tables import SAMPLE
from ..bbr.records import KINDS, Array
from .prepare import EVENT_COLUMNS

if TYPE_CHECKING:
    import duckdb

# Reading has to look through some hundred thousand rows, whether it takes one flow of them or many.
# So many events read at once take some 25 MB.
EVENTS_AT_ONCE = 20_000

_KIND = "CASE kind::VARCHAR " + " ".join(
    f"WHEN '{name}' THEN {number}" for number, name in enumerate(KINDS)
)
_CHOSEN = ", ".join(f'"{name}"' for name in EVENT_COLUMNS if name != "kind")
_EVENTS = (
    f"SELECT flow, {_KIND} END::BIGINT AS kind, {_CHOSEN} FROM events"
    " WHERE run_id = ? AND flow BETWEEN ? AND ? AND kind <> ? ORDER BY flow, seq"
)
_GROUPS = f"""
SELECT list(flow ORDER BY flow) FROM (
  SELECT flow, sum(events) OVER (ORDER BY flow) // {EVENTS_AT_ONCE} AS part FROM (
    SELECT flow, count(*) AS events FROM events WHERE run_id = ? AND kind <> ? GROUP BY flow
  )
) GROUP BY part ORDER BY part"""


def flow_groups(con: duckdb.DuckDBPyConnection, run_id: int) -> list[tuple[int, ...]]:
    """The run's flows with events in order, in groups that are read at once."""
    return [tuple(flows) for (flows,) in con.execute(_GROUPS, [run_id, SAMPLE]).fetchall()]


def load_flows(
    con: duckdb.DuckDBPyConnection, run_id: int, first: int, last: int
) -> Iterator[tuple[int, dict[str, Array]]]:
    """Yield each flow of `first` to `last` that has events, with its EVENT_COLUMNS.

    These are numpy arrays (masked where NULL), in the order of seq.
    """
    columns: dict[str, Any] = con.execute(_EVENTS, [run_id, first, last, SAMPLE]).fetchnumpy()
    of = np.asarray(columns.pop("flow"))
    flows, starts = np.unique(of, return_index=True)
    for flow, start, end in zip(flows, starts, [*starts[1:], len(of)], strict=True):
        yield int(flow), {name: column[start:end] for name, column in columns.items()}


def load_flow(con: duckdb.DuckDBPyConnection, run_id: int, flow: int) -> dict[str, Array]:
    """The same of one flow; empty arrays if it has no events."""
    columns: dict[str, Any] = con.execute(_EVENTS, [run_id, flow, flow, SAMPLE]).fetchnumpy()
    del columns["flow"]
    return columns
