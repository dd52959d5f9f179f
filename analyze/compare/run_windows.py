"""Windows of runs: the part of each that is measured, between two times or in steady state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from ..views.metrics.metric_slices import windowed_sql
from ..views.packets.link_views import windowed_queue_sql, windowed_rates_sql
from .run_metrics import scoped

if TYPE_CHECKING:
    import duckdb

# A shorter window holds too little of a flow to call it steady.
LEAST_STEADY_S = 1.0


@dataclass(frozen=True)
class RunWindows:
    """From when until when each run is measured, in ns of CLOCK_MONOTONIC, by run_id."""

    ends: Mapping[int, tuple[int, int]]

    def table(self) -> str:
        """Return a common table expression ``chosen_windows``: run_id, from_ns, until_ns."""
        rows = ", ".join(f"({run}, {first}, {last})" for run, (first, last) in self.ends.items())
        types = "run_id, from_ns::BIGINT AS from_ns, until_ns::BIGINT AS until_ns"
        values = f"(VALUES {rows or '(NULL, NULL, NULL)'}) AS v(run_id, from_ns, until_ns)"
        return f"chosen_windows AS (SELECT {types} FROM {values})"

    def views(self) -> dict[str, str]:
        """Return by view the query over the windows that stands in place of the view's own."""
        windows = self.table()
        slices = ("flow", "second", "phase", "round")
        return {f"metrics_by_{by}": windowed_sql(by, windows) for by in slices} | {
            "queue_metrics": windowed_queue_sql(windows),
            "link_rates": windowed_rates_sql(windows),
        }


_ZEROS = "SELECT run_id, zero_ns FROM run_clocks"


def between(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], first_ns: int, last_ns: int
) -> RunWindows:
    """Return the same window for every run, from `first_ns` up to `last_ns` of its clock.

    Both are counted from the zero of the run's clock. A run without a sender gets no window.
    """
    zeros = con.execute(scoped(con, _ZEROS, run_ids)).fetchall()
    return RunWindows({run: (zero + first_ns, zero + last_ns) for run, zero in zeros})


# When each sender that counts had filled the pipe: it left STARTUP, and DRAIN after it, for the
# first time. One whose modes nothing tells (CUBIC, or packets only) had, as far as is known.
_STEADY = """
WITH begun AS (
  SELECT run_id, flow, min(start_ns)::BIGINT AS ns, count(*) AS known,
    min(start_ns) FILTER (phase NOT IN ('STARTUP', 'DRAIN'))::BIGINT AS settled_ns
  FROM phases GROUP BY run_id, flow
  UNION ALL
  SELECT run_id, flow, min(first_ns)::BIGINT, count(*),
    min(first_ns) FILTER (mode NOT IN ('STARTUP', 'DRAIN'))::BIGINT
  FROM sampled_modes GROUP BY run_id, flow
)
SELECT c.run_id, any_value(c.run), list(c.flow) FILTER (b.known > 0 AND b.settled_ns IS NULL),
  max(CASE WHEN b.known > 0 THEN b.settled_ns ELSE c.first_ns END), min(c.last_ns)
FROM senders c LEFT JOIN begun b ON b.run_id = c.run_id AND b.flow = c.flow
WHERE c.counts GROUP BY c.run_id
"""


def steady(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> RunWindows:
    """Return each run's steady state: every flow that counts is past its start, none has ended.

    That is from when the last of them left STARTUP and DRAIN, until the first of them ends.

    Raises:
        BbrscopeError: a run has none.
    """
    rows = con.execute(scoped(con, _STEADY, run_ids)).fetchall()
    ends = {}
    for run_id, run, starting, first_ns, last_ns in rows:
        if starting:
            fact = f"{run} has no steady state: flow {starting[0]} never left STARTUP and DRAIN"
            raise BbrscopeError(fact, "choose the window yourself: --between FROM TO")
        if last_ns - first_ns < LEAST_STEADY_S * 1e9:
            fact = (
                f"{run} has no steady state: its flows were past their start together for less "
                f"than {LEAST_STEADY_S:g} s"
            )
            raise BbrscopeError(fact, "choose the window yourself: --between FROM TO")
        ends[int(run_id)] = (int(first_ns), int(last_ns))
    return RunWindows(ends)
