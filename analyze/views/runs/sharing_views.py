"""How senders shared the link: who got how much, whose path was longer, who probed when."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import RUN
from .sender_views import FLOW_OR_NONE, SAME_SENDER, STREAM

SHARING = View(
    "sharing",
    "How the senders that count and go one way (see senders) shared it: per second in which two or "
    "more were active all the time, and in total (t_s NULL) over those in which all were (see "
    "comparison_windows). source packets sees every sender, source kernel those with events.",
    (
        RUN_ID,
        RUN,
        Column("way", "BIGINT", "", "see senders"),
        Column("source", "VARCHAR", "", "packets or kernel"),
        Column(
            "t_s", "INTEGER", "s", "second of the run's clock, see senders.zero_ns; NULL: in total"
        ),
        Column("flows", "BIGINT", "flows", "active in that second; in total: compared"),
        Column("seconds", "BIGINT", "s", "seconds counted"),
        Column("jain", "DOUBLE", "", "Jain's index of their goodput: 1/flows (one has all) to 1"),
        Column("largest_share", "DOUBLE", "", "of the flow with most goodput"),
        Column("ratio", "DOUBLE", "", "goodput of the flow that began first over the last's"),
        Column("goodput_mbps", "DOUBLE", "Mbit/s", "of all flows together"),
    ),
    f"""
WITH counted AS (
  SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY first_ns, flow, stream) AS place
  FROM senders WHERE counts
), both_sides AS (
  SELECT m.run_id, m.run, c.way, c.place, m.t_s, unnest([
    {{'source': 'packets', 'bytes': m.pkt_acked_bytes}},
    {{'source': 'kernel', 'bytes': m.acked_bytes}}], recursive := true)
  FROM metrics_by_second m JOIN counted c ON {SAME_SENDER}
  WHERE m.duration_s > 0.999
), shared AS (
  -- A sender that stands still for a second has no row of that second: it carried nothing.
  SELECT run_id, run, way, source, t_s, place, coalesce(bytes, 0)::DOUBLE AS bytes,
    count(*) OVER (PARTITION BY run_id, way, source, t_s) AS flows
  FROM (FROM both_sides QUALIFY max(bytes) OVER (PARTITION BY run_id, source, place) IS NOT NULL)
  QUALIFY flows >= 2
), sums AS (
  SELECT run_id, run, way, source, t_s, place, bytes, 1::BIGINT AS seconds FROM shared
  UNION ALL
  SELECT s.run_id, s.run, s.way, s.source, NULL, s.place, sum(s.bytes), count(*)
  FROM shared s JOIN comparison_windows w ON w.run_id = s.run_id AND w.way = s.way
    AND s.t_s BETWEEN w.first_s AND w.last_s
  GROUP BY s.run_id, s.run, s.way, s.source, s.place
)
SELECT run_id, run, way, source, t_s, count(*) AS flows, max(seconds) AS seconds,
  sum(bytes) ** 2 / nullif(count(*) * sum(bytes ** 2), 0) AS jain,
  max(bytes) / nullif(sum(bytes), 0) AS largest_share,
  arg_min(bytes, place) / nullif(arg_max(bytes, place), 0) AS ratio,
  sum(bytes) * 8 / 1e6 / max(seconds) AS goodput_mbps
FROM sums GROUP BY run_id, run, way, source, t_s ORDER BY run_id, way, source, t_s NULLS LAST
""",
    materialized=True,
)

RTT_FAIRNESS = View(
    "rtt_fairness",
    "How goodput depends on the path's RTT: senders that count, over the seconds in which all of "
    "one way were active (see comparison_windows), each compared with the one of the shortest RTT "
    "among these.",
    (
        RUN_ID,
        RUN,
        FLOW_OR_NONE,
        STREAM,
        Column("rtt_min_us", "DOUBLE", "us", "its smallest RTT, from events, else from packets"),
        Column("rtt_ratio", "DOUBLE", "", "over that of the flow with the shortest"),
        Column("goodput_mbps", "DOUBLE", "Mbit/s", "over the common seconds"),
        Column("goodput_ratio", "DOUBLE", "", "over that of the flow with the shortest RTT"),
    ),
    f"""
