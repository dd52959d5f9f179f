"""What a recording lacks, and what ingest noted of it: asked once, told the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...collect.store.query import rows

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class RunCompleteness:
    """What is known to be missing in a run, and what was odd when it was loaded.

    Attributes:
        gaps: places where events are missing; known once the run was replayed.
        lost: rows lost while recording.
        halves: events of which a part is missing, so that they were dropped.
        salvaged: it was read from a damaged file.
        noted: kinds of table capture_quality, each with how often it is there, most often first.
    """

    gaps: int = 0
    lost: int = 0
    halves: int = 0
    salvaged: bool = False
    noted: dict[str, int] = field(default_factory=dict)

    @property
    def lacks(self) -> bool:
        """Something is known to be missing."""
        return bool(self.gaps or self.lost or self.halves or self.salvaged)


def completeness_of(con: duckdb.DuckDBPyConnection, run_id: int) -> RunCompleteness:
    """Return what is known to be missing in a run."""
    ((gaps, lost, halves, salvaged),) = con.execute(
        "SELECT (SELECT count(*) FROM gaps WHERE run_id = $1),"
        " coalesce(greatest(lost_declared, lost_reported), 0)::BIGINT,"
        " coalesce(half_events, 0)::BIGINT, coalesce(salvaged, false) FROM runs WHERE run_id = $1",
        [run_id],
    ).fetchall()
    noted = rows(
        con,
        "SELECT kind, count(*) AS n FROM capture_quality WHERE run_id = ? GROUP BY kind"
        " ORDER BY n DESC, kind",
        run_id,
    )
    kinds = {row["kind"]: row["n"] for row in noted}
    return RunCompleteness(gaps, lost, halves, salvaged, kinds)
