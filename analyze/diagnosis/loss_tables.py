"""What rules ask of losses: which of them a sender took back, and which a timer marked.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

# Recoveries that the sender took back: what it marked lost in them was late. From the end of the
# one before to the undoing.
UNDONE = """
SELECT u.run_id, u.flow, coalesce(max(o.ns), 0)::BIGINT AS from_ns, u.ns AS to_ns
FROM these_events u LEFT JOIN these_events o ON o.run_id = u.run_id AND o.flow = u.flow
  AND o.kind = 'set_state' AND o.new_state = 0 AND o.ns < u.ns
WHERE u.kind = 'undo_cwnd' GROUP BY u.run_id, u.flow, u.ns
"""

# What each flow marked lost in recoveries that it took back.
LATE = """
SELECT e.run_id, e.flow, sum(e.lost)::BIGINT AS packets FROM these_events e
WHERE e.lost > 0 AND EXISTS (FROM these_undone u WHERE u.run_id = e.run_id AND u.flow = e.flow
  AND e.ns > u.from_ns AND e.ns < u.to_ns)
GROUP BY e.run_id, e.flow
"""

# Timeouts and their repair. tcp_enter_loss() marks what is in flight lost, whether it is or not,
# and then sets the state: no ACK is processed in between, so that the timer marks what is marked
# after event after_seq. Until all that was sent by then is acknowledged, which event until_seq
# tells, the same packets may be marked again.
TIMEOUTS = """
WITH acked AS (
  SELECT run_id, flow, seq, ns, main, kind, new_state,
    sum(acked_bytes) OVER (PARTITION BY run_id, flow ORDER BY seq) AS bytes
  FROM these_events SEMI JOIN (
    SELECT run_id, flow FROM these_events WHERE kind = 'set_state' AND new_state = 4)
  USING (run_id, flow)
), fired AS (
  SELECT run_id, flow, seq, a.ns, a.bytes + growth32(e.tp_snd_nxt, e.tp_snd_una) AS sent_bytes
  FROM acked a JOIN events e USING (run_id, flow, seq)
  WHERE a.kind = 'set_state' AND a.new_state = 4
)
SELECT f.run_id, f.flow, coalesce(b.seq, -1) AS after_seq, f.seq, f.ns,
  coalesce(r.seq, 2147483647) AS until_seq
FROM fired f
ASOF LEFT JOIN (SELECT run_id, flow, seq FROM acked WHERE main OR kind = 'set_state') b
  ON b.run_id = f.run_id AND b.flow = f.flow AND f.seq > b.seq
ASOF LEFT JOIN (SELECT run_id, flow, bytes, min(seq) AS seq FROM acked GROUP BY ALL) r
  ON r.run_id = f.run_id AND r.flow = f.flow AND f.sent_bytes <= r.bytes
"""
