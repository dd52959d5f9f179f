"""The run's clock: what times in stories, reports and findings are counted from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..views.materialize import narrowed
from ..views.sender_views import LEAST_SHARE, SENDERS

if TYPE_CHECKING:
    import duckdb


def carries_data(carried: int | None, most: int) -> bool:
    """Tell whether a flow that carried so much [bytes] counts, where the largest carried `most`.

    A flow that delivered less than `LEAST_SHARE` of the largest is not what the run is about
    (iperf3's control connection, a receiver's own acknowledgements).

    >>> carries_data(5_000, 1_000_000), carries_data(900_000, 1_000_000), carries_data(None, 0)
    (False, True, False)
    """
    return most > 0 and (carried or 0) >= LEAST_SHARE * most


def run_zero(con: duckdb.DuckDBPyConnection, run_id: int) -> int | None:
    """Return zero of the run's clock [ns, CLOCK_MONOTONIC], `zero_ns` of senders; None: no sender.

    The view is the one place that says which sender's start it is.
    """
    query = f"SELECT any_value(zero_ns) FROM ({narrowed(SENDERS, f'({int(run_id)})')})"
    zero_ns = con.execute(query).fetchall()[0][0]
    return None if zero_ns is None else int(zero_ns)
