"""What rules ask of the path: its queue, who else sent, and what a PROBE_RTT saw of it.

Tables as those of `tables`, of which they are a part.
"""

from __future__ import annotations

from ..views.packets.bypass_views import POLICERS
from ..views.runs.sender_views import LEAST_SHARE
from ..views.view_parts import grown, stated_changes

# The flows that carry data, of which packets alone tell.
OTHER_SENDERS = "SELECT run_id, stream FROM senders WHERE flow IS NULL AND counts"

# One row per run: is it known what else was sending? A set-up that states its flows tells it where
# each was recorded, or its receiver says what it got and when.
OTHERS = """
SELECT run_id, run_id IN (SELECT run_id FROM packets WHERE run_id IN {chosen}) OR run_id IN (
    SELECT run_id FROM lab_flows f JOIN runs USING (run_id) WHERE run_id IN {chosen} GROUP BY run_id
    HAVING bool_and(f.flow IS NOT NULL OR (traffic_start_ns IS NOT NULL
      AND (run_id, flow_no) IN (SELECT (run_id, flow_no) FROM lab_intervals)))
  ) AS known
FROM runs WHERE run_id IN {chosen}
"""

# Whether flows that are too small to count as senders carried enough to count, all together.
SMALLER = f"""
SELECT run_id, coalesce(sum(bytes) FILTER (NOT counts), 0) >= {LEAST_SHARE} * max(bytes) AS there
FROM senders WHERE run_id IN {{chosen}} GROUP BY run_id
"""

# What senders too small to count carried in each second since zero_ns, spread evenly over their
# time: hundreds of short flows are no rivals of a long one, but they use a part of the link.
LITTLE = """
SELECT run_id, t.second::INTEGER AS second, sum(bytes * (
    least(last_ns, zero_ns + (t.second + 1) * 1000000000)
    - greatest(first_ns, zero_ns + t.second * 1000000000)) / nullif(last_ns - first_ns, 0)) AS bytes
FROM senders, generate_series((first_ns - zero_ns) // 1000000000,
  (last_ns - zero_ns) // 1000000000) AS t(second)
WHERE NOT counts AND bytes > 0 AND run_id IN (SELECT run_id FROM these_smaller WHERE there)
GROUP BY ALL
"""

# A sender of the run that is no recorded flow: its number as in table seconds, its congestion
# control and kind (bulk, rate-limited ...) where the set-up states them, and what it carried while
# all were there, and of what all did.
RIVALS = """
WITH named AS (
  SELECT f.run_id, coalesce(s.stream, f.flow_no)::BIGINT AS other, any_value(f.cc) AS cc,
    any_value(f.kind) AS kind
  FROM lab_flows f LEFT JOIN streams s ON s.run_id = f.run_id AND s.flow IS NULL
    AND s.direction = 'data' AND s.sport = f.local_port
  WHERE f.run_id IN {chosen} AND f.flow IS NULL
    AND (s.stream IS NOT NULL OR f.run_id NOT IN (SELECT run_id FROM streams))
  GROUP BY ALL HAVING count(DISTINCT f.cc) = 1
)
SELECT run_id, s.other, n.cc, n.kind, sum(s.bytes)::BIGINT AS bytes,
  sum(s.bytes) / sum(sum(s.bytes)) OVER (PARTITION BY run_id) AS share
FROM these_seconds s JOIN these_window w USING (run_id) LEFT JOIN named n USING (run_id, other)
WHERE s.second BETWEEN w.first_s AND w.last_s
GROUP BY run_id, s.flow, s.other, n.cc, n.kind QUALIFY s.other IS NOT NULL
"""

# A flow: for which share of the time when all senders were there something outside of congestion
# control and the path held it back.
OUTSIDE = """
SELECT b.run_id, b.flow, coalesce(sum(b.duration_ns) FILTER (is_outside(b.binding)), 0)
  / nullif(sum(b.duration_ns), 0) AS share
FROM these_binding b JOIN these_window w USING (run_id)
WHERE b.ns BETWEEN w.start_ns AND w.end_ns GROUP BY b.run_id, b.flow
"""

