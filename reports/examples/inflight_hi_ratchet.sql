-- inflight_hi around each loss of a competitor that is no BBR flow (CUBIC): does it ratchet down?
-- A loss is a first retransmission after a second without any. Needs packets.
WITH resent AS (
  SELECT p.run_id, p.ns, p.ns - lag(p.ns) OVER (PARTITION BY p.run_id ORDER BY p.ns) AS quiet_ns
  FROM packets p
  WHERE p.flow IS NULL AND p.ack_flow IS NULL AND p.retransmission AND p.len > 1000
), losses AS (
  SELECT run_id, ns, row_number() OVER (PARTITION BY run_id ORDER BY ns) AS loss
  FROM resent WHERE quiet_ns IS NULL OR quiet_ns > 1000000000
), bounds AS (
  SELECT run_id, run, flow, ns, if_set(bbr_inflight_hi) AS inflight_hi
  FROM events JOIN runs USING (run_id) WHERE kind = 'main' AND bbr_inflight_hi IS NOT NULL
)
SELECT b.run, b.flow, l.loss, round((l.ns - r.first_ns) / 1e9, 2) AS t_s,
  arg_max(b.inflight_hi, b.ns) FILTER (b.ns <= l.ns) AS before,
  arg_max(b.inflight_hi, b.ns) FILTER (b.ns <= l.ns + 500000000) AS after_500_ms,
  arg_max(b.inflight_hi, b.ns) AS after_2_s
FROM losses l JOIN runs r USING (run_id)
JOIN bounds b ON b.run_id = l.run_id AND b.ns BETWEEN l.ns - 500000000 AND l.ns + 2000000000
GROUP BY ALL HAVING count(b.inflight_hi) > 0 ORDER BY b.run, b.flow, l.loss
