-- How evenly flows shared the link, minute by minute: Jain's index and the largest share.
SELECT run, source, t_s // 60 AS minute, max(flows) AS flows, round(avg(jain), 4) AS mean_jain,
  round(min(jain), 4) AS least_jain, round(max(largest_share), 3) AS largest_share
FROM sharing WHERE t_s IS NOT NULL
GROUP BY ALL ORDER BY run, source, minute
