"""What a recording lacks, and what ingest noted of it: asked once, reported alike everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...collect.store.schema.recorded_tables import ROWS_LOST
from ..views.result_tables import LACKS_EVENTS

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class RunCompleteness:
    """What is known to be missing in a run, and what was odd when it was loaded.

    Attributes:
        gaps: places where events are missing; known once the run was replayed. Where the kernel
            cleared a flow's state (tcp_disconnect()) none is.
        lost: rows lost while recording.
        halves: events of which a part is missing, so that they were dropped.
        salvaged: it was read from a damaged file.
        noted: kinds of table capture_quality, each with how often it is there, most often first.
        simulated: of a simulated run, for which paths such simulations hold; empty: recorded.
        columns: what the replay needs and was not recorded.
    """

    gaps: int = 0
    lost: int = 0
    halves: int = 0
    salvaged: bool = False
    noted: dict[str, int] = field(default_factory=dict)
    simulated: str = ""
    columns: tuple[str, ...] = ()

    @property
    def no_main(self) -> bool:
        """Calls of BBR were recorded, but none of main()."""
        return "no_main" in self.noted

    @property
    def lacks(self) -> bool:
        """Something is known to be missing."""
        return bool(
            self.gaps or self.lost or self.halves or self.salvaged or self.columns or self.no_main
        )


def completeness_of(con: duckdb.DuckDBPyConnection, run_id: int) -> RunCompleteness:
    """Return what is known to be missing in a run."""
    return completeness_of_many(con, [run_id])[run_id]


def completeness_of_many(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]
) -> dict[int, RunCompleteness]:
    """Return what is known to be missing in each of several runs."""
    asked = {"runs": list(run_ids)}
    noted: dict[int, dict[str, int]] = {run_id: {} for run_id in run_ids}
    kinds = con.execute(
        "SELECT run_id, kind, count(*) AS n FROM capture_quality"
        " WHERE run_id IN (SELECT unnest($runs)) GROUP BY run_id, kind ORDER BY n DESC, kind",
        asked,
    )
    for run_id, kind, count in kinds.fetchall():
        noted[run_id][kind] = count
    simulated = simulated_of_many(con, run_ids)
    lacks = con.execute(
        "SELECT run_id, (SELECT count(*) FROM gaps WHERE gaps.run_id = runs.run_id"
        f" AND {LACKS_EVENTS}),"
        f" {ROWS_LOST},"
        " coalesce(half_events, 0)::BIGINT, coalesce(salvaged, false),"
        " (SELECT list_sort(list_distinct(flatten(list(string_split(missing, ', ')))))"
        "  FROM replays WHERE replays.run_id = runs.run_id AND missing <> '') FROM runs"
        " WHERE run_id IN (SELECT unnest($runs))",
        asked,
    )
    return {
        run_id: RunCompleteness(
            gaps,
            lost,
            halves,
            salvaged,
            noted[run_id],
            simulated.get(run_id, ""),
            tuple(columns or ()),
        )
        for run_id, gaps, lost, halves, salvaged, columns in lacks.fetchall()
    }


def simulated_of_many(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[int, str]:
    """Of the simulated ones among several runs: how far such simulations hold, by run_id."""
    # Kernels are in the table of runs; facts may be files of a lake, one for each run.
    made = con.execute(
        "SELECT run_id FROM runs WHERE run_id IN (SELECT unnest($runs))"
        " AND (starts_with(kernel, 'bbrscope simulation') OR starts_with(kernel, 'sim bbrscope'))",
        {"runs": list(run_ids)},
    ).fetchall()
    if not made:
        return {}
    rows = con.execute(
        "SELECT run_id, value FROM host_facts WHERE scope = 'simulated' AND name = 'holds'"
        " AND value IS NOT NULL AND run_id IN (SELECT unnest($runs)) ORDER BY run_id",
        {"runs": [run_id for (run_id,) in made]},
    )
    return dict(rows.fetchall())
