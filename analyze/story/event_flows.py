"""Flows of which kernel events were recorded: who they are, and how far they may be trusted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...collect.bundle.rungs import RUNGS, Rung
from ...collect.store.query import Row, listed, rows
from ..views.result_tables import LACKS_EVENTS
from .clock import run_zero
from .completeness import RunCompleteness, completeness_of

if TYPE_CHECKING:
    import duckdb

# A flow below this many ACKs carries no data worth telling, like iperf3's control connection.
TINY_ACKS = 50


@dataclass(frozen=True)
class StoredGap:
    """Where the recording lacks events of a flow.

    Attributes:
        seq: last event before it.
        start_ns, end_ns: times of the events around it, CLOCK_MONOTONIC.
        detail: what gives it away.
    """

    seq: int
    start_ns: int
    end_ns: int
    detail: str


@dataclass
class EventFlow:
    """A flow of kernel events, with what its story begins and ends with.

    Attributes:
        run_id, run, flow: which one.
        zero_ns: zero of the run's clock, CLOCK_MONOTONIC.
        version: v1, v2 or v3; decoded_as says why; hz: jiffies per second, 0: not known.
        summary: its row of flow_summary, with acks and notes of the table flows.
        gaps: where the recording lacks events.
        first_divergence: the first event in which the replay differs from the kernel; None: none.
        missing: fields that the recording lacks; None: none.
        rung: how it was recorded; completeness: what the run's recording lacks.
        left: what ingest noted of its socket having had another congestion control.
        binding: rows of binding_summary, see binding_of.
    """

    run_id: int
    run: str
    flow: int
    zero_ns: int
    version: str
    decoded_as: str
    hz: int
    summary: dict[str, Any]
    gaps: list[StoredGap]
    first_divergence: dict[str, Any] | None
    missing: str | None
    note: str | None
    rung: str | None
    completeness: RunCompleteness
    left: list[str] = field(default_factory=list)
    binding: list[dict[str, Any]] = field(default_factory=list)

    @property
    def first_ns(self) -> int:
        """Its first event, CLOCK_MONOTONIC."""
        return int(self.summary["first_ns"])

    @property
    def last_ns(self) -> int:
        """Its last event, CLOCK_MONOTONIC."""
        return int(self.summary["last_ns"])

    @property
    def hidden_ns(self) -> int:
        """How much of its time lies in gaps of the recording."""
        return sum(gap.end_ns - gap.start_ns for gap in self.gaps)

    @property
    def tiny(self) -> bool:
        """Too little data to have a story."""
        return bool((self.summary["delivered" if self.sampled else "main"] or 0) < TINY_ACKS)

    @property
    def sampled(self) -> Rung | None:
        """The rung, if it sees states but no decisions."""
        rung = RUNGS.get(self.rung or "")
        return rung if rung and not rung.replays else None


def without_decisions(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[int]:
    """Return those of these runs whose decisions are not in the store, in their order.

    Runs of a rung that reads no struct bbr have none to find, and are left out.
    """
    of_runs = f"WHERE run_id IN {listed(run_ids)}"
    query = f"""
WITH replayed AS (SELECT run_id, count(DISTINCT flow) AS n FROM replays {of_runs} GROUP BY run_id),
recorded AS (SELECT run_id, count(*) AS n FROM flows {of_runs} GROUP BY run_id),
decided AS (SELECT DISTINCT run_id FROM decisions {of_runs})
SELECT run_id FROM runs {of_runs} AND NOT coalesce(list_contains($rungs, rung), false) EXCEPT
SELECT run_id FROM decided JOIN recorded f USING (run_id) JOIN replayed p USING (run_id)
WHERE p.n = f.n"""
    nothing_to_find = [rung.name for rung in RUNGS.values() if not rung.replays]
    found = {run_id for (run_id,) in con.execute(query, {"rungs": nothing_to_find}).fetchall()}
    return [run_id for run_id in run_ids if run_id in found]


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[EventFlow]:
    """Return the run's flows, the one with the most ACKs first."""
    (run,) = rows(
        con,
        "SELECT run, version, decoded_as, hz, rung FROM runs WHERE run_id = ?",
        run_id,
    )
    summaries = rows(
        con,
        "SELECT s.*, f.main, f.note, f.retransmits, f.first_ns, f.last_ns, f.pre_init,"
        " p.first_divergence, p.missing"
        " FROM flow_summary s JOIN flows f USING (run_id, flow) LEFT JOIN replays p"
        " ON p.run_id = s.run_id AND p.flow = s.flow AND p.mode = 'step'"
        " WHERE s.run_id = ? ORDER BY f.main DESC, f.events DESC, s.flow",
        run_id,
    )
    zero_ns = run_zero(con, run_id) or 0
    complete = completeness_of(con, run_id)
    left = _left_bbr(con, run_id)
    return [
        _event_flow(con, run_id, run, zero_ns, summary, complete, left.get(summary["flow"], []))
        for summary in summaries
    ]


def _event_flow(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    run: Row,
    zero_ns: int,
    summary: Row,
    complete: RunCompleteness,
    left: list[str],
) -> EventFlow:
    divergence = summary.pop("first_divergence")
    return EventFlow(
        run_id,
        run["run"],
        summary["flow"],
        zero_ns,
        run["version"],
        run["decoded_as"] or "",
        int(run["hz"] or 0),
        summary,
        _stored_gaps(con, run_id, summary["flow"]),
        json.loads(divergence) if divergence else None,
        summary.pop("missing"),
        summary.pop("note"),
        run["rung"],
        complete,
        left,
    )


def _left_bbr(con: duckdb.DuckDBPyConnection, run_id: int) -> dict[int, list[str]]:
    """By flow, what ingest noted of its socket having had another congestion control."""
    noted = con.execute(
        "SELECT flow, list(detail ORDER BY kind) FROM capture_quality WHERE run_id = ?"
        " AND kind IN ('left_bbr', 'back_to_bbr') GROUP BY flow",
        [run_id],
    ).fetchall()
    return dict(noted)


def _stored_gaps(con: duckdb.DuckDBPyConnection, run_id: int, flow: int) -> list[StoredGap]:
    gaps = con.execute(
        "SELECT seq, ns, next_ns, kind || ': ' || detail FROM gaps WHERE run_id = ? AND flow = ?"
        f" AND {LACKS_EVENTS} ORDER BY seq",
        [run_id, flow],
    ).fetchall()
    return [StoredGap(*row) for row in gaps]


def binding_of(con: duckdb.DuckDBPyConnection, flow: EventFlow) -> list[dict[str, Any]]:
    """Return rows of binding_summary, the whole flow (phase ALL) first."""
    return rows(
        con,
        "SELECT phase, binding, duration_ns, share FROM binding_summary"
        " WHERE run = ? AND run_id = ? AND flow = ?"
        " ORDER BY phase <> 'ALL', phase, duration_ns DESC, binding",
        *(flow.run, flow.run_id, flow.flow),
    )