# One row per run: was no more than one sender there at any time? NULL: one was recorded, and what
# else was sending is not known.
ALONE = """
SELECT run_id,
  CASE WHEN coalesce(max(senders) <> 1, true) THEN false WHEN known THEN true END AS alone
FROM these_others LEFT JOIN these_seconds USING (run_id) GROUP BY run_id, known
"""

# A PROBE_RTT, and the least RTT that came back in it (NULL: none): a flow that is alone empties the
# queue then, so that this is the path's. around_us is the least one of the five seconds before and
# after, which is v3's window of PROBE_RTT. after_us is the median of those after, of a flow with a
# tenth or more of what all recorded ones carried: so much of a queue would be its own. Events are
# looked for by the second, so that each is compared with the probes around it only.
PROBES = """
WITH probes AS (
  SELECT run_id, flow, seq, start_ns, end_ns, unnest(generate_series(
    (start_ns - 5000000000) // 1000000000, (end_ns + 5000000000) // 1000000000)) AS second
  FROM these_phases WHERE phase = 'PROBE_RTT'
), shares AS (
  SELECT run_id, flow, acked_bytes / nullif(sum(acked_bytes) OVER (PARTITION BY run_id), 0) AS part
  FROM these_flows
)
SELECT p.run_id, p.flow, p.seq, p.start_ns, p.end_ns,
  min(e.rtt_us) FILTER (e.ns BETWEEN p.start_ns AND p.end_ns) AS least_us,
  min(e.rtt_us) FILTER (e.mode <> 'PROBE_RTT') AS around_us,
  median(e.rtt_us) FILTER (e.mode <> 'PROBE_RTT' AND e.ns > p.end_ns AND s.part >= 0.1) AS after_us
FROM probes p JOIN shares s USING (run_id, flow)
LEFT JOIN these_events e ON e.run_id = p.run_id AND e.flow = p.flow
  AND e.ns // 1000000000 = p.second
  AND e.ns BETWEEN p.start_ns - 5000000000 AND p.end_ns + 5000000000
GROUP BY ALL
"""

# The runs in which a policer dropped more than any queue, and how many packets: the link's rate is
# not the path's then.
POLICED = f"""
SELECT run_id, max(packets) FILTER (policer)::BIGINT AS dropped FROM (
  SELECT run_id, kind IN {POLICERS} AS policer, max(dropped) - min(dropped) AS packets
  FROM queue_samples WHERE run_id IN {{chosen}} GROUP BY run_id, kind)
GROUP BY run_id
HAVING max(packets) FILTER (policer) > coalesce(max(packets) FILTER (NOT policer), 0)
"""

# The flows that pass the sampled queue, as far as its counters do not deny it. Of others it says
# nothing: no wait, no drop, no rate.
PASSERS = "SELECT run_id, flow FROM these_chosen ANTI JOIN queue_bypasses USING (run_id, flow)"

# What each queue's counters say at its first sample, where that comes when flows have begun. All of
# it is of the run (`of_run`) unless it sent more packets than the flows may have by then: what left
# since a flow's last event, its initial window above all, the next one tells. A SYN and the ACK
# that ends the handshake left before a flow's first event.
FIRST_SAMPLES = f"""
WITH first AS (
  SELECT run_id, kind, min(ns)::BIGINT AS ns, arg_min(dropped, ns)::BIGINT AS dropped,
    arg_min(sent_pkts, ns)::BIGINT AS sent
  FROM queue_samples WHERE run_id IN {{chosen}} AND kind NOT IN {POLICERS} GROUP BY run_id, kind
)
SELECT f.run_id, f.kind, any_value(f.ns) AS ns, any_value(f.dropped) AS dropped,
  any_value(f.dropped) = 0 OR coalesce(any_value(f.sent) <= sum(e.packets), false) AS of_run
FROM first f JOIN these_run r USING (run_id) LEFT JOIN (
  SELECT k.run_id, k.kind, e.flow, sum(e.lost) + sum(e.delivered)
    + at_greatest(greatest(e.inflight, e.cwnd), e.seq, e.seq) + 2 AS packets
  FROM first k JOIN these_events e ON e.run_id = k.run_id AND e.ns <= k.ns
    SEMI JOIN these_passers p ON p.run_id = e.run_id AND p.flow = e.flow GROUP BY ALL
) e ON e.run_id = f.run_id AND e.kind = f.kind
WHERE f.ns > r.zero_ns GROUP BY f.run_id, f.kind
"""

