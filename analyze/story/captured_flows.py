"""Runs of packets only (rung capture): what they show of each flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...collect.bundle.rungs import CAPTURE
from ...collect.store.query import Row, rows, rung_of
from .captured_stalls import stalls_by_flow
from .clock import run_zero
from .facts import CapturedStall, PacketTotals, StoryFacts

if TYPE_CHECKING:
    import duckdb

# A flow of which less was acknowledged has no story worth telling.
TINY_BYTES = 100_000


@dataclass(frozen=True)
class CapturedFlow:
    """A flow of which packets are known, with its row of metrics_by_flow, and its stalls."""

    run_id: int
    run: str
    flow: int
    zero_ns: int
    first_ns: int
    last_ns: int
    summary: Row
    stalls: tuple[CapturedStall, ...]

    @property
    def tiny(self) -> bool:
        """Tell whether it carried next to nothing."""
        return (self.summary["pkt_acked_bytes"] or self.summary["pkt_wire_bytes"] or 0) < TINY_BYTES


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[CapturedFlow] | None:
    """Return the flows of a run of packets only, the largest first; None: it has more than that."""
    if rung_of(con, run_id) != CAPTURE:
        return None
    summaries = rows(
        con,
        "SELECT m.*, f.first_ns AS begins_ns, f.last_ns AS ends_ns"
        " FROM metrics_by_flow m JOIN flows f USING (run_id, flow)"
        " WHERE m.run_id = ? AND flow IS NOT NULL"
        " ORDER BY coalesce(pkt_acked_bytes, pkt_wire_bytes) DESC, flow",
        run_id,
    )
    zero_ns = run_zero(con, run_id) or 0
    stalls = stalls_by_flow(con, run_id, summaries)
    return [
        CapturedFlow(
            run_id,
            row["run"],
            row["flow"],
            zero_ns,
            row.pop("begins_ns"),
            row.pop("ends_ns"),
            row,
            stalls.get(row["flow"], ()),
        )
        for row in summaries
    ]


def facts_of(flow: CapturedFlow) -> StoryFacts:
    """Return the facts of a captured flow: packets do not tell the sender's state."""
    return StoryFacts(None, totals_of(flow.summary), stalls=flow.stalls)


def totals_of(row: Row) -> PacketTotals:
    """Return what packets tell, from a row of metrics_by_flow."""
    rate, goodput = row["pkt_throughput_mbps"], row["pkt_goodput_mbps"]
    return PacketTotals(
        round(row["duration_s"] * 1e9),
        row["pkt_segments"] or 0,
        None if rate is None else rate * 1e6,
        row["pkt_acked_bytes"],
        None if goodput is None else goodput * 1e6,
        row["pkt_retransmissions"] or 0,
        row["pkt_retransmission_rate"] or 0,
        row["pkt_reordered"] or 0,
        row["pkt_rtt_p50_us"],
        row["pkt_rtt_min_us"],
        row["pkt_rtt_p99_us"],
        row["pkt_ce_rate"],
    )