WITH sums AS (
  SELECT m.run_id, m.run, c.way, m.flow, m.stream,
    sum(coalesce(m.pkt_acked_bytes, m.acked_bytes, 0)) * 8 / 1e6 / count(*) AS goodput_mbps
  FROM metrics_by_second m JOIN senders c ON c.counts AND {SAME_SENDER}
  JOIN comparison_windows w ON w.run_id = m.run_id AND w.way = c.way
    AND m.t_s BETWEEN w.first_s AND w.last_s
  GROUP BY ALL
), timed AS (
  SELECT c.*, coalesce(m.rtt_min_us::DOUBLE, m.pkt_rtt_min_us) AS rtt_min_us
  FROM sums c JOIN metrics_by_flow m ON {SAME_SENDER}
)
SELECT run_id, run, flow, stream, rtt_min_us,
  rtt_min_us / nullif(min(rtt_min_us) OVER w, 0) AS rtt_ratio, goodput_mbps,
  goodput_mbps / nullif(arg_min(goodput_mbps, (rtt_min_us, flow)) OVER w, 0) AS goodput_ratio
FROM timed WINDOW w AS (PARTITION BY run_id, way)
""",
    materialized=True,
)

PROBE_RTT_SYNC = View(
    "probe_rtt_sync",
    "Each PROBE_RTT of a flow, and how many others of its way were in PROBE_RTT meanwhile: "
    "flows that share a bottleneck tend to enter it together, once one has drained the queue.",
    (
        RUN_ID,
        RUN,
        Column("flow", "INTEGER", "", "the flow within its run"),
        Column("start_ns", "UBIGINT", "ns", "CLOCK_MONOTONIC: it entered"),
        Column("end_ns", "UBIGINT", "ns", "it left"),
        Column("active_flows", "BIGINT", "flows", "flows that count at that time, itself included"),
        Column("together", "BIGINT", "flows", "of these, in PROBE_RTT at some time of it"),
        Column("overlap_share", "DOUBLE", "", "of its time, the largest common with one other"),
    ),
    """
WITH p AS (
  SELECT p.run_id, p.run, p.flow, s.way, p.start_ns, p.end_ns
  FROM phases p JOIN senders s ON s.run_id = p.run_id AND s.flow = p.flow
  WHERE p.phase = 'PROBE_RTT'
), others AS (
  SELECT p.run_id, p.flow, p.start_ns, o.flow AS other,
    sum(least(p.end_ns, o.end_ns) - greatest(p.start_ns, o.start_ns)) AS common_ns
  FROM p JOIN p o ON o.run_id = p.run_id AND o.way = p.way AND o.flow <> p.flow
    AND o.start_ns < p.end_ns AND o.end_ns > p.start_ns
  GROUP BY ALL
), active AS (
  SELECT p.run_id, p.flow, p.start_ns, count(*) AS flows
  FROM p JOIN senders f ON f.run_id = p.run_id AND f.way = p.way AND f.counts AND f.acks > 0
    AND f.first_event_ns < p.end_ns AND f.last_event_ns > p.start_ns
  GROUP BY ALL
)
SELECT p.run_id, p.run, p.flow, p.start_ns, p.end_ns, any_value(a.flows) AS active_flows,
  1 + count(o.other) AS together,
  coalesce(max(o.common_ns), 0) / nullif(p.end_ns - p.start_ns, 0) AS overlap_share
FROM p JOIN active a USING (run_id, flow, start_ns)
LEFT JOIN others o USING (run_id, flow, start_ns)
GROUP BY p.run_id, p.run, p.flow, p.start_ns, p.end_ns
""",
    materialized=True,
)

VIEWS = (SHARING, RTT_FAIRNESS, PROBE_RTT_SYNC)
