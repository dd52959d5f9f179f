"""What rules ask of what was missing to a flow's part of the link: what limited sending then.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

# What was missing in each second, divided among what limited sending in it, by how long each did.
# At the moment when an application has nothing more to send, all that it wrote is sent: until then
# nothing but the application made anything missing in that second. So other limits count from that
# moment on only (own_ns), and all time before it is the application's. Rows are in one order: their
# sums have the same last digits wherever they are worked out.
SHORT = """
WITH emptied AS (
  SELECT run_id, flow, second, max(ns + duration_ns) AS ns FROM these_binding
  WHERE binding = 'application' AND duration_ns > 0 GROUP BY ALL
), limits AS (
  SELECT run_id, b.flow, b.second, b.binding, min(b.ns) AS first_ns,
    max(b.ns + b.duration_ns) AS last_ns, sum(b.duration_ns) AS held_ns,
    coalesce(sum(b.duration_ns) FILTER (e.ns IS NULL OR b.ns >= e.ns), 0) AS own_ns
  FROM these_binding b LEFT JOIN emptied e USING (run_id, flow, second) GROUP BY ALL
)
SELECT l.run_id, l.flow, l.second, l.binding, l.first_ns, l.last_ns, l.held_ns / 1e9 AS held_s,
  s.short_bytes * CASE WHEN l.binding = 'application' THEN sum(l.held_ns) OVER w
    - sum(l.own_ns) OVER w ELSE l.own_ns END / nullif(sum(l.held_ns) OVER w, 0) AS short_bytes,
  s.senders
FROM limits l JOIN these_seconds s USING (run_id, flow, second)
WINDOW w AS (PARTITION BY l.run_id, l.flow, l.second)
ORDER BY l.run_id, l.flow, l.second, l.binding
"""