# The runs whose sampled queue keeps each flow's packets in a queue of its own, and its name.
FAIR = """
SELECT run_id, min(kind) AS kind FROM queue_samples
WHERE run_id IN {chosen} AND backlog_bytes > 0
  AND kind IN ('fq', 'fq_codel', 'fq_pie', 'cake', 'sfq', 'drr') GROUP BY run_id
"""

# A shaper and the queue within it drop the same packets: what dropped most at a time counts. What
# was dropped since the sample before the run is the run's, and by the first one in it: see above.
# So is what the first sample after the run counts since the one before: a flow that ends may have
# lost packets there. Each flow that passes the queue has all its samples. A packet waits until all
# that is there is sent (drain_s); but in a queue of its flow's own until a round of what that holds
# is, and the samples tell what all hold together: where others may have packets there, around that
# second, nothing tells the wait.
QUEUE = f"""
WITH shared AS (
  SELECT DISTINCT run_id, unnest([second - 1, second, second + 1]) AS second FROM (
    SELECT run_id, second FROM these_seconds JOIN these_others USING (run_id)
    WHERE senders > 1 OR NOT known
    UNION ALL SELECT run_id, second FROM these_little WHERE bytes > 0)
  SEMI JOIN these_fair USING (run_id)
)
SELECT p.flow, s.* FROM (SELECT q.* EXCLUDE (second) REPLACE (CASE
    WHEN row_number() OVER (PARTITION BY q.run_id, ns ORDER BY q.dropped DESC) = 1
    THEN q.dropped ELSE 0 END AS dropped), backlog_bytes * 8 / l.bits_per_s AS drain_s,
  CASE WHEN x.second IS NULL THEN drain_s END AS wait_s
FROM (SELECT g.run_id, g.ns, coalesce(lead(g.ns) OVER w - g.ns, 0)::BIGINT AS held_ns,
    (g.ns - r.zero_ns) // 1000000000 AS second,
    backlog_bytes::BIGINT AS backlog_bytes, backlog_pkts::BIGINT AS backlog_pkts,
    (coalesce(g.dropped, CASE WHEN f.of_run THEN f.dropped END, 0)
      + CASE WHEN g.next_ns > r.last_event_ns THEN g.next_dropped ELSE 0 END)::BIGINT AS dropped
  FROM (SELECT run_id, kind, ns::BIGINT AS ns, backlog_bytes, backlog_pkts,
      {grown("dropped", "lag(dropped) OVER k")} AS dropped, lead(ns) OVER k AS next_ns,
      {grown("lead(dropped) OVER k", "dropped")} AS next_dropped
    FROM queue_samples WHERE run_id IN {{chosen}} AND kind NOT IN {POLICERS}
    WINDOW k AS (PARTITION BY run_id, kind ORDER BY ns)) g
  JOIN these_run r USING (run_id)
  LEFT JOIN these_first_samples f ON f.run_id = g.run_id AND f.kind = g.kind AND f.ns = g.ns
  WHERE g.ns BETWEEN r.zero_ns AND r.last_event_ns
  WINDOW w AS (PARTITION BY g.run_id ORDER BY g.ns)) q
ASOF LEFT JOIN (SELECT run_id, start_ns, bits_per_s FROM link_rates WHERE run_id IN {{chosen}}) l
ON q.run_id = l.run_id AND q.ns >= l.start_ns
LEFT JOIN shared x ON x.run_id = q.run_id AND x.second = q.second) s
JOIN these_passers p USING (run_id)
ORDER BY run_id, p.flow, ns
"""

