"""What rules ask of a flow's course: its phases, what limited sending, and what it decided.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

from .event_tables import SECOND

PHASES = """
SELECT p.run_id, p.flow, p.phase, p.start_ns::BIGINT AS start_ns, p.end_ns::BIGINT AS end_ns,
  p.duration_ns / 1e9 AS duration_s, p.end_name, p.seq, p.seq + p.events AS end_seq
FROM phases p SEMI JOIN these_chosen USING (run_id, flow) ORDER BY p.run_id, p.flow, p.seq
"""

BINDING = f"""
SELECT run_id, flow, seq, ns::BIGINT AS ns, {SECOND.format("ns")} AS second, duration_ns, phase,
  binding
FROM binding SEMI JOIN these_chosen USING (run_id, flow)
JOIN (SELECT run_id, zero_ns FROM these_run) r USING (run_id)
"""

# Only the decisions that some rule names: the others would be most of the store.
DECISIONS = """
SELECT d.run_id, d.flow, d.seq, d.ord, d.ns::BIGINT AS ns, c.name, d.e0, d.e1, d.e2, d.e3
FROM decisions d JOIN decision_codes c USING (code) SEMI JOIN these_chosen USING (run_id, flow)
WHERE d.run_id IN {chosen} AND c.name IN (SELECT unnest($codes))
ORDER BY d.run_id, d.flow, d.seq, d.ord
"""
