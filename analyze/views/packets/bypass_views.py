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
  SELECT run_id, flow, seq, ns::BIGINT AS ns, growth32(tp_snd_nxt, tp_snd_una) AS flight,
    coalesce(growth32(tp_snd_una, lag(tp_snd_una) OVER (PARTITION BY run_id, flow ORDER BY seq)), 0)
      AS bytes
  FROM events WHERE tp_snd_una IS NOT NULL AND tp_snd_nxt IS NOT NULL
    AND run_id IN (SELECT run_id FROM queue_samples)
), places AS (
  SELECT run_id, flow, ns, lead(ns) OVER w AS next_ns,
    -- As DOUBLE in half the time: exact below 2**53, which is 9 PB.
    (sum(bytes::DOUBLE) OVER (w ROWS UNBOUNDED PRECEDING))::BIGINT AS acked,
    acked + coalesce(lead(bytes) OVER w + lead(flight) OVER w, flight) AS sent
  FROM progress WINDOW w AS (PARTITION BY run_id, flow ORDER BY seq)
), at_samples AS (
  SELECT DISTINCT c.run_id, c.ns, f.flow, f.flight FROM counters c JOIN (
    SELECT run_id, flow, arg_min(flight, seq) AS flight FROM progress GROUP BY ALL) f USING (run_id)
), moments AS (
  -- Before a flow's first event: what was in flight there.
  SELECT s.run_id, s.ns, s.flow, coalesce(p.acked, 0) AS acked, coalesce(p.sent, s.flight) AS sent
  FROM at_samples s ASOF LEFT JOIN (FROM places WHERE next_ns IS DISTINCT FROM ns) p
    ON p.run_id = s.run_id AND p.flow = s.flow AND s.ns >= p.ns
), ways AS (
  SELECT run_id, flow, concat(local_address, ' ', remote_address) AS way FROM flows
), summed AS (
  -- All that went one way, and then all that went any way ('').
  SELECT run_id, ns, way, sum(acked) AS acked, sum(sent) AS sent
  FROM moments JOIN ways USING (run_id, flow) GROUP BY run_id, ns, way
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
