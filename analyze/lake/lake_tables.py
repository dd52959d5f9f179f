"""What a lake has of a run: everything a store has, what was found, and its metrics."""

from __future__ import annotations

import hashlib
from functools import cache

from ...collect.lake.lake_manifest import LAKE_RUNS
from ...collect.store.schema import Column, Table
from ...collect.store.schema.recorded_tables import FLOW, RUN_ID
from ..views.materialize import materialized_name
from ..views.registry import MACROS, TABLES, VIEWS, has_runs
from ..views.view import View

FINDINGS = Table(
    "findings",
    "What `bbrscope diagnose` found in a run, the costliest first.",
    (
        RUN_ID,
        Column("rank", "INTEGER", "", "1: the costliest of the run"),
        Column("name", "VARCHAR", "", "the rule's, see bbrscope diagnose --list"),
        Column("title", "VARCHAR", "", "the trouble in a few words"),
        FLOW,
        Column("severity", "VARCHAR", "", "severe, moderate, minor or unknown"),
        Column("confidence", "VARCHAR", "", "high, medium or low"),
        Column("cost_s", "DOUBLE", "s", "time lost to it; NULL: unknown"),
        Column("cost_bytes", "DOUBLE", "bytes", "payload that could have been carried"),
        Column("t0_ns", "BIGINT", "ns", "CLOCK_MONOTONIC: where it begins"),
        Column("t1_ns", "BIGINT", "ns", "where it ends"),
        Column("numbers", "VARCHAR", "JSON", "what the rule computed"),
    ),
)
# How much time and payload each limit cost each flow, as diagnose lays it at their doors.
FLOW_LIMITS = Table(
    "flow_limits",
    "What limited a flow's sending: how long, and what was missing to the full rate meanwhile.",
    (
        RUN_ID,
        FLOW,
        Column("binding", "VARCHAR", "", "the limit, as in view binding"),
        Column("held_s", "DOUBLE", "s", "time for which it held"),
        Column("short_bytes", "DOUBLE", "bytes", "payload missing to the full rate meanwhile"),
    ),
)
OWN = (FINDINGS, FLOW_LIMITS)
# A fleet asks for these of every run; the other views are worked out of the rows when asked.
FILED_VIEWS: tuple[View, ...] = tuple(view for view in VIEWS if view.name == "metrics_by_flow")


FILED_VIEW_TABLES = tuple(
    Table(materialized_name(view), view.meaning, view.columns) for view in FILED_VIEWS
)
# The manifest has the rows of runs, and what describes the store or bbrscope is not of a run.
FILED = tuple(
    table
    for table in (*TABLES, *OWN, *FILED_VIEW_TABLES)
    if has_runs(table) and table.name != "runs"
)
SESSION_TABLES: tuple[Table, ...] = (LAKE_RUNS, *OWN)


@cache
def views_digest() -> str:
    """Return a SHA-256 digest of all macros and views, on which the materialized rows depend."""
    texts = [macro.ddl() for macro in MACROS] + [view.ddl() for view in VIEWS]
    texts += [table.name for table in FILED_VIEW_TABLES]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
