-- What PROBE_RTT costs: how often, how long, and how much slower the flow was in it.
SELECT m.run, m.flow, p.times, round(m.duration_s, 3) AS seconds,
  round(m.duration_s / f.duration_s, 4) AS share_of_time,
  round(m.goodput_mbps, 3) AS goodput_mbps, round(f.goodput_mbps, 3) AS overall_mbps
FROM metrics_by_phase m
JOIN metrics_by_flow f ON f.run_id = m.run_id AND f.flow = m.flow
JOIN (
  SELECT run_id, flow, count(*) AS times FROM phases WHERE phase = 'PROBE_RTT' GROUP BY ALL
) p ON p.run_id = m.run_id AND p.flow = m.flow
WHERE m.phase = 'PROBE_RTT' ORDER BY share_of_time DESC, m.run, m.flow
