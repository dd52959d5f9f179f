-- Rounds in which more than 2 % of the packets were lost: BBRv2's and v3's loss_thresh.
SELECT run, flow, round, round(t_ns / 1e9, 3) AS t_s, phase, delivered, lost,
  round(lost / (lost + delivered), 4) AS loss_rate
FROM rounds
WHERE lost > 0.02 * (lost + delivered)
ORDER BY loss_rate DESC, run, flow, round LIMIT 50
