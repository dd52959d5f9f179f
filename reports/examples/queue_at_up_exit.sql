-- The bottleneck's queue when a flow stops probing for bandwidth: v2 and v3 want it small.
-- The sample just before the phase's end, if it is not older than half a second.
SELECT p.run, p.flow, p.end_name AS ended_by, count(*) AS times,
  round(avg(q.backlog_pkts), 1) AS mean_packets, max(q.backlog_pkts) AS most_packets
FROM phases p
ASOF JOIN (SELECT run_id, ns, backlog_pkts FROM queue_samples) q
  ON q.run_id = p.run_id AND p.end_ns >= q.ns
WHERE p.phase IN ('PROBE_BW_UP', 'PROBE_BW_1.25') AND p.end_code IS NOT NULL
  AND p.end_ns - q.ns < 500000000
GROUP BY ALL ORDER BY p.run, p.flow, times DESC, ended_by
