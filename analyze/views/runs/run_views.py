"""Each run in one row, and when its flows had converged."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import RUN
from .sender_views import SAME_SENDER

# Convergence, after the experiments' catalogue: every flow within this share of an equal part, as
# a moving mean over WINDOW_S seconds, and for HOLD_S seconds on end.
TOLERANCE = 0.1
WINDOW_S = 10
HOLD_S = 30


def equal_parts_sql(window_s: int = WINDOW_S) -> str:
    """Return the query for each flow's goodput over an equal part: run_id, t_s, flow, stream, part.

    x(t) is a flow's goodput as a mean over the seconds t .. t + window_s - 1; part is x over the
    mean of all flows' x: 1 is an equal part. Of senders that count (see the view senders), and go
    the first way that two of them share.
    """
    return f"""
WITH shares AS (
  SELECT m.run_id, m.t_s, m.flow, m.stream,
    CASE source WHEN 'packets' THEN m.pkt_acked_bytes ELSE m.acked_bytes END AS bytes
  FROM metrics_by_second m JOIN senders c ON c.counts AND {SAME_SENDER}
  JOIN (SELECT run_id, max(source) AS source, min(way) AS way FROM sharing GROUP BY run_id) t
    ON t.run_id = m.run_id AND t.way = c.way
  WHERE m.duration_s > 0.999
  -- A flow that stands still for a second carried nothing; one that no source tells of is left out.
  QUALIFY max(bytes) OVER (PARTITION BY m.run_id, m.flow, m.stream) IS NOT NULL
), smooth AS (
  SELECT run_id, t_s, flow, stream, avg(coalesce(bytes, 0)::DOUBLE) OVER w AS x,
    count(*) OVER w AS n
  FROM shares
  WINDOW w AS (PARTITION BY run_id, flow, stream ORDER BY t_s
    RANGE BETWEEN CURRENT ROW AND {int(window_s)} - 1 FOLLOWING)
)
SELECT run_id, t_s, flow, stream, x / nullif(avg(x) OVER (PARTITION BY run_id, t_s), 0) AS part
FROM smooth WHERE n = {int(window_s)}
"""


def convergence_sql(
    tolerance: float = TOLERANCE, window_s: int = WINDOW_S, hold_s: int = HOLD_S
) -> str:
    """Return the query for the second in which each run's flows had converged.

    Converged at the first T such that every flow's part (see equal_parts_sql) is within `tolerance`
    of 1 for all t in T .. T + hold_s.
    """
    return f"""