# What a flow's path took without the queue, at a sample of it: a packet that came then left after
# the wait that the sample shows, so that of the next ACK's round trip (`rtt_us`, at `ns`) the queue
# had about that. But that ACK is of a packet that may have passed the queue any time in its round
# trip, before what the way back takes: it waited for no less than the least of the samples around
# that time show, and no more than the most. Samples are looked for by the second, as in PROBES.
# Where ACKs pause for longer than a round trip, nothing tells.
TRIPS = """
WITH samples AS (
  SELECT run_id, flow, ns, wait_s,
    coalesce(lead(wait_s) OVER (PARTITION BY run_id, flow ORDER BY ns), wait_s) AS next_s
  FROM these_queue
), trips AS (
  SELECT q.run_id, e.flow, q.ns AS sample_ns, e.ns, e.ns - 1000 * e.rtt_us::BIGINT AS sent_ns,
    e.rtt_us, q.wait_s
  FROM (SELECT *, ns + (1e9 * wait_s)::BIGINT AS left_ns FROM samples) q
  ASOF JOIN (SELECT run_id, flow, ns, rtt_us FROM these_events WHERE rtt_us > 0) e
    ON e.run_id = q.run_id AND e.flow = q.flow AND e.ns >= q.left_ns
  WHERE q.left_ns >= sent_ns
)
SELECT t.run_id, t.flow, t.ns, t.rtt_us, 1e6 * t.wait_s AS wait_us,
  t.rtt_us - 1e6 * t.wait_s AS path_us,
  t.rtt_us - 1e6 * max(greatest(q.wait_s, q.next_s)) AS least_us,
  t.rtt_us - 1e6 * min(least(q.wait_s, q.next_s)) AS most_us
FROM (
  SELECT t.*, coalesce(b.ns, t.sample_ns) AS first_ns,
    unnest(generate_series(first_ns // 1000000000, t.ns // 1000000000)) AS second
  FROM trips t ASOF LEFT JOIN samples b
    ON b.run_id = t.run_id AND b.flow = t.flow AND least(t.sent_ns, t.sample_ns) >= b.ns
) t JOIN samples q ON q.run_id = t.run_id AND q.flow = t.flow AND q.ns // 1000000000 = t.second
  AND q.ns BETWEEN t.first_ns AND t.ns
GROUP BY t.run_id, t.flow, t.sample_ns, t.ns, t.rtt_us, t.wait_s
"""

# What the set-up says that a flow's path takes, where it states that this changes: `us` from
# start_ns until end_ns. A run whose path stays has no row.
STATED = f"""
WITH changes AS (
  SELECT run_id, start_ns, value AS us FROM ({stated_changes("rtt")}) WHERE run_id IN {{chosen}}
), stated AS (
  FROM changes
  UNION ALL
  SELECT run_id, 0::BIGINT AS start_ns, coalesce(l.rtt_us,
    1e3 * TRY_CAST(json_extract_string(r.setup, '$.delay') AS DOUBLE)) AS us
  FROM runs r LEFT JOIN lab_runs l USING (run_id) WHERE run_id IN (SELECT run_id FROM changes)
)
SELECT s.run_id, c.flow, s.start_ns, s.us + coalesce(f.extra_rtt_us, 0) AS us,
  coalesce(lead(s.start_ns) OVER w, 9223372036854775807) AS end_ns
FROM stated s JOIN these_chosen c USING (run_id) LEFT JOIN lab_flows f USING (run_id, flow)
WHERE s.us > 0 AND s.start_ns IS NOT NULL
WINDOW w AS (PARTITION BY s.run_id, c.flow ORDER BY s.start_ns)
"""

