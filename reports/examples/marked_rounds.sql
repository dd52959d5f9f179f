-- Rounds with ECN marks (v2, v3), and what share of the packets the receiver reported marked.
SELECT run, flow, round, round(t_ns / 1e9, 3) AS t_s, phase, delivered, ce, round(ce_rate, 3) AS ce_rate
FROM rounds WHERE ce > 0 ORDER BY ce_rate DESC, run, flow, round LIMIT 50
