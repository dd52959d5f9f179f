"""What rules, and `needs`, ask of a recording: what it has, and what it states of its host.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

from ...collect.store.schema.recorded_tables import SAMPLE

# What a run's recording has, as `needs` asks.
SEEN = f"""
SELECT run_id, e.* EXCLUDE (run_id), d.run_id IS NOT NULL AS decisions,
  l.run_id IS NOT NULL AS losses, p.run_id IS NOT NULL AS packets
FROM (SELECT run_id, bool_or(kind <> '{SAMPLE}') AS callbacks,
    -- TCP_CA_Loss (4); without one there is no timeout whose time could be missing.
    callbacks OR NOT coalesce(bool_or(ca_state = 4), true) AS timeouts,
    count(mode) > 0 AS state, count(rtt_us) > 0 AS rtt,
    count(sample_bw) > 0 AS samples, count(ecn_ok) > 0 AS ecn, count(capacity) > 0 AS link
  FROM these_events GROUP BY run_id) e
LEFT JOIN (SELECT DISTINCT run_id FROM decisions WHERE run_id IN {{chosen}}) d USING (run_id)
LEFT JOIN (SELECT DISTINCT run_id FROM events WHERE run_id IN {{chosen}} AND tp_lost IS NOT NULL) l
  USING (run_id)
LEFT JOIN (SELECT DISTINCT run_id FROM packets WHERE run_id IN {{chosen}}) p USING (run_id)
"""

FACTS = "SELECT run_id, scope, name, value FROM host_facts WHERE run_id IN {chosen}"