# What a flow's path takes without a queue, by the second: what the set-up says, where it states
# that the path changes (the longest in that second); else base_rtt_us, or where the path became a
# quarter longer than that (less may be what no sample of the queue shows) or shorter, by whichever
# of the waits around, what the trips of that second and those beside it took without the wait.
# Waits are of whole packets: one of them may not have been there. A stated path is that of no
# packet's length. If the path itself became longer, nearly all trips did, so their lower tenth is
# asked: a link that holds ACKs back to send them together makes most trips longer, but not all.
PATHS = """
SELECT s.run_id, s.flow, s.second,
  1e6 * f.mss / s.link_rate AS packet_us,
  CASE WHEN f.base_is_known THEN packet_us ELSE 0 END AS sent_us, p.us - sent_us AS path_us,
  CASE WHEN d.us IS NOT NULL THEN d.us
    WHEN p.least_us - sent_us > 1.25 * f.base_rtt_us THEN path_us
    WHEN 1.25 * (p.most_us - sent_us + packet_us) < f.base_rtt_us THEN path_us
    ELSE f.base_rtt_us END AS base_us,
  d.us IS NOT NULL OR f.base_is_known AND base_us = f.base_rtt_us AS is_stated
FROM these_seconds s JOIN these_flows f USING (run_id, flow) LEFT JOIN (
  SELECT s.run_id, s.flow, s.second, max(d.us) AS us
  FROM these_seconds s JOIN these_run r USING (run_id) JOIN these_stated d
    ON d.run_id = s.run_id AND d.flow = s.flow
    AND d.start_ns < r.zero_ns + (s.second + 1) * 1000000000::BIGINT
    -- A packet that is on its way when the path changes takes the old one.
    AND d.end_ns + 1e3 * d.us > r.zero_ns + s.second * 1000000000::BIGINT
  GROUP BY ALL
) d USING (run_id, flow, second) LEFT JOIN (
  SELECT run_id, flow, second, median(us) OVER near AS us, median(least_us) OVER near AS least_us,
    median(most_us) OVER near AS most_us
  FROM (SELECT t.run_id, t.flow, (t.ns - r.zero_ns) // 1000000000 AS second,
      median(t.path_us) AS us, quantile_cont(t.least_us, 0.1) AS least_us,
      median(t.most_us) AS most_us
    FROM these_trips t JOIN these_run r USING (run_id) GROUP BY ALL)
  WINDOW near AS (PARTITION BY run_id, flow ORDER BY second
    RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)
) p USING (run_id, flow, second)
"""

# Each flow's share of what all carried in the halves of the time when all were there, and in all of
# it; whether it was still on its way to an equal one. Shares that settled differ by less than five
# points between half of that time and the whole (the catalogue's F-34).
TRENDS = """
WITH halves AS (
  SELECT run_id, s.flow, s.other, coalesce(sum(s.bytes) FILTER (NOT late), 0) AS early,
    coalesce(sum(s.bytes) FILTER (late), 0) AS late
  FROM (SELECT s.*, s.second > (w.first_s + w.last_s) / 2 AS late FROM these_seconds s
    JOIN these_window w USING (run_id) WHERE s.second BETWEEN w.first_s AND w.last_s) s
  GROUP BY ALL
), parts AS (
  SELECT *, early / nullif(sum(early) OVER r, 0) AS first_share,
    late / nullif(sum(late) OVER r, 0) AS second_share,
    (early + late) / nullif(sum(early + late) OVER r, 0) AS whole_share, 1 / count(*) OVER r AS part
  FROM halves WINDOW r AS (PARTITION BY run_id)
)
SELECT run_id, flow, first_share, second_share, whole_share, coalesce(
  abs(first_share - whole_share) > 0.05 AND abs(second_share - part) < abs(first_share - part),
  false) AS converging
FROM parts WHERE flow IS NOT NULL
"""
