"""What the queries of a study read of views, found for its runs alone.

A store holds the rows of materialized views for runs whose every such view was worked out. A study
asks for one or two of them: these are worked out for its runs, and the rest is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..compare.run_metrics import scoped
from ..views.materialize import MATERIALIZED_VIEWS, can_hold_rows, materialized_tables, narrowed
from ..views.registry import relation
from ..views.view import words_of

if TYPE_CHECKING:
    import duckdb

# Of metrics_by_flow, what `point_flows` has: each column more takes the time to find it.
FLOW_METRICS = (
    "run_id",
    "flow",
    "cwnd_packets",
    "inflight_packets",
    "rtt_mean_us",
    "rtt_min_us",
    "queue_delay_us",
    "loss_rate",
)


def find(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], queries: Sequence[str]) -> None:
    """Let these queries read the rows of runs, where the store does not hold them already.

    Each materialized view that they name becomes a temporary one of these runs alone. Lakes have
    their rows in files, and stores of another bbrscope views of their own: they stay as they are.
    """
    if not run_ids or not can_hold_rows(con) or materialized_tables(con, run_ids):
        return
    words = set().union(*map(words_of, queries))
    chosen = f"({', '.join(map(str, run_ids))})"
    found: dict[str, str] = {}
    for view in MATERIALIZED_VIEWS:
        if view.name in words:
            table = f"found_{view.name}"
            con.execute(
                f'CREATE OR REPLACE TEMP TABLE "{table}" AS {narrowed(view, chosen, found)}'
            )
            found[view.name] = table
    # Only now: what is narrowed reads the store's tables, not these views.
    for name, table in found.items():
        con.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS FROM "{table}"')


def find_flow_metrics(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Make flow_metrics, the kernel's metrics of flows whose events were recorded.

    The view that they come from takes a second to plan, so it is not asked for nothing.
    """
    view = relation("metrics_by_flow")
    assert view is not None
    columns = ", ".join(column.ddl() for column in view.columns if column.name in FLOW_METRICS)
    con.execute(f"CREATE OR REPLACE TEMP TABLE flow_metrics ({columns})")
    recorded = con.execute(
        "SELECT DISTINCT run_id FROM lab_flows WHERE flow IS NOT NULL AND list_contains(?, run_id)",
        [list(run_ids)],
    ).fetchall()
    if recorded:
        query = f"SELECT {', '.join(FLOW_METRICS)} FROM metrics_by_flow"
        found = scoped(con, query, [row[0] for row in recorded])
        con.execute(f"INSERT INTO flow_metrics BY NAME {found}")
