"""Views that several parts of a report ask, worked out once and narrowed to a run or a flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ....analyze.views.materialize import materialized_tables
from ....analyze.views.registry import VIEWS
from ....collect.store.query import Row

if TYPE_CHECKING:
    import duckdb

# Each view, and what it is called narrowed to one flow.
_NARROWED = {"phases": "flow_phases", "binding": "flow_binding"}


@contextmanager
def run_views(con: duckdb.DuckDBPyConnection, run: Row) -> Iterator[None]:
    """Work out only once what a run's phases are and what limited it; a context manager.

    Temporary views stand in front of those of the same name: whoever asks them is answered by the
    rows that the store keeps of this run, or by a table, which holds this run alone.

    Args:
        con: a store that is open.
        run: its row of `runs`.
    """
    # A store that is only read may have temporary views of its own, see Store.
    before = _temporary_views(con)
    stored = materialized_tables(con, [run["run_id"]])
    try:
        _hold(con, run, stored)
        yield
    finally:
        _release(con, before, "VIEW" if stored else "TABLE")


def _temporary_views(con: duckdb.DuckDBPyConnection) -> set[str]:
    """The names of the temporary views that there are."""
    query = "SELECT view_name FROM duckdb_views() WHERE temporary"
    return {name for (name,) in con.execute(query).fetchall()}


def _hold(con: duckdb.DuckDBPyConnection, run: Row, stored: Mapping[str, str]) -> None:
    """Put this run's rows behind each view: those that the store keeps, or a table of them."""
    for view in _NARROWED:
        if stored:
            con.execute(
                f'CREATE OR REPLACE TEMP VIEW held_{view} AS FROM "{stored[view]}"'
                f" WHERE run_id = {int(run['run_id'])}"
            )
            continue
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE held_{view} AS FROM {view} WHERE run = ? AND run_id = ?",
            [run["run"], run["run_id"]],
        )
    for view in _NARROWED:
        con.execute(f"CREATE OR REPLACE TEMP VIEW {view} AS FROM held_{view}")


def _release(con: duckdb.DuckDBPyConnection, before: set[str], held: str) -> None:
    """Drop the tables or views (`held`), and bring the temporary views back that were there."""
    for known in VIEWS:
        if known.name in _NARROWED and known.name in before:
            con.execute(known.ddl(temporary=True))
        elif known.name in _NARROWED:
            con.execute(f"DROP VIEW IF EXISTS temp.{known.name}")
    for name, of_flow in _NARROWED.items():
        con.execute(f"DROP VIEW IF EXISTS temp.{of_flow}")
        con.execute(f"DROP {held} IF EXISTS temp.held_{name}")


def narrow_views(con: duckdb.DuckDBPyConnection, flow: int) -> None:
    """Let the views flow_phases and flow_binding show this flow; only inside ``with run_views``."""
    for view, of_flow in _NARROWED.items():
        con.execute(
            f"CREATE OR REPLACE TEMP VIEW {of_flow} AS FROM held_{view} WHERE flow = {flow}"
        )
