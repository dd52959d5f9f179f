"""Times in which captured data waited for an acknowledgement that did not come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...collect.store.query import Row, rows
from .facts import CapturedStall, Span
from .losses import STALL_NS, STALL_RTTS

if TYPE_CHECKING:
    import duckdb

# Each turn begins with an ACK that acknowledges something new (the first one: with the flow) and
# holds what was sent until the next such ACK.
_SILENCES = f"""
WITH steps AS (
  SELECT stream, direction, packet, ns, NULL AS acked_to, position AS first_byte,
    position + len AS sent_to, sent_again
  FROM captured_segments WHERE run_id = $run_id AND len > 0
  UNION ALL
  SELECT stream, direction, packet, ns, position, NULL, NULL, false
  FROM captured_acks WHERE run_id = $run_id AND acked > 0
), turns AS (
  SELECT *, count(acked_to) OVER w AS turn, max(sent_to) OVER w AS highest,
    coalesce(max(acked_to) OVER w, min(first_byte) OVER w) AS reached
  FROM steps
  WINDOW w AS (PARTITION BY stream, direction ORDER BY packet ROWS UNBOUNDED PRECEDING)
), silences AS (
  SELECT stream, direction, turn, min(ns) FILTER (acked_to IS NOT NULL) AS ack_ns,
    coalesce(max(highest - reached) FILTER (acked_to IS NOT NULL), 0) > 0 AS left_out,
    min(ns) FILTER (sent_to IS NOT NULL) AS sent_ns, max(ns) AS last_ns,
    max(highest - reached) AS outstanding, count_if(sent_again) AS resent
  FROM turns GROUP BY ALL
), spans AS (
  SELECT *, CASE WHEN left_out THEN ack_ns ELSE sent_ns END AS start_ns,
    lead(ack_ns) OVER (PARTITION BY stream, direction ORDER BY turn) AS next_ns
  FROM silences
)
SELECT s.flow, p.start_ns, coalesce(p.next_ns, p.last_ns) AS end_ns, p.outstanding, p.resent,
  p.turn = 0 AS at_start
FROM spans p JOIN streams s ON s.run_id = $run_id AND s.stream = p.stream
  AND s.direction = p.direction
WHERE s.flow IS NOT NULL AND coalesce(p.next_ns, p.last_ns) - p.start_ns > {STALL_NS}
  -- At the end it was a stall, and not the end of the capture, if something was sent again.
  AND (p.next_ns IS NOT NULL OR p.resent > 0)
ORDER BY s.flow, p.start_ns
"""


def stalls_by_flow(
    con: duckdb.DuckDBPyConnection, run_id: int, flows: list[Row]
) -> dict[int, tuple[CapturedStall, ...]]:
    """Return the stalls of each flow that had some.

    Args:
        con: a store.
        run_id: a run of packets.
        flows: rows of metrics_by_flow; a stall is longer than some RTTs of its flow, if it is
            known.
    """
    rtts = {row["flow"]: row["pkt_rtt_p50_us"] or 0 for row in flows}
    stalls: dict[int, list[CapturedStall]] = {}
    for row in rows(con, _SILENCES, run_id=run_id):
        span = Span(row["start_ns"], row["end_ns"])
        if span.duration_ns > STALL_RTTS * rtts.get(row["flow"], 0) * 1000:
            stall = CapturedStall(span, row["outstanding"], row["resent"], row["at_start"])
            stalls.setdefault(row["flow"], []).append(stall)
    return {flow: tuple(found) for flow, found in stalls.items()}
