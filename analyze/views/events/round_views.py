"""The packet-timed rounds of each flow."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SEQ
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import (
    BW_UNITS,
    FLOW_WINDOW,
    PHASE,
    RUN,
    SOURCE,
    after,
    times,
)

ROUNDS = View(
    "rounds",
    "Packet-timed rounds: from the ACK that began one (bbr.round_start) to the ACK that began the "
    "next. Rounds around a gap of the recording are measured short of what it lacks: gaps > 0.",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("round", "INTEGER", "", "from 1"),
        SEQ,
        Column("start_ns", "UBIGINT", "ns", "the ACK that began it"),
        Column("t_ns", "BIGINT", "ns", "the same on the run's clock, see run_clocks"),
        Column("flow_t_ns", "BIGINT", "ns", "the same since the flow's own first event"),
        Column("duration_ns", "BIGINT", "ns", "to the ACK that began the next, or the last event"),
        Column("phase", "VARCHAR", "", "phase in which it began"),
        Column("delivered", "BIGINT", "packets", "acked or SACKed during it"),
        Column("lost", "BIGINT", "packets", "marked lost during it"),
        Column("loss_rate", "DOUBLE", "", "lost over lost and delivered; NULL: neither"),
        Column("ce", "BIGINT", "packets", "delivered with CE marks; NULL: not recorded"),
        Column("ce_rate", "DOUBLE", "", "ce over delivered; NULL: not recorded"),
        Column("rtt_min_us", "BIGINT", "us", "smallest RTT sample; NULL: none"),
        Column("rtt_mean_us", "DOUBLE", "us", "mean RTT sample; NULL: none"),
        Column("bw", "BIGINT", BW_UNITS, "best delivery rate sample; NULL: none"),
        Column("delivery_mbps", "DOUBLE", "Mbit/s", "delivered x mss over its duration"),
        Column("gaps", "BIGINT", "gaps", "gaps of the recording in it"),
    ),
    f"""
WITH s AS (
  SELECT e.run_id, r.run, e.flow, e.seq, e.ns, f.first_ns, f.last_ns, e.kind,
    e.gap, {PHASE} AS phase, e.rs_acked_sacked AS acked, e.tp_lost AS lost,
    CASE WHEN e.kind = 'main' THEN increase32(e.tp_delivered_ce,
      lag(CASE WHEN e.kind = 'main' THEN e.tp_delivered_ce END IGNORE NULLS) OVER w) END AS ce,
    e.tp_mss_cache AS mss, CASE WHEN e.rs_rtt_us > 0 THEN e.rs_rtt_us END AS rtt,
    bw_of_sample(e.rs_delivered, e.rs_interval_us) AS bw,
    e.kind = 'main' AND {after("e.bbr_round_start")} = 1 AS starts
  {SOURCE} {FLOW_WINDOW}
), placed AS (
  -- A round is told by the event that begins it: to count them up to each event takes four times
  -- as long as to look the last one up.
  SELECT *, last_value(CASE WHEN starts THEN seq END IGNORE NULLS) OVER (
    PARTITION BY run_id, run, flow ORDER BY seq ROWS UNBOUNDED PRECEDING) AS begun_at FROM s
), grouped AS (
  SELECT run_id, run, flow, begun_at AS seq, min(ns) AS start_ns,
    min(first_ns) AS first_ns, min(last_ns) AS last_ns, arg_min(phase, seq) AS phase,
    coalesce(sum(acked), 0)::BIGINT AS delivered, arg_min(lost, seq) AS lost_first,
    arg_max(lost, seq) AS lost_last, sum(ce)::BIGINT AS ce,
    min(rtt) AS rtt_min_us, avg(rtt) AS rtt_mean_us,
    max(bw) AS bw, sum(acked::BIGINT * mss) AS bytes, count_if(gap)::BIGINT AS gaps
  FROM placed WHERE begun_at IS NOT NULL GROUP BY run_id, run, flow, begun_at
), timed AS (
  SELECT *, (row_number() OVER w)::INTEGER AS round,
    (coalesce(lead(start_ns) OVER w, last_ns) - start_ns)::BIGINT AS duration_ns,
    increase32(coalesce(lead(lost_first) OVER w, lost_last), lost_first) AS lost
  FROM grouped WINDOW w AS (PARTITION BY run_id, run, flow ORDER BY seq)
)
SELECT run_id, run, flow, round, seq, start_ns, {times("start_ns", "first_ns")},
  duration_ns, phase, delivered, lost, lost / nullif(lost + delivered, 0) AS loss_rate, ce,
  ce / nullif(delivered, 0) AS ce_rate, rtt_min_us,
  rtt_mean_us, bw, CASE WHEN duration_ns > 0 THEN bytes * 8e3 / duration_ns END AS delivery_mbps,
  gaps
FROM timed JOIN run_clocks k USING (run_id, run) ORDER BY run_id, flow, round
""",
    materialized=True,
)

VIEWS = (ROUNDS,)
