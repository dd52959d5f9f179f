"""What changes during a run, as views for figures: the first repetition of each point.

All have `t` (seconds from the start of the traffic), `y`, `series` and `facet`, and are worked out
only when a figure asks for them:

goodput_over_time      each flow's, as means over half a second, or over the intervals that its run
                       measured, where they are longer (simulated ones: a second); 'capacity': the
                       bottleneck's rate; 'fair share': that over the number of flows, where there
                       are several
backlog_over_time      the bottleneck's queue, kB
queue_by_flow          the same, kB, by whose packets it holds
retransmits_over_time  a row per twentieth of a second with retransmissions: y is how many
rtprop_over_time       BBR's min_rtt, ms
rtt_over_time          RTT of BBR flows, ms, as means over a tenth of a second
losses_over_time       as retransmits_over_time, packets that the kernel marked lost, BBR flows
inflight_over_time     packets of BBR flows: in flight, cwnd, and its bounds
max_bw_over_time       BBR's estimate of the bandwidth, Mbit/s of payload

and, of all runs, point_queue: samples of the bottleneck's queue while there was traffic.
"""

from __future__ import annotations

# Flows of the first repetitions whose kernel events were recorded: those of BBR.
_EVENTS = """
  FROM events e JOIN firsts k USING (run_id) JOIN runs r USING (run_id)
  JOIN point_flows f ON f.run_id = e.run_id AND f.flow = e.flow
"""
_T = "(e.ns::BIGINT - r.traffic_start_ns::BIGINT) / 1e9"
_TENTH = f"floor({_T} * 10) / 10"

# Without kernel events, packets know the time of day only: they begin when the first flow does.
_PACKETS = """
  SELECT p.run_id, f.label, k.facet, p.packet, p.stream, p.seq, p.len, p.frame_len,
    CASE WHEN r.first_ns IS NULL THEN
      (p.ns::BIGINT - min(p.ns::BIGINT) OVER (PARTITION BY p.run_id)) / 1e9
      + min(f.start_s) OVER (PARTITION BY p.run_id)
    ELSE (p.ns::BIGINT - r.traffic_start_ns::BIGINT) / 1e9 END AS t
  FROM packets p JOIN firsts k USING (run_id) JOIN runs r USING (run_id)
  JOIN point_flows f ON f.run_id = p.run_id AND f.local_port = p.sport
  WHERE p.direction = 'data' AND p.len > 0 AND p.ns IS NOT NULL
"""

