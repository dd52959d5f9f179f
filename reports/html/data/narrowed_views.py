"""Views that several parts of a report ask, worked out once and narrowed to a run or a flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....analyze.views.registry import VIEWS
from ....collect.store.query import Row

if TYPE_CHECKING:
    import duckdb

# Each view, and what it is called narrowed to one flow.
_NARROWED = {"phases": "flow_phases", "binding": "flow_binding"}


@contextmanager
def run_views(con: duckdb.DuckDBPyConnection, run: Row) -> Iterator[None]:
    """Work out what a run's phases are and what limited it once, for as long as this lasts.

    Temporary views stand in front of those of the same name: whoever asks them is answered by a
    table, which holds this run alone.

    Args:
        con: a store that is open.
        run: its row of `runs`.
    """
    # A store that is only read may have temporary views of its own, see Store.
    before = {
        name
        for (name,) in con.execute(
            "SELECT view_name FROM duckdb_views() WHERE temporary"
        ).fetchall()
    }
    try:
        _hold(con, run)
        yield
    finally:
        _release(con, before)


def _hold(con: duckdb.DuckDBPyConnection, run: Row) -> None:
    """Put a table of this run behind each view."""
    for view in _NARROWED:
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE held_{view} AS FROM {view} WHERE run = ? AND run_id = ?",
            [run["run"], run["run_id"]],
        )
    for view in _NARROWED:
        con.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS FROM held_{view}")


def _release(con: duckdb.DuckDBPyConnection, before: set[str]) -> None:
    """Drop the tables, and bring the temporary views back that were there before."""
    for known in VIEWS:
        if known.name in _NARROWED and known.name in before:
            con.execute(known.ddl(temporary=True))
        elif known.name in _NARROWED:
            con.execute(f"DROP VIEW IF EXISTS temp.{known.name}")
    for name, of_flow in _NARROWED.items():
        con.execute(f"DROP VIEW IF EXISTS temp.{of_flow}")
        con.execute(f"DROP TABLE IF EXISTS temp.held_{name}")


def narrow_views(con: duckdb.DuckDBPyConnection, flow: int) -> None:
    """Let flow_phases and flow_binding be those of this flow, while `run_views`."""
    for view, of_flow in _NARROWED.items():
        con.execute(
            f"CREATE OR REPLACE TEMP VIEW {of_flow} AS FROM held_{view} WHERE flow = {flow}"
        )
