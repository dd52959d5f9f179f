-- The slowest flows, and what kept each from sending for how much of its time.
-- limited_by is the binding with the largest share; see view binding for how it is determined.
SELECT m.run, m.flow, round(m.goodput_mbps, 3) AS goodput_mbps, b.binding AS limited_by,
  round(b.share, 3) AS share_of_time
FROM metrics_by_flow m
JOIN (
  SELECT run_id, flow, arg_max(binding, ns) AS binding, max(ns) / sum(ns) AS share
  FROM (SELECT run_id, flow, binding, sum(duration_ns) AS ns FROM binding GROUP BY ALL)
  GROUP BY ALL
) b USING (run_id, flow)
WHERE m.delivered_packets > 100
ORDER BY m.goodput_mbps LIMIT 20
