-- From being marked lost to the retransmission at the capture point, and how many never came.
SELECT run, flow, count(*) AS lost, count(resent_packet) AS sent_again,
  round(median(repair_ns) / 1e6, 2) AS median_ms,
  round(quantile_cont(repair_ns, 0.99) / 1e6, 2) AS p99_ms
FROM loss_timeline GROUP BY ALL HAVING count(resent_packet) > 0 ORDER BY run, flow
