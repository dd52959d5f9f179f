"""How packets were acknowledged, and how long each flow took."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..runs.sender_views import FLOW_OR_NONE, STREAM
from ..view import View
from ..view_parts import RUN

ACK_AGGREGATION = View(
    "ack_aggregation",
    "How many packets each ACK delivered, and how unevenly ACKs came: from main events, and from "
    "captured ACKs that advance.",
    (
        RUN_ID,
        RUN,
        FLOW_OR_NONE,
        STREAM,
        Column("acks", "BIGINT", "events", "main events that delivered something"),
        Column("per_ack_mean", "DOUBLE", "packets", "rs.acked_sacked, mean"),
        Column("per_ack_p99", "DOUBLE", "packets", "its 99th percentile"),
        Column("per_ack_max", "BIGINT", "packets", "its maximum"),
        Column("extra_acked_max", "BIGINT", "packets", "BBR's largest extra_acked in the filter"),
        Column("pkt_acks", "BIGINT", "packets", "captured ACKs that advance"),
        Column("pkt_per_ack_mean_bytes", "DOUBLE", "bytes", "advance per ACK, mean"),
        Column("pkt_per_ack_max_bytes", "BIGINT", "bytes", "its maximum"),
        Column("pkt_gap_p50_us", "DOUBLE", "us", "between such ACKs, median"),
        Column("pkt_gap_p99_us", "DOUBLE", "us", "its 99th percentile"),
    ),
    """
WITH kernel AS (
  SELECT e.run_id, e.flow, count(*) AS acks, avg(rs_acked_sacked) AS per_ack_mean,
    quantile_cont(rs_acked_sacked, 0.99) AS per_ack_p99,
    max(rs_acked_sacked)::BIGINT AS per_ack_max,
    max(greatest(bbr_extra_acked_0, bbr_extra_acked_1))::BIGINT AS extra_acked_max
  FROM events e JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init
  WHERE e.kind = 'main' AND e.rs_acked_sacked > 0 GROUP BY ALL
), advances AS (
  SELECT *, (ns - lag(ns) OVER (PARTITION BY run_id, stream, direction ORDER BY ns)) / 1e3 AS gap
  FROM captured_acks WHERE acked > 0
), wire AS (
  SELECT run_id, stream, direction, count(*) AS acks, avg(acked) AS mean, max(acked) AS most,
    quantile_cont(gap, 0.5) AS gap_p50, quantile_cont(gap, 0.99) AS gap_p99
  FROM advances GROUP BY ALL
), ends AS (
  SELECT s.run_id, s.stream, s.flow, s.direction FROM streams s
  WHERE s.flow IS NOT NULL OR s.direction = 'data'
)
SELECT r.run_id, r.run, coalesce(k.flow, s.flow) AS flow, s.stream, k.acks, k.per_ack_mean,
  k.per_ack_p99, k.per_ack_max, k.extra_acked_max, w.acks AS pkt_acks,
  w.mean AS pkt_per_ack_mean_bytes, w.most AS pkt_per_ack_max_bytes,
  w.gap_p50 AS pkt_gap_p50_us, w.gap_p99 AS pkt_gap_p99_us
FROM ends s FULL JOIN kernel k ON k.run_id = s.run_id AND k.flow = s.flow
LEFT JOIN wire w ON w.run_id = s.run_id AND w.stream = s.stream AND w.direction = s.direction
JOIN runs r ON r.run_id = coalesce(k.run_id, s.run_id)
""",
    materialized=True,
)

COMPLETION = View(
    "completion",
    "How long each flow took: from its SYN to the ACK of its last byte as the capture saw them, "
    "and from init (after the handshake) to the last event that advanced tp.snd_una.",
    (
        RUN_ID,
        RUN,
        FLOW_OR_NONE,
        STREAM,
        Column("completion_s", "DOUBLE", "s", "init to the last advance; NULL: init not recorded"),
        Column("pkt_completion_s", "DOUBLE", "s", "SYN to the last byte's ACK; NULL: not closed"),
        Column("pkt_bytes", "BIGINT", "bytes", "payload acknowledged from end to end"),
    ),
    """
WITH kernel AS (
  SELECT e.run_id, e.flow,
    (max(e.ns) FILTER (e.acked_bytes > 0) - min(f.first_ns)) / 1e9 AS seconds
  FROM flow_steps e JOIN flows f USING (run_id, flow) WHERE f.has_init GROUP BY ALL
), ends AS (
  SELECT run_id, stream, direction, min(ns) FILTER (flags & 2 <> 0) AS syn_ns,
    max(position + len) AS last_byte, bool_or(flags & 1 <> 0) AS fin
  FROM captured_segments GROUP BY ALL
), closed AS (
  SELECT d.run_id, d.stream, d.direction, d.last_byte,
    (min(a.ns) - any_value(least(d.syn_ns, o.syn_ns))) / 1e9 AS seconds
  FROM ends d JOIN ends o ON o.run_id = d.run_id AND o.stream = d.stream
    AND o.direction <> d.direction
  JOIN captured_acks a ON a.run_id = d.run_id AND a.stream = d.stream
    AND a.direction = d.direction
    AND a.position >= d.last_byte
  WHERE d.fin AND d.syn_ns IS NOT NULL GROUP BY ALL
), sides AS (
  SELECT run_id, stream, direction, flow FROM streams WHERE flow IS NOT NULL OR direction = 'data'
)
SELECT r.run_id, r.run, coalesce(k.flow, s.flow) AS flow, s.stream, k.seconds AS completion_s,
  c.seconds AS pkt_completion_s, c.last_byte - 1 AS pkt_bytes
FROM sides s FULL JOIN kernel k ON k.run_id = s.run_id AND k.flow = s.flow
LEFT JOIN closed c ON c.run_id = s.run_id AND c.stream = s.stream AND c.direction = s.direction
JOIN runs r ON r.run_id = coalesce(k.run_id, s.run_id)
""",
    materialized=True,
)

VIEWS = (ACK_AGGREGATION, COMPLETION)
