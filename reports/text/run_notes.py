"""What is said beside the numbers of runs: what a recording lacks, how far a simulation holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ...analyze.story.completeness import completeness_of_many, simulated_of_many
from ...collect.bundle.quality import ASIDE
from ...collect.store.schema.recorded_tables import ROWS_LOST
from ...probes.base.plurals import plural
from .findings.completeness_text import completeness
from .print_table import printable
from .screen import say

if TYPE_CHECKING:
    import duckdb

MOST_NOTES = 5
_LOSSY = (
    f"SELECT count(*) FROM runs WHERE {ROWS_LOST} > 0 OR coalesce(half_events, 0) > 0"
    " OR coalesce(salvaged, false)"
)


def say_notes(con: duckdb.DuckDBPyConnection, run_ids: Iterable[int] | None = None) -> None:
    """Say on stderr which of the runs are simulated, or lack something, and what that means.

    Without `run_ids`: of all runs that the connection sees, and of these how many lost rows.
    """
    if run_ids is not None:
        listed = list(dict.fromkeys(run_ids))
        notes = [*simulated(con, listed), *incomplete(con, listed)]
    else:
        notes = [*simulated(con), *_lossy(con)]
    for note in notes:
        say(note, err=True)


def incomplete(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[str]:
    """Return a line for each of the first runs that lack something, and one for the others."""
    known = completeness_of_many(con, run_ids)
    called = con.execute(
        "SELECT run_id, run, rung FROM runs WHERE run_id IN (SELECT unnest($runs)) ORDER BY run_id",
        {"runs": list(run_ids)},
    ).fetchall()
    notes = []
    for run_id, run, rung in called:
        _, sentence = completeness(known[run_id], rung)
        lacks = known[run_id].lacks or not ASIDE.issuperset(known[run_id].noted)
        if lacks and not known[run_id].simulated:
            notes.append(f"{printable(run)}: {sentence[0].lower()}{sentence[1:]}")
    if len(notes) > MOST_NOTES:
        more = plural(len(notes) - MOST_NOTES, "more run")
        notes[MOST_NOTES:] = [f"{more} with such notes: bbrscope explain RUN tells them"]
    return notes


def _lossy(con: duckdb.DuckDBPyConnection) -> list[str]:
    """A line if any run lost rows; its columns alone tell, for a lake may have thousands."""
    ((runs,),) = con.execute(_LOSSY).fetchall()
    return [f"{plural(runs, 'run')} lost rows: bbrscope explain RUN says what"] if runs else []


def simulated(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int] | None = None
) -> Iterator[str]:
    """Yield a line for each kind of simulated run: how far it holds. Without `run_ids`: of all."""
    if run_ids is None:
        run_ids = [run_id for (run_id,) in con.execute("SELECT run_id FROM runs").fetchall()]
    runs_of: dict[str, int] = {}
    for holds in simulated_of_many(con, run_ids).values():
        runs_of[holds] = runs_of.get(holds, 0) + 1
    for holds, runs in list(runs_of.items())[:MOST_NOTES]:
        yield f"{plural(runs, 'simulated run')}; fidelity: {printable(holds)}"
    if len(runs_of) > MOST_NOTES:
        more = plural(len(runs_of) - MOST_NOTES, "more kind")
        yield f"{more} of simulated runs: bbrscope explain RUN says how far each holds"
