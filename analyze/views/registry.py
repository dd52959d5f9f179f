"""Every table and view of a store: what `bbrscope schema` prints."""

from __future__ import annotations

from ...collect.store import schema
from ...collect.store.schema import Table
from . import result_tables
from .events import (
    binding_views,
    bound_views,
    decision_views,
    phase_views,
    round_views,
    state_views,
    step_views,
)
from .macros import MACROS, Macro
from .metrics import metric_slices
from .packets import bypass_views, captured_views, link_views, packet_views, transfer_views
from .runs import flow_views, run_views, rung_views, sampled_views, sender_views, sharing_views
from .view import View

RESULT_TABLES: tuple[Table, ...] = result_tables.TABLES
TABLES: tuple[Table, ...] = (*schema.TABLES, *RESULT_TABLES)

# In the order in which they are created: a view reads those before it.
VIEWS: tuple[View, ...] = (
    *rung_views.VIEWS,
    *sender_views.VIEWS,
    *packet_views.VIEWS,
    *state_views.VIEWS,
    *phase_views.VIEWS,
    *bound_views.VIEWS,
    *round_views.VIEWS,
    *flow_views.VIEWS,
    *decision_views.VIEWS,
    *binding_views.VIEWS,
    *step_views.VIEWS,
    *captured_views.VIEWS,
    *bypass_views.VIEWS,
    *link_views.VIEWS,
    *metric_slices.VIEWS,
    *sharing_views.VIEWS,
    *transfer_views.VIEWS,
    *run_views.VIEWS,
    *sampled_views.VIEWS,
)

__all__ = ["MACROS", "RESULT_TABLES", "TABLES", "VIEWS", "Macro", "has_runs", "relation"]


def relation(name: str) -> Table | View | None:
    """Return the table or view called `name`, or None."""
    known: tuple[Table | View, ...] = (*TABLES, *VIEWS)
    return next((item for item in known if item.name == name), None)


def has_runs(table: Table) -> bool:
    """Tell whether a table's rows belong to runs."""
    return any(column.name == "run_id" for column in table.columns)