VIEWS: dict[str, str] = {
    "goodput_over_time": """
WITH cuts AS (
  SELECT run_id, unnest([start_s, stop_s]) AS t FROM point_flows WHERE stop_s IS NOT NULL
  UNION SELECT run_id, start_s FROM point_links
), spans AS (
  SELECT run_id, t, lead(t) OVER (PARTITION BY run_id ORDER BY t) AS until FROM cuts
), fair AS (
  SELECT s.run_id, s.t, s.until, any_value(l.rate_mbps) / count(*) AS y
  FROM spans s JOIN point_links l ON l.run_id = s.run_id AND s.t >= l.start_s AND s.t < l.end_s
  JOIN point_flows f ON f.run_id = s.run_id AND s.t >= f.start_s AND s.t < f.stop_s
  WHERE s.until > s.t GROUP BY s.run_id, s.t, s.until
)
SELECT t, sum(rate) AS y, label AS series, facet FROM (
  SELECT floor(2 * s.t_s) / 2 AS t, f.label, f.flow_no, k.facet,
    sum(s.goodput_mbps * s.seconds) / sum(s.seconds) AS rate
  FROM point_seconds s JOIN point_flows f USING (run_id, flow_no) JOIN firsts k USING (run_id)
  GROUP BY ALL
) GROUP BY ALL
UNION ALL
SELECT unnest([start_s, end_s - 0.001]), unnest([l.rate_mbps, l.rate_mbps]), 'capacity', k.facet
FROM point_links l JOIN firsts k USING (run_id)
UNION ALL
SELECT unnest([t, until - 0.001]), unnest([fair.y, fair.y]), 'fair share', k.facet
FROM fair JOIN firsts k USING (run_id) JOIN points p USING (run_id) WHERE p.flows > 1
""",
    # A qdisc within another is sampled, too; the outer one counts what both hold.
    "point_queue": """
SELECT run_id, (q.ns::BIGINT - r.traffic_start_ns::BIGINT) / 1e9 AS t_s,
  max(q.backlog_bytes) AS backlog_bytes
FROM queue_samples q JOIN chosen c USING (run_id) JOIN runs r USING (run_id)
WHERE t_s BETWEEN 0 AND c.duration_s GROUP BY ALL
""",
    "backlog_over_time": """
SELECT q.t_s AS t, q.backlog_bytes / 1e3 AS y, 'backlog' AS series, k.facet
FROM point_queue q JOIN firsts k USING (run_id)
""",
    # First in, first out: what lies in the queue is what will pass the capture, behind it, next.
    "queue_by_flow": f"""
WITH all_packets AS ({_PACKETS}), passed AS (
  SELECT run_id, label, facet, t, sum(frame_len) OVER (PARTITION BY run_id ORDER BY packet) AS sum,
    sum(frame_len) OVER (PARTITION BY run_id, label ORDER BY packet) AS own
  FROM all_packets
), samples AS (
  SELECT q.run_id, q.t_s AS t, q.backlog_bytes AS backlog
  FROM point_queue q JOIN firsts USING (run_id) JOIN runs r USING (run_id)
  WHERE r.first_ns IS NOT NULL
), begun AS (
  SELECT s.*, p.sum FROM samples s ASOF JOIN passed p ON p.run_id = s.run_id AND s.t >= p.t
), each_flow AS (
  SELECT b.*, l.label, l.facet
  FROM begun b JOIN (SELECT DISTINCT run_id, label, facet FROM passed) l USING (run_id)
), before AS (
  SELECT e.*, coalesce(p.own, 0) AS gone FROM each_flow e ASOF LEFT JOIN passed p
    ON p.run_id = e.run_id AND p.label = e.label AND e.t >= p.t
)
SELECT b.t, (coalesce(p.own, 0) - b.gone) / 1e3 AS y, b.label AS series, b.facet
FROM before b ASOF LEFT JOIN passed p
  ON p.run_id = b.run_id AND p.label = b.label AND b.sum + b.backlog >= p.sum
""",
    "losses_over_time": f"""
SELECT floor(20 * {_T}) / 20 AS t, sum(e.rs_losses)::DOUBLE AS y, f.label AS series, k.facet
{_EVENTS} WHERE e.kind = 'main' AND e.rs_losses > 0 GROUP BY ALL
""",
    # A segment that is not beyond all before it was sent again; without packets, as the kernel
    # marked it lost.
    "retransmits_over_time": f"""
WITH again AS (
  SELECT *, seq < max(seq + len) OVER (
    PARTITION BY run_id, stream ORDER BY packet ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS again
  FROM ({_PACKETS})
)
SELECT floor(20 * t) / 20 AS t, count(*)::DOUBLE AS y, label AS series, facet
FROM again WHERE again GROUP BY ALL
UNION ALL
SELECT l.* FROM losses_over_time l JOIN firsts k USING (facet)
WHERE k.run_id NOT IN (SELECT run_id FROM packets)
""",
    "rtprop_over_time": f"""
SELECT {_TENTH} AS t, arg_max(e.bbr_min_rtt_us, e.seq) / 1e3 AS y, f.label AS series, k.facet
{_EVENTS} WHERE e.kind = 'main' AND e.bbr_min_rtt_us < unset() GROUP BY ALL
""",
    "rtt_over_time": f"""
SELECT {_TENTH} AS t, avg(e.rs_rtt_us) / 1e3 AS y, f.label AS series, k.facet
{_EVENTS} WHERE e.kind = 'main' AND e.rs_rtt_us > 0 GROUP BY ALL
""",
    "inflight_over_time": f"""
WITH held AS (
  SELECT {_TENTH} AS t, f.label, k.facet,
    max(packets_in_flight(e.tp_packets_out, e.tp_sacked_out, e.tp_lost_out, e.tp_retrans_out))
      AS inflight,
    arg_max(e.tp_snd_cwnd, e.seq) AS cwnd,
    arg_max(e.bbr_inflight_hi, e.seq) AS inflight_hi,
    arg_max(e.bbr_inflight_lo, e.seq) AS inflight_lo
  {_EVENTS} WHERE e.kind = 'main' GROUP BY t, f.label, k.facet
), labelled AS (
  UNPIVOT (SELECT t, label, facet, inflight::BIGINT AS inflight, cwnd::BIGINT AS cwnd,
    inflight_hi::BIGINT AS inflight_hi, inflight_lo::BIGINT AS inflight_lo FROM held)
  ON inflight, cwnd, inflight_hi, inflight_lo INTO NAME what VALUE y
)
SELECT t, y::DOUBLE AS y, label || ' ' || what AS series, facet FROM labelled WHERE y < unset()
""",
    "max_bw_over_time": f"""
SELECT {_TENTH} AS t,
  bw_to_mbps(arg_max(max_bw(e.bbr_bw_hi_0, e.bbr_bw_hi_1, e.bbr_bw_s_0_v), e.seq), 1448) AS y,
  f.label AS series, k.facet
{_EVENTS} WHERE e.kind = 'main' GROUP BY ALL
""",
}
