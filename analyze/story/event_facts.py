"""The facts of a flow of kernel events, from its changes and from the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .changes import Change
from .event_flows import EventFlow
from .facts import (
    EventTotals,
    GapTotals,
    Limit,
    Span,
    StoryFacts,
    cuts_of,
    history_of,
    phases_of,
    probe_rtt_of,
    probing_of,
    startup_of,
)
from .losses import episodes_of, stalls_of
from .pauses import pauses_of

if TYPE_CHECKING:
    import duckdb


def facts_of(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, changes: Sequence[Change]
) -> StoryFacts:
    """Return the facts of a flow; `changes` is its whole story, nothing cut or folded."""
    phases = phases_of(changes, flow.last_ns)
    return StoryFacts(
        flow.version,
        _totals(flow),
        _gaps(flow),
        startup_of(phases),
        probing_of(phases),
        probe_rtt_of(phases),
        history_of("inflight_hi", changes),
        cuts_of("inflight_lo", changes),
        cuts_of("bw_lo", changes),
        episodes_of(con, flow, changes),
        stalls_of(con, flow, changes),
        tuple(change for change in changes if change.about == "mss"),
        tuple(change for change in changes if change.about == "max_pacing_rate"),
        limits_of(con, flow),
        pauses_of(con, flow),
    )


def _totals(flow: EventFlow) -> EventTotals:
    s = flow.summary
    return EventTotals(
        s["duration_ns"],
        bool(flow.gaps),
        s["delivered"],
        s["delivered_bytes"],
        _bits(s["throughput_mbps"]),
        _bits(s["max_bw_mbps"]),
        s["rtt_min_us"],
        s["srtt_mean_us"],
        s["srtt_p95_us"],
        s["lost"],
        s["retransmits"],
    )


def _bits(mbps: float | None) -> float | None:
    return None if mbps is None else mbps * 1e6


def _gaps(flow: EventFlow) -> GapTotals | None:
    if not flow.gaps:
        return None
    first = flow.gaps[0]
    return GapTotals(len(flow.gaps), flow.hidden_ns, Span(first.start_ns, first.end_ns))


def limits_of(con: duckdb.DuckDBPyConnection, flow: EventFlow) -> tuple[Limit, ...]:
    """Return what limited sending, by share of the time, the most first."""
    shares = con.execute(
        "SELECT binding, sum(duration_ns) / greatest(sum(sum(duration_ns)) OVER (), 1) AS share"
        " FROM binding WHERE run = ? AND run_id = ? AND flow = ? GROUP BY binding"
        " ORDER BY share DESC, binding",
        [flow.run, flow.run_id, flow.flow],
    ).fetchall()
    return tuple(Limit(binding, share) for binding, share in shares)
