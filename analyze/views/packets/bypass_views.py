"""Which flows did not pass the queue that was sampled, by its counters and their own.

A queue is one device's, and has one direction: what the other end sends, and what takes another
way, is not in it. What was first sent after a moment, and is acknowledged by another, passed the
flow's bottleneck between the two. A queue that let less go in that time is not on the flow's way.
"""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import grown

# A policer holds no packets: what its qdisc counts, no queue let go.
POLICERS = "('clsact', 'ingress')"


def _denied(moments: str, whose: str) -> str:
    """SQL: of those that `whose` tells apart in `moments`, did more pass than was let go (`over`)?

    A shaper and the queue within it count the same: what any of them let go, passed.
    """
    return f"""
  SELECT {whose}, bool_and(over) AS over FROM (
    SELECT {whose}, kind, coalesce(bool_or(over), false) AS over FROM (
      SELECT {whose}, kind, acked - most > min(sent - least) OVER (
        PARTITION BY {whose}, kind ORDER BY ns) AS over
      FROM {moments} JOIN counters USING (run_id, ns))
    GROUP BY ALL)
  GROUP BY ALL"""


# acked and sent are stream positions: what is acknowledged by a sample, at the least, and what was
# sent by then, at the most. Counters are read a little before or after the time of their sample, so
# that those of the samples before and after are taken.
QUEUE_BYPASSES = View(
    "queue_bypasses",
    "Flows whose data did not pass the queue that was sampled, or of which that is not sure: they, "
    "or they and others, carried more in some time than the queue let go.",
    (
        RUN_ID,
        Column("flow", "INTEGER", "", "see flows"),
        Column("sure", "BOOLEAN", "", "its direction alone carried more; else, not without others"),
    ),
    f"""
WITH grew AS (
  SELECT run_id, kind, ns::BIGINT AS ns,
    coalesce({grown("sent_bytes", "lag(sent_bytes) OVER k")}, 0) AS bytes
  FROM queue_samples
  WHERE ns IS NOT NULL AND sent_bytes IS NOT NULL AND kind NOT IN {POLICERS}
    AND kind <> 'noqueue' -- it counts nothing (net/sched/sch_generic.c noqueue_qdisc_ops)
  WINDOW k AS (PARTITION BY run_id, kind ORDER BY ns)
), counted AS (
  SELECT run_id, kind, ns, sum(bytes) OVER (PARTITION BY run_id, kind ORDER BY ns) AS bytes
  FROM grew
), counters AS (
  SELECT run_id, kind, ns, lag(bytes) OVER k AS least, lead(bytes) OVER k AS most FROM counted
  WINDOW k AS (PARTITION BY run_id, kind ORDER BY ns)
), progress AS (
  SELECT run_id, flow, seq, ns::BIGINT AS ns, ns::BIGINT // 1000000000 AS second,
    growth32(tp_snd_nxt, tp_snd_una) AS flight,
    coalesce(growth32(tp_snd_una, lag(tp_snd_una) OVER (PARTITION BY run_id, flow ORDER BY seq)), 0)
      AS bytes
  FROM events WHERE tp_snd_una IS NOT NULL AND tp_snd_nxt IS NOT NULL
    AND run_id IN (SELECT run_id FROM queue_samples)
), moments AS (
  -- When a run's queue was sampled, in order, and a last moment after all of it.
  SELECT *, row_number() OVER w AS place, coalesce(lag(ns) OVER w, -1) AS before_ns FROM (
    SELECT DISTINCT run_id, ns FROM counters
    UNION ALL SELECT DISTINCT run_id, 9223372036854775807 FROM counters)
  WINDOW w AS (PARTITION BY run_id ORDER BY ns)
), nearest AS (
  SELECT run_id, ns // 1000000000 AS second, min(place) AS place FROM moments GROUP BY ALL
), seconds AS (
  SELECT s.run_id, s.second, unnest(generate_series(a.place, b.place)) AS place
  FROM (SELECT DISTINCT run_id, second, second + 1 AS next FROM progress) s
  ASOF JOIN nearest a ON a.run_id = s.run_id AND s.second <= a.second
  ASOF JOIN nearest b ON b.run_id = s.run_id AND least(s.next, 9223372036) <= b.second
), spans AS (
  SELECT s.run_id, s.second, s.place, m.before_ns, m.ns
  FROM seconds s JOIN moments m USING (run_id, place)
), grown AS (
  -- What each flow's events from one sample to the next say. A LEFT JOIN of the few samples around
  -- an event's second: an ASOF join, which sorts all events, takes three times as long.
  SELECT p.run_id, p.flow, s.place,
    sum(p.bytes::DOUBLE) AS bytes, -- exact below 2**53, which is 9 PB
    arg_min(p.bytes + p.flight, p.seq) AS first_out, arg_min(p.flight, p.seq) AS first_flight,
    arg_max(p.flight, p.seq) AS flight
  FROM progress p LEFT JOIN spans s ON s.run_id = p.run_id AND s.second = p.second
    AND p.ns > s.before_ns AND p.ns <= s.ns
  GROUP BY p.run_id, p.flow, s.place
), places AS (
  SELECT run_id, flow, place, (sum(bytes) OVER (w ROWS UNBOUNDED PRECEDING))::BIGINT AS acked,
    acked + coalesce(lead(first_out) OVER w, flight) AS sent
  FROM grown WINDOW w AS (PARTITION BY run_id, flow ORDER BY place)
), at_samples AS (
  SELECT c.run_id, c.ns, c.place, f.flow, f.flight
  FROM (SELECT m.* FROM moments m SEMI JOIN counters USING (run_id, ns)) c JOIN (
    SELECT run_id, flow, arg_min(first_flight, place) AS flight FROM grown GROUP BY ALL
  ) f USING (run_id)
), positions AS (
  -- Before a flow's first event: what was in flight there.
  SELECT s.run_id, s.ns, s.flow, coalesce(p.acked, 0) AS acked, coalesce(p.sent, s.flight) AS sent
  FROM at_samples s ASOF LEFT JOIN places p
    ON p.run_id = s.run_id AND p.flow = s.flow AND s.place >= p.place
), ways AS (
  SELECT run_id, flow, concat(local_address, ' ', remote_address) AS way FROM flows
), summed AS (
  -- All that went one way, and then all that went any way ('').
  SELECT run_id, ns, way, sum(acked) AS acked, sum(sent) AS sent
  FROM positions JOIN ways USING (run_id, flow) GROUP BY run_id, ns, way
), asked AS (
  FROM summed
  UNION ALL SELECT run_id, ns, '', sum(acked), sum(sent) FROM summed GROUP BY run_id, ns
), verdicts AS ({_denied("asked", "run_id, way")}
), remaining AS (
  -- What is left where some ways are out.
  SELECT s.run_id, s.ns, sum(s.acked) AS acked, sum(s.sent) AS sent
  FROM summed s JOIN verdicts v ON v.run_id = s.run_id AND v.way = s.way AND NOT v.over
  JOIN verdicts w ON w.run_id = s.run_id AND w.way = '' AND w.over
  GROUP BY s.run_id, s.ns
), doubtful AS ({_denied("remaining", "run_id")}
)
SELECT v.run_id, w.flow, v.over AS sure FROM verdicts v JOIN ways w USING (run_id, way)
WHERE v.over OR v.run_id IN (SELECT run_id FROM doubtful WHERE over)
""",
    materialized=True,
)

VIEWS = (QUEUE_BYPASSES,)
