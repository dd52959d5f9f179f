"""The numbers that papers report, for chosen runs: views of the store narrowed to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..views.materialize import materialized_tables, narrowed_query
from ..views.runs.run_views import HOLD_S, TOLERANCE, WINDOW_S, convergence_sql
from ..views.runs_together import together

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from .run_windows import RunWindows

# What `table` can slice by, and the view that does.
BY = {
    "flow": "metrics_by_flow",
    "phase": "metrics_by_phase",
    "second": "metrics_by_second",
    "round": "metrics_by_round",
    "run": "metrics_by_run",
}


def scoped(
    con: duckdb.DuckDBPyConnection,
    query: str,
    run_ids: Sequence[int],
    windows: RunWindows | None = None,
) -> str:
    """Return a query that sees only some runs, so that views read no more than theirs.

    With `windows`, the views of metrics, of the queue and of the link cover these only.
    """
    chosen = ", ".join(str(int(run_id)) for run_id in run_ids) or "NULL"
    stored = materialized_tables(con, run_ids)
    return narrowed_query(query, f"({chosen})", stored, instead=windows.views() if windows else {})


def table(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    by: str,
    windows: RunWindows | None = None,
) -> pa.Table:
    """Return the metrics of runs by flow, phase, second, round or run, as Arrow.

    Columns and units are those of the views in `BY` (``bbrscope schema metrics_by_flow``); of the
    whole runs, or of a window of each. The rows of a run are in the view's order.
    """
    import pyarrow as pa

    return pa.concat_tables(
        con.sql(scoped(con, f"FROM {BY[by]}", some, windows)).to_arrow_table()
        for some in list(together(con, run_ids)) or [[]]
    )


def convergence(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    tolerance: float = TOLERANCE,
    window_s: int = WINDOW_S,
    hold_s: int = HOLD_S,
) -> dict[int, int | None]:
    """Return when each run's flows had converged, in s of the run's clock; None: not (yet).

    The first second T from which on, for `hold_s` seconds, every flow's goodput, as a mean over
    the next `window_s` seconds, is within `tolerance` of an equal share. Runs that are too short
    to tell, or have one flow, have not converged.
    """
    query = convergence_sql(tolerance, window_s, hold_s)
    rows = con.execute(scoped(con, query, run_ids)).fetchall()
    return {**dict.fromkeys(run_ids), **dict(rows)}
