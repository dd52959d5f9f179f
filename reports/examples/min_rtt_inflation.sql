-- How far BBR's min_rtt stood above the smallest RTT of the whole run: a queue it took for the path.
SELECT r.run, e.flow, min(e.rs_rtt_us) FILTER (e.rs_rtt_us > 0) / 1e3 AS smallest_rtt_ms,
  round(quantile_cont(e.bbr_min_rtt_us, 0.5) / 1e3, 2) AS min_rtt_median_ms,
  max(e.bbr_min_rtt_us) / 1e3 AS min_rtt_max_ms,
  round(median(e.bbr_min_rtt_us) / any_value(b.base_us), 3) AS inflation
FROM events e JOIN runs r USING (run_id)
JOIN (
  SELECT run_id, min(rs_rtt_us) AS base_us FROM events
  WHERE kind = 'main' AND rs_rtt_us > 0 GROUP BY run_id
) b USING (run_id)
WHERE e.kind = 'main' AND e.bbr_min_rtt_us < unset()
GROUP BY r.run, e.flow HAVING count(*) > 100 ORDER BY inflation DESC, r.run, e.flow
