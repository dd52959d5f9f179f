-- Kernel and wire on one clock: from an ACK at the capture point to the main() it caused.
-- Negative or wandering lags mean that the clocks do not fit; see table captures.
SELECT r.run, m.flow, count(*) AS acks, min(m.lag_ns) / 1e3 AS least_us,
  quantile_disc(m.lag_ns, 0.5) / 1e3 AS median_us, quantile_disc(m.lag_ns, 0.99) / 1e3 AS p99_us
FROM ack_matches m JOIN runs r USING (run_id)
GROUP BY ALL HAVING count(*) > 100 ORDER BY r.run, m.flow
