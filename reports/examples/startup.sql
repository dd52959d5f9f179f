-- How long STARTUP took, why it ended, and what it lost.
SELECT p.run, p.flow, round(p.duration_ns / 1e6, 1) AS ms, p.end_name AS ended_by,
  (SELECT count(*) FROM rounds r WHERE r.run_id = p.run_id AND r.flow = p.flow
    AND r.start_ns BETWEEN p.start_ns AND p.end_ns) AS rounds,
  (SELECT coalesce(sum(lost), 0)::BIGINT FROM rounds r WHERE r.run_id = p.run_id
    AND r.flow = p.flow AND r.start_ns BETWEEN p.start_ns AND p.end_ns) AS lost
FROM phases p WHERE p.phase = 'STARTUP' AND p.end_code IS NOT NULL
ORDER BY p.run, p.flow, p.start_ns
