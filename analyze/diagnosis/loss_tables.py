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

# What each event marked lost, but by a timeout or in its repair, or where an undo took it back.
MARKS = """
SELECT run_id, flow, seq, ns, lost, srtt_us FROM these_events e WHERE lost > 0
  AND NOT EXISTS (FROM these_timeouts t WHERE t.run_id = e.run_id AND t.flow = e.flow
    AND e.seq > t.after_seq AND e.seq < t.until_seq)
  AND NOT EXISTS (FROM these_undone u WHERE u.run_id = e.run_id AND u.flow = e.flow
    AND e.ns > u.from_ns AND e.ns < u.to_ns)
"""

# How many packets of a flow D-SACKs tell to have come twice: what was sent again in vain had not
# been lost. tp.delivered counts them (tcp_dsack_seen()), beside what is acknowledged for the first
# time, by which snd_una and sacked_out grow. Segments of less than a full size would be more
# packets than their bytes make: such ACKs tell nothing. D-SACKs of what an undo took back or a
# timer marked, until a round trip after its repair, do not count, as such marks are not in MARKS.
TWICE = """
WITH acks AS (
  SELECT run_id, flow, ns::BIGINT AS ns, min(tp_mss_cache) OVER (PARTITION BY run_id, flow)::BIGINT
      AS size, growth32(tp_delivered, lag(tp_delivered) OVER w) AS delivered,
    tp_sacked_out::BIGINT - lag(tp_sacked_out) OVER w AS sacked,
    growth32(tp_snd_una, lag(tp_snd_una) OVER w) AS bytes
  FROM events SEMI JOIN (SELECT run_id, flow FROM these_flows WHERE lost > 0) USING (run_id, flow)
  WHERE run_id IN {chosen} AND kind = 'main'
  WINDOW w AS (PARTITION BY run_id, flow ORDER BY seq)
), repaired AS (
  SELECT t.run_id, t.flow, t.ns AS from_ns,
    max(e.ns) + 1000 * at_greatest(e.srtt_us, e.ns, e.ns) AS to_ns
  FROM these_timeouts t JOIN these_events e ON e.run_id = t.run_id AND e.flow = t.flow
    AND e.seq BETWEEN t.seq AND t.until_seq GROUP BY t.run_id, t.flow, t.ns
  UNION ALL SELECT run_id, flow, from_ns, to_ns FROM these_undone
)
SELECT run_id, flow, sum(least(delivered, delivered - sacked - bytes // size))::BIGINT AS packets
FROM acks a WHERE bytes % size = 0 AND delivered > 0 AND delivered - sacked > bytes // size
  AND NOT EXISTS (FROM repaired r WHERE r.run_id = a.run_id AND r.flow = a.flow
    AND a.ns BETWEEN r.from_ns AND r.to_ns)
GROUP BY run_id, flow
"""

# The most packets of MARKS that a flow marked lost within one round trip; and the longest time
# without an ACK that delivered something which ended then or up to a round trip before. Of one call
# of main, what it marks comes first.
BURSTS = """
WITH sums AS (
  SELECT run_id, flow, ns, lost, srtt_us, sum(lost) OVER w AS packets, max(ns) OVER w AS last_ns
  FROM these_marks WINDOW w AS (PARTITION BY run_id, flow ORDER BY ns
    RANGE BETWEEN CURRENT ROW AND (1000 * srtt_us)::BIGINT FOLLOWING)
), most AS (
  SELECT *, sum(lost) OVER (PARTITION BY run_id, flow) AS marked FROM sums
  QUALIFY row_number() OVER (PARTITION BY run_id, flow ORDER BY packets DESC, ns) = 1
), heard AS (
  SELECT run_id, flow, ns, lag(ns) OVER (PARTITION BY run_id, flow ORDER BY seq) AS before_ns
  FROM these_events SEMI JOIN these_marks USING (run_id, flow) WHERE acked_sacked > 0
)
SELECT m.run_id, m.flow, m.ns, any_value(m.packets)::BIGINT AS packets,
  any_value(m.packets / m.marked) AS share,
  (any_value(m.last_ns) - m.ns) / 1e3 AS lasted_us, any_value(m.srtt_us) AS srtt_us,
  max(h.ns - h.before_ns) / 1e3 AS silent_us
FROM most m LEFT JOIN heard h ON h.run_id = m.run_id AND h.flow = m.flow
  AND h.ns >= m.ns - 1000 * m.srtt_us::BIGINT AND h.before_ns < m.ns
GROUP BY m.run_id, m.flow, m.ns
"""

# What the sampled queue dropped and held, beside what all flows that pass it lost. Of a sender
# without a record some of the drops may be: then nothing tells whose they are.
DROPS = """
SELECT q.run_id, q.flow, sum(q.dropped)::BIGINT AS dropped,
  max(q.backlog_pkts)::BIGINT AS most_packets, 1e6 * max(q.drain_s) AS most_us,
  max(q.ns)::BIGINT AS last_ns, any_value(a.lost) AS lost,
  coalesce(max(q.backlog_pkts) > 0 AND 2 * sum(q.dropped) >= any_value(a.lost), false)
    AND any_value(o.known) AND q.run_id NOT IN (SELECT run_id FROM these_seconds
      WHERE other IS NOT NULL AND bytes > 0) AS took_most
FROM these_queue q JOIN these_others o USING (run_id) JOIN (
  SELECT run_id, sum(lost)::BIGINT AS lost
  FROM these_flows SEMI JOIN these_passers USING (run_id, flow) GROUP BY run_id) a USING (run_id)
GROUP BY q.run_id, q.flow
"""
