"""How a recording's flows began: when data followed init(), and whether iperf3's cookie was out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bbr.records import CA_EVENT_TX_START

if TYPE_CHECKING:
    import duckdb


def openings_of(con: duckdb.DuckDBPyConnection, run_id: int) -> dict[int, dict[str, Any]]:
    """Of each flow: `begins_us` and `cookie` of its FlowSetup; a flow without init() has none."""
    rows = con.execute(
        "SELECT flow, first(tp_packets_out ORDER BY seq) FILTER (kind = 'init') > 0, (first(ns"
        " ORDER BY seq) FILTER (kind = 'cwnd_event' AND event = ? AND seq > begun)::BIGINT -"
        " first(ns ORDER BY seq) FILTER (kind = 'init')::BIGINT) // 1000 FROM (SELECT *, min(seq)"
        " FILTER (kind = 'init') OVER (PARTITION BY flow) AS begun FROM events WHERE run_id = ?)"
        " GROUP BY flow",
        [CA_EVENT_TX_START, run_id],
    ).fetchall()
    return {
        flow: {"cookie": bool(is_out), "begins_us": max(int(after_us), 1)}
        for flow, is_out, after_us in rows
        if is_out is not None and after_us is not None
    }
