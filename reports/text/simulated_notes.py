"""What is said beside the numbers of simulated runs: how far they hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...analyze.story.completeness import simulated_of_many
from .print_table import printable
from .quantities import plural
from .screen import say

if TYPE_CHECKING:
    import duckdb

MOST_NOTES = 5


def say_simulated(con: duckdb.DuckDBPyConnection, run_ids: Iterable[int] | None = None) -> None:
    """Say on stderr which of the runs are simulated, and for which paths such numbers hold.

    Without `run_ids`: of all runs that the connection sees.
    """
    if run_ids is None:
        run_ids = [run_id for (run_id,) in con.execute("SELECT run_id FROM runs").fetchall()]
    runs_of: dict[str, int] = {}
    for holds in simulated_of_many(con, list(run_ids)).values():
        runs_of[holds] = runs_of.get(holds, 0) + 1
    for holds, runs in list(runs_of.items())[:MOST_NOTES]:
        say(f"{plural(runs, 'simulated run')}; fidelity: {printable(holds)}", err=True)
    if len(runs_of) > MOST_NOTES:
        more = plural(len(runs_of) - MOST_NOTES, "more kind")
        say(f"{more} of simulated runs: bbrscope explain RUN says how far each holds", err=True)