WITH judged AS (
  SELECT run_id, t_s, count(*) AS flows, coalesce(bool_and(abs(part - 1) <= {tolerance!r}), false)
    AS fair
  FROM ({equal_parts_sql(window_s)}) GROUP BY run_id, t_s
), held AS (
  SELECT run_id, t_s, fair AND bool_and(fair) OVER w AND min(flows) OVER w >= 2
    AND count(*) OVER w >= {int(hold_s)} + 1 AS converged
  FROM judged
  WINDOW w AS (PARTITION BY run_id ORDER BY t_s
    RANGE BETWEEN CURRENT ROW AND {int(hold_s)} FOLLOWING)
)
SELECT run_id, min(t_s) FILTER (converged) AS converged_s FROM held GROUP BY run_id
"""


METRICS_BY_RUN = View(
    "metrics_by_run",
    "Each run in numbers: its link, its queue and how the senders that count (see senders) shared "
    "them; shares are those of the first way that two go.",
    (
        RUN_ID,
        RUN,
        Column("flows", "BIGINT", "flows", "senders that count"),
        Column("rate_mbps", "DOUBLE", "Mbit/s", "rate of the link at the start; NULL: unknown"),
        Column("rate_changes", "BIGINT", "", "how often it was changed"),
        Column("utilisation", "DOUBLE", "", "of the link, by the queue's own counters"),
        Column(
            "goodput_mbps",
            "DOUBLE",
            "Mbit/s",
            "of all flows, from the first's start to the "
            "last's end; from events, or packets where a flow has no events",
        ),
        Column("lost_packets", "BIGINT", "packets", "marked lost by the kernel"),
        Column("pkt_retransmissions", "BIGINT", "packets", "seen by the capture"),
        Column("dropped_packets", "BIGINT", "packets", "by the queue's own counters"),
        Column("rtt_min_us", "BIGINT", "us", "smallest RTT sample of any flow"),
        Column("queue_delay_mean_us", "DOUBLE", "us", "mean backlog at the link's rate"),
        Column("backlog_mean_bytes", "DOUBLE", "bytes", "mean backlog"),
        Column("standing_queue_bytes", "DOUBLE", "bytes", "5th percentile of the backlog"),
        Column("shares_from", "VARCHAR", "", "packets or kernel; NULL: no two flows at once"),
        Column("shared_seconds", "BIGINT", "s", "seconds in which all flows were active"),
        Column("jain", "DOUBLE", "", "Jain's index over these"),
        Column("ratio", "DOUBLE", "", "goodput of the first flow over the last's over these"),
        Column(
            "converged_s",
            "INTEGER",
            "s",
            f"second from which on every flow's goodput, as a "
            f"mean over {WINDOW_S} s, stays within {TOLERANCE:.0%} of an equal part for "
            f"{HOLD_S} s; NULL: not converged",
        ),
    ),
    f"""
WITH link AS (
  SELECT run_id, arg_min(bits_per_s, start_ns) / 1e6 AS rate_mbps, count(*) - 1 AS rate_changes
  FROM link_rates GROUP BY run_id
), flows_of AS (
  SELECT m.run_id, m.run, count(*) AS flows,
    sum(coalesce(m.acked_bytes, m.pkt_acked_bytes, 0)) * 8 / 1e6
    / nullif(max(m.start_s + m.duration_s) - min(m.start_s), 0) AS goodput_mbps,
    sum(m.lost_packets)::BIGINT AS lost_packets,
    sum(m.pkt_retransmissions)::BIGINT AS pkt_retransmissions, min(m.rtt_min_us) AS rtt_min_us
  FROM metrics_by_flow m JOIN senders c ON c.counts AND {SAME_SENDER}
  GROUP BY m.run_id, m.run
), total AS (
  SELECT run_id, max(source) AS shares_from, arg_max(jain, source) AS jain,
    arg_max(ratio, source) AS ratio, arg_max(seconds, source) AS shared_seconds
  FROM (FROM sharing WHERE t_s IS NULL QUALIFY way = min(way) OVER (PARTITION BY run_id))
  GROUP BY run_id
), queue AS (
  SELECT run_id, max(utilisation) AS utilisation, max(backlog_mean_bytes) AS backlog_mean_bytes,
    max(backlog_p5_bytes) AS standing_queue_bytes, max(delay_mean_us) AS queue_delay_mean_us,
    max(dropped_packets) AS dropped_packets
  FROM queue_metrics GROUP BY run_id
), convergence AS ({convergence_sql()})
SELECT f.run_id, f.run, f.flows, l.rate_mbps, l.rate_changes, q.utilisation, f.goodput_mbps,
  f.lost_packets, f.pkt_retransmissions, q.dropped_packets, f.rtt_min_us, q.queue_delay_mean_us,
  q.backlog_mean_bytes, q.standing_queue_bytes, t.shares_from, t.shared_seconds, t.jain, t.ratio,
  c.converged_s
FROM flows_of f LEFT JOIN link l USING (run_id) LEFT JOIN total t USING (run_id)
LEFT JOIN queue q USING (run_id) LEFT JOIN convergence c USING (run_id)
ORDER BY f.run_id
""",
    materialized=True,
)

VIEWS = (METRICS_BY_RUN,)
