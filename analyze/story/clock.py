"""The run's clock, from which times are counted, and the flows that it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...collect.store.query import first_row
from ..views.materialize import narrowed
from ..views.runs.sender_views import RUN_CLOCKS, SENDERS

if TYPE_CHECKING:
    import duckdb


def flows_with_data(con: duckdb.DuckDBPyConnection, run_id: int) -> set[int]:
    """Return the flows that a run is about: senders of more than a control connection's bytes.

    Among them are those that the view `senders` calls too short to be compared (few ACKs).
    """
    query = (
        f"SELECT flow FROM ({narrowed(SENDERS, f'({int(run_id)})')})"
        " WHERE flow IS NOT NULL AND (counts OR why_not = 'few ACKs')"
    )
    return {int(flow) for (flow,) in con.execute(query).fetchall()}


def run_zero(con: duckdb.DuckDBPyConnection, run_id: int) -> int | None:
    """Return zero of the run's clock [ns, CLOCK_MONOTONIC], None: no sender.

    The view `run_clocks` is the one place that says which instant it is.
    """
    query = f"SELECT zero_ns FROM ({narrowed(RUN_CLOCKS, f'({int(run_id)})')})"
    row = first_row(con, query)
    return int(row[0]) if row and row[0] is not None else None
