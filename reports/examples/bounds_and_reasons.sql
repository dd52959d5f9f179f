-- Every reason that moved inflight_hi, inflight_lo or bw_lo: how often, and which way.
SELECT run, flow, bound, name AS reason, count(*) AS times, count_if(new < old) AS down,
  count_if(new > old) AS up
FROM bounds_history
GROUP BY ALL ORDER BY run, flow, bound, times DESC, reason
