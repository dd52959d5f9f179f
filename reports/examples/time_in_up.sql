-- How long PROBE_BW's phase of probing for bandwidth lasts (v2, v3: UP; v1: 1.25), and why it ends.
SELECT run, flow, phase, end_name AS ended_by, count(*) AS times,
  round(median(duration_ns) / 1e6, 1) AS median_ms, round(max(duration_ns) / 1e6, 1) AS longest_ms
FROM phases
WHERE phase IN ('PROBE_BW_UP', 'PROBE_BW_1.25') AND end_code IS NOT NULL
GROUP BY ALL ORDER BY run, flow, phase, times DESC, ended_by
