"""What rules ask of BBR's bounds: how they changed, and which decisions brought that about.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

# A change of inflight_hi, inflight_lo or bw_lo in an event; `name` is the last decision about it.
BOUNDS = """
SELECT run_id, flow, seq, ns::BIGINT AS ns, bound, old::BIGINT AS old, new::BIGINT AS new, name,
  e0, e1
FROM bounds_history SEMI JOIN these_chosen USING (run_id, flow)
ORDER BY run_id, flow, seq
"""

# The same once for each decision about that bound, of those that some rule names: what cuts a bound
# may be followed in the same event by what caps it.
BOUND_DECISIONS = """
SELECT b.run_id, b.flow, b.seq, b.ns, b.bound, b.old, b.new, d.name AS decision, d.ord
FROM these_bounds b JOIN these_decisions d USING (run_id, flow, seq)
JOIN decision_codes c ON c.name = d.name AND c.about = b.bound
ORDER BY b.run_id, b.flow, b.seq, d.ord
"""
