"""The views ready to use: phases, transitions, bounds, rounds, and what limits each flow.

Two rules hold for all of them. The state after an event is the state that the next event found
(``kind = 'init'`` recorded its own); where the recording lacks events (table ``gaps``, known once
the run was replayed) nothing is concluded across the hole. And every view names the run and can be
filtered by it cheaply: windows are partitioned by run, so that DuckDB reads that run alone.
"""

from __future__ import annotations

from .bindings import BINDING, BINDING_SUMMARY
from .model import Column, View
from .recording import FLOW, RUN_ID, SAMPLE
from .view_parts import (
    BW_UNITS,
    FLOW_WINDOW,
    NAMED,
    NS,
    PHASE,
    RUN,
    SEQ,
    SOURCE,
    T_NS,
    UNSET,
    after,
    lead,
)

CODE = Column("code", "USMALLINT", "", "the decision, see decision_codes; NULL: unknown")
EVIDENCE = tuple(
    Column(f"e{i}", "BIGINT", "", f"evidence, named in decision_codes.evidence[{i + 1}]")
    for i in range(4)
)

# Each event with the state after it; what stays unknown is NULL.
_STATES_SQL = f"""
SELECT e.run_id, r.run, r.version, e.flow, e.seq, e.ns,
  (e.ns - f.first_ns)::BIGINT AS t_ns, e.kind,
  {lead("e.ns")} AS next_ns,
  ({lead("e.ns")} - e.ns)::BIGINT AS duration_ns,
  e.gap,
  {PHASE} AS phase_before,
  {after(PHASE)} AS phase,
  {after("e.bbr_inflight_hi")} AS inflight_hi,
  {after("e.bbr_inflight_lo")} AS inflight_lo,
  {after("e.bbr_bw_lo")} AS bw_lo,
  {after("coalesce(greatest(e.bbr_bw_hi_0, e.bbr_bw_hi_1), e.bbr_bw_s_0_v)")} AS max_bw,
  {after("e.bbr_min_rtt_us")} AS min_rtt_us,
  CASE WHEN e.kind IN ('main', 'init') THEN e.exit_snd_cwnd ELSE e.tp_snd_cwnd END AS snd_cwnd,
  CASE WHEN e.kind IN ('main', 'init') THEN e.exit_sk_pacing_rate
    ELSE e.sk_pacing_rate END AS sk_pacing_rate,
  greatest(e.tp_packets_out::BIGINT - e.tp_sacked_out - e.tp_lost_out + e.tp_retrans_out, 0)
    AS inflight,
  {after("e.bbr_round_start")} AS round_start,
  {after("e.bbr_full_bw_reached")} AS full_bw_reached
{SOURCE} {FLOW_WINDOW}
"""

STATES = View(
    "states",
    "One row per event with the state after it; events before init are left out. NULL: unknown, "
    "because the flow or the recording ends or lacks events there, or this BBR version lacks it.",
    (
        RUN_ID,
        RUN,
        Column("version", "VARCHAR", "", "v1, v2 or v3"),
        FLOW,
        SEQ,
        NS,
        T_NS,
        Column("kind", "VARCHAR", "", "the callback that the kernel called"),
        Column("next_ns", "UBIGINT", "ns", "time of the flow's next event"),
        Column("duration_ns", "BIGINT", "ns", "until the next event"),
        Column("gap", "BOOLEAN", "", "the recording lacks events between this one and the next"),
        Column("phase_before", "VARCHAR", "", "phase that the event found, see phases"),
        Column("phase", "VARCHAR", "", "phase after it"),
        Column("inflight_hi", "UINTEGER", "packets", f"after it; {UNSET}: unset"),
        Column("inflight_lo", "UINTEGER", "packets", f"after it; {UNSET}: unset"),
        Column("bw_lo", "UINTEGER", BW_UNITS, f"after it; {UNSET}: unset"),
        Column("max_bw", "UINTEGER", BW_UNITS, "largest bandwidth in the filter, after it"),
        Column("min_rtt_us", "UINTEGER", "us", f"after it; {UNSET}: none yet"),
        Column("snd_cwnd", "UINTEGER", "packets", "at exit (main, init) or entry"),
        Column("sk_pacing_rate", "UBIGINT", "bytes/s", "at exit (main, init) or entry"),
        Column("inflight", "BIGINT", "packets", "in flight at entry"),
        Column("round_start", "UTINYINT", "flag", "after it: this event began a round"),
        Column("full_bw_reached", "UTINYINT", "flag", "after it: the pipe was found full"),
    ),
    _STATES_SQL.replace("e.kind,\n", "e.kind::VARCHAR AS kind,\n", 1),
    kept=True,
)

# Where the phase changes: at an event, or between the two events around a gap (then the time is
# that of the second). The first row of a flow comes from no phase.
_CHANGES = f"""
moves AS (
  SELECT e.run_id, r.run, e.flow, e.seq, e.ns, f.first_ns, f.pre_init, e.gap,
    e.kind = '{SAMPLE}' AS sampled, {PHASE} AS phase, {lead(PHASE)} AS next_phase,
    {lead("e.ns")} AS next_ns
  {SOURCE} {FLOW_WINDOW}
),
changes AS (
  SELECT run_id, run, flow, (seq + gap::INTEGER) AS seq, CASE WHEN gap THEN next_ns ELSE ns END
    AS ns, first_ns, gap, sampled,
    CASE WHEN gap OR sampled THEN next_ns - ns ELSE 0 END AS uncertain_ns, phase AS from_phase,
    next_phase AS to_phase
  FROM moves WHERE phase <> next_phase
  UNION ALL
  SELECT run_id, run, flow, seq, ns, first_ns, false, sampled, 0, NULL, phase FROM moves
  WHERE seq = pre_init
)
"""

# The decision that moved the phase is the first of its event about the mode if the mode changed;
# else about the phase, or v1's policer.
_PHASE_DECISIONS = """
reasons AS (
  SELECT d.run_id, r.run, d.flow, d.seq,
    min_by(struct_pack(code := d.code, name := c.name, e0 := d.e0, e1 := d.e1, e2 := d.e2,
      e3 := d.e3), d.ord) FILTER (c.about = 'mode') AS of_mode,
    min_by(struct_pack(code := d.code, name := c.name, e0 := d.e0, e1 := d.e1, e2 := d.e2,
      e3 := d.e3), d.ord) FILTER (c.about = 'phase') AS of_phase,
    min_by(struct_pack(code := d.code, name := c.name, e0 := d.e0, e1 := d.e1, e2 := d.e2,
      e3 := d.e3), d.ord) FILTER (c.about = 'policer') AS of_policer
  FROM decisions d JOIN runs r USING (run_id) JOIN decision_codes c USING (code)
  WHERE c.change AND c.about IN ('mode', 'phase', 'policer') AND c.name <> 'PRTT_DWELL_START'
  GROUP BY ALL
),
explained AS (
  SELECT c.run_id, c.run, c.flow, c.seq, c.ns, (c.ns - c.first_ns)::BIGINT AS t_ns, c.from_phase,
    c.to_phase, c.gap, c.sampled, c.uncertain_ns::BIGINT AS uncertain_ns,
    CASE WHEN c.gap THEN NULL
      WHEN left(c.from_phase, 8) IS NOT DISTINCT FROM left(c.to_phase, 8)
      THEN CASE WHEN 'PROBE_BW_LT' IN (c.from_phase, c.to_phase)
        THEN coalesce(d.of_policer, d.of_phase) ELSE coalesce(d.of_phase, d.of_policer) END
      ELSE coalesce(d.of_mode, d.of_phase) END AS why
  FROM changes c LEFT JOIN reasons d USING (run_id, run, flow, seq)
)
"""

TRANSITIONS = View(
    "transitions",
    "Every phase change with the decision that made it, and the start of each flow (from_phase "
    "NULL). name says GAP where the recording lacks the event, SAMPLED where samples show the "
    "change but not the decision, MID_FLOW where the recording starts in the middle of a flow, and "
    "is NULL while the run was not replayed.",
    (
        RUN_ID,
        RUN,
        FLOW,
        SEQ,
        NS,
        T_NS,
        Column("from_phase", "VARCHAR", "", "phase before; NULL: the flow begins"),
        Column("to_phase", "VARCHAR", "", "phase after, see phases"),
        CODE,
        Column("name", "VARCHAR", "", "its name, GAP, SAMPLED or MID_FLOW"),
        *EVIDENCE,
        Column("uncertain_ns", "BIGINT", "ns", "so much earlier (GAP) or later (SAMPLED) at most"),
    ),
    f"""
WITH {_CHANGES}, {_PHASE_DECISIONS}
SELECT run_id, run, flow, seq, ns, t_ns, from_phase, to_phase, why.code AS code,
  CASE WHEN gap THEN 'GAP' WHEN sampled THEN 'SAMPLED'
    WHEN from_phase IS NULL AND (why IS NULL OR why.name <> 'INIT') THEN 'MID_FLOW'
    ELSE why.name END AS name,
  why.e0 AS e0, why.e1 AS e1, why.e2 AS e2, why.e3 AS e3, uncertain_ns
FROM explained
ORDER BY run_id, flow, seq, from_phase NULLS FIRST
""",
    kept=True,
)

PHASES = View(
    "phases",
    "One row per contiguous phase of a flow: STARTUP, DRAIN, PROBE_RTT; v2 and v3 PROBE_BW_UP, "
    "_DOWN, _CRUISE, _REFILL; v1 PROBE_BW_1.25, _0.75, _1.0 by pacing gain (the six 1.0 phases "
    "in a row are one) and PROBE_BW_LT while the policer's rate is in use. They tile the flow "
    "from its init (or first event) to its last event.",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("phase", "VARCHAR", "", "name of the phase"),
        Column("start_ns", "UBIGINT", "ns", "the event that began it"),
        Column("end_ns", "UBIGINT", "ns", "the event that ended it, or the flow's last event"),
        Column("duration_ns", "BIGINT", "ns", "end_ns - start_ns"),
        Column("events", "INTEGER", "events", "from its first event to the one that ends it"),
        Column("end_code", "USMALLINT", "", "decision that ended it; NULL: unknown, or the end"),
        Column("end_name", "VARCHAR", "", "its name; GAP, SAMPLED: not recorded; NULL: the end"),
        Column("seq", "INTEGER", "", "the event that began it"),
        Column("t_ns", "BIGINT", "ns", "its start since the flow's first event"),
    ),
    """
WITH t AS (
  SELECT *, lead(ns) OVER w AS next_ns, lead(seq) OVER w AS next_seq, lead(code) OVER w AS end_code,
    lead(name) OVER w AS end_name
  FROM transitions
  WINDOW w AS (PARTITION BY run_id, run, flow ORDER BY seq, from_phase NULLS FIRST)
)
SELECT t.run_id, t.run, t.flow, t.to_phase AS phase, t.ns AS start_ns,
  coalesce(t.next_ns, f.last_ns) AS end_ns, (coalesce(t.next_ns, f.last_ns) - t.ns)::BIGINT
  AS duration_ns, coalesce(t.next_seq, f.events::INTEGER) - t.seq AS events, t.end_code,
  t.end_name, t.seq, t.t_ns
FROM t JOIN flows f USING (run_id, flow)
ORDER BY t.run_id, t.flow, t.seq
""",
    kept=True,
)


_BOUNDS = ("inflight_hi", "inflight_lo", "bw_lo")


def _history(bounds: tuple[str, ...]) -> str:
    """Changes of bounds; the decision is the event's last about it: it left the value."""
    pairs = ", ".join(f"e.bbr_{b} AS old_{b}, {lead(f'e.bbr_{b}')} AS new_{b}" for b in bounds)
    moved = " OR ".join(f"old_{b} <> new_{b}" for b in bounds)
    values = ", ".join(f"{{bound: '{b}', old: old_{b}, new: new_{b}}}" for b in bounds)
    return f"""
WITH h AS (
  SELECT run_id, run, flow, first_ns, gap, sampled, (seq + gap::INTEGER) AS seq,
    CASE WHEN gap THEN next_ns ELSE ns END AS ns, b.bound, b.old, b.new
  FROM (
    SELECT *, unnest([{values}]) AS b FROM (
      SELECT e.run_id, r.run, e.flow, e.seq, e.ns, f.first_ns, e.gap,
        e.kind = '{SAMPLE}' AS sampled, {lead("e.ns")} AS next_ns, {pairs}
      {SOURCE} {FLOW_WINDOW}
    ) WHERE {moved}
  ) WHERE b.old <> b.new
), d AS (
  SELECT d.run_id, r.run, d.flow, d.seq, c.about AS bound, max_by(d.code, d.ord) AS code,
    max_by(c.name, d.ord) AS name, max_by(d.e0, d.ord) AS e0, max_by(d.e1, d.ord) AS e1,
    max_by(d.e2, d.ord) AS e2, max_by(d.e3, d.ord) AS e3
  FROM decisions d JOIN runs r USING (run_id) JOIN decision_codes c USING (code)
  WHERE c.change AND c.about IN {bounds if len(bounds) > 1 else f"('{bounds[0]}')"}
  GROUP BY ALL
)
SELECT h.run_id, h.run, h.flow, h.seq, h.ns, (h.ns - h.first_ns)::BIGINT AS t_ns, h.bound, h.old,
  h.new, CASE WHEN h.gap THEN NULL ELSE d.code END AS code,
  CASE WHEN h.gap THEN 'GAP' WHEN h.sampled THEN 'SAMPLED' ELSE d.name END AS name,
  CASE WHEN h.gap THEN NULL ELSE d.e0 END AS e0, CASE WHEN h.gap THEN NULL ELSE d.e1 END AS e1,
  CASE WHEN h.gap THEN NULL ELSE d.e2 END AS e2, CASE WHEN h.gap THEN NULL ELSE d.e3 END AS e3
FROM h LEFT JOIN d USING (run_id, run, flow, seq, bound)
"""


_HISTORY_COLUMNS = (
    RUN_ID,
    RUN,
    FLOW,
    SEQ,
    NS,
    T_NS,
    Column("old", "UINTEGER", "packets", f"before; {UNSET}: unset"),
    Column("new", "UINTEGER", "packets", f"after; {UNSET}: unset"),
    CODE,
    Column("name", "VARCHAR", "", "its name; GAP, SAMPLED: not recorded"),
    *EVIDENCE,
)

INFLIGHT_HI_HISTORY = View(
    "inflight_hi_history",
    "Every change of inflight_hi (v2, v3) with the decision that made it.",
    _HISTORY_COLUMNS,
    "SELECT * EXCLUDE (bound) FROM (" + _history(("inflight_hi",)) + ") ORDER BY run_id, flow, seq",
    kept=True,
)

BOUNDS_HISTORY = View(
    "bounds_history",
    "Every change of inflight_hi, inflight_lo and bw_lo (v2, v3) with the decision that made it.",
    (
        *_HISTORY_COLUMNS[:6],
        Column("bound", "VARCHAR", "", "inflight_hi, inflight_lo or bw_lo"),
        Column("old", "UINTEGER", "by bound", f"packets, or {BW_UNITS}; {UNSET}: unset"),
        Column("new", "UINTEGER", "by bound", f"packets, or {BW_UNITS}; {UNSET}: unset"),
        *_HISTORY_COLUMNS[8:],
    ),
    "FROM (" + _history(_BOUNDS) + ") ORDER BY run_id, flow, seq, bound",
    kept=True,
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
        Column("t_ns", "BIGINT", "ns", "the same since the flow's first event"),
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
    CASE WHEN e.kind = 'main' THEN (e.tp_delivered_ce::BIGINT
      - lag(CASE WHEN e.kind = 'main' THEN e.tp_delivered_ce END IGNORE NULLS) OVER w
      + 4294967296) % 4294967296 END AS ce,
    e.tp_mss_cache AS mss, CASE WHEN e.rs_rtt_us > 0 THEN e.rs_rtt_us END AS rtt,
    CASE WHEN e.rs_delivered > 0 AND e.rs_interval_us > 0
      THEN ((e.rs_delivered::HUGEINT << 24) // e.rs_interval_us)::BIGINT END AS bw,
    (e.kind = 'main' AND {after("e.bbr_round_start")} = 1)::INTEGER AS starts
  {SOURCE} {FLOW_WINDOW}
), numbered AS (
  SELECT *, sum(starts) OVER (PARTITION BY run_id, run, flow ORDER BY seq) AS round FROM s
), grouped AS (
  SELECT run_id, run, flow, round::INTEGER AS round, min(seq) AS seq, min(ns) AS start_ns,
    min(first_ns) AS first_ns, min(last_ns) AS last_ns, arg_min(phase, seq) AS phase,
    coalesce(sum(acked), 0)::BIGINT AS delivered, arg_min(lost, seq) AS lost_first,
    arg_max(lost, seq) AS lost_last, sum(ce)::BIGINT AS ce,
    min(rtt) AS rtt_min_us, avg(rtt) AS rtt_mean_us,
    max(bw) AS bw, sum(acked::BIGINT * mss) AS bytes, count_if(gap)::BIGINT AS gaps
  FROM numbered WHERE round > 0 GROUP BY run_id, run, flow, round
), timed AS (
  SELECT *, (coalesce(lead(start_ns) OVER w, last_ns) - start_ns)::BIGINT AS duration_ns,
    (coalesce(lead(lost_first) OVER w, lost_last)::BIGINT - lost_first + 4294967296) % 4294967296
    AS lost
  FROM grouped WINDOW w AS (PARTITION BY run_id, run, flow ORDER BY round)
)
SELECT run_id, run, flow, round, seq, start_ns, (start_ns - first_ns)::BIGINT AS t_ns, duration_ns,
  phase, delivered, lost, lost / nullif(lost + delivered, 0) AS loss_rate, ce,
  ce / nullif(delivered, 0) AS ce_rate, rtt_min_us,
  rtt_mean_us, bw, CASE WHEN duration_ns > 0 THEN bytes * 8e3 / duration_ns END AS delivery_mbps,
  gaps
FROM timed ORDER BY run_id, flow, round
""",
    kept=True,
)

FLOW_SUMMARY = View(
    "flow_summary",
    "One row per flow: who, how much, how fast, in which phases, and how far to trust it.",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("version", "VARCHAR", "", "v1, v2 or v3"),
        Column("local", "VARCHAR", "", "address:port; NULL: unknown"),
        Column("remote", "VARCHAR", "", "address:port; NULL: unknown"),
        Column("events", "BIGINT", "events", "events of all kinds"),
        Column("duration_ns", "BIGINT", "ns", "first event to last"),
        Column("delivered", "BIGINT", "packets", "acked or SACKed (growth of tp.delivered)"),
        Column(
            "delivered_bytes",
            "BIGINT",
            "bytes",
            "the same times the mean tp.mss_cache; samples: growth of tp.snd_una",
        ),
        Column("throughput_mbps", "DOUBLE", "Mbit/s", "delivered_bytes over the duration"),
        Column("lost", "BIGINT", "packets", "marked lost (growth of tp.lost)"),
        Column("min_rtt_us", "UINTEGER", "us", "at the last event; NULL: none"),
        Column("rtt_min_us", "BIGINT", "us", "smallest RTT sample; NULL: none"),
        Column("srtt_mean_us", "DOUBLE", "us", "mean of the smoothed RTT over ACKs"),
        Column("srtt_p95_us", "DOUBLE", "us", "its 95th percentile"),
        Column("mss", "UINTEGER", "bytes", "at the last event"),
        Column("max_bw", "UINTEGER", BW_UNITS, "largest bandwidth in the filter at any time"),
        Column("max_bw_mbps", "DOUBLE", "Mbit/s", "the same with mss"),
        *(
            Column(f"share_{mode.lower()}", "DOUBLE", "", f"share of time in {mode}")
            for mode in ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
        ),
        Column("final_phase", "VARCHAR", "", "phase at the last event"),
        Column("final_inflight_hi", "UINTEGER", "packets", f"at the last event; {UNSET}: unset"),
        Column("final_inflight_lo", "UINTEGER", "packets", f"at the last event; {UNSET}: unset"),
        Column("final_bw_lo", "UINTEGER", BW_UNITS, f"at the last event; {UNSET}: unset"),
        Column("has_init", "BOOLEAN", "", "its init was recorded"),
        Column("replayed", "BIGINT", "events", "events compared in step mode; NULL: not replayed"),
        Column("exact", "BIGINT", "events", "of these, exact"),
        Column("gaps", "BIGINT", "gaps", "gaps of the recording; NULL: not replayed"),
    ),
    f"""
WITH s AS (
  SELECT e.run_id, r.run, r.version, e.flow, e.seq, e.ns, {PHASE} AS phase,
    {lead(PHASE)} AS next_phase, {lead("e.ns")} AS next_ns, e.rs_acked_sacked AS acked,
    e.tp_delivered AS delivered, e.tp_mss_cache AS mss, e.tp_lost AS lost,
    e.tp_srtt_us AS srtt, e.rs_rtt_us AS rtt, e.kind,
    coalesce(greatest(e.bbr_bw_hi_0, e.bbr_bw_hi_1), e.bbr_bw_s_0_v) AS max_bw,
    e.bbr_min_rtt_us AS min_rtt, e.bbr_inflight_hi AS hi, e.bbr_inflight_lo AS lo,
    e.bbr_bw_lo AS bw_lo, e.gap, CASE WHEN e.kind = '{SAMPLE}'
      THEN ({lead("e.tp_snd_una")}::BIGINT - e.tp_snd_una + 4294967296) % 4294967296 END AS grown
  {SOURCE} {FLOW_WINDOW}
), timed AS (
  SELECT *, (next_ns - ns)::BIGINT AS d, CASE WHEN gap THEN phase ELSE next_phase END AS during
  FROM s
), sums AS (
  SELECT run_id, run, version, flow, sum(d) AS span,
    ((arg_max(delivered, seq)::BIGINT - arg_min(delivered, seq) + 4294967296) % 4294967296)
    AS delivered,
    sum(acked::BIGINT * mss) FILTER (kind = 'main')
    / nullif(sum(acked) FILTER (kind = 'main'), 0) AS size,
    sum(grown) FILTER (grown < 2147483648) AS sampled_bytes,
    arg_min(lost, seq) AS lost_first, arg_max(lost, seq) AS lost_last,
    arg_max(min_rtt, seq) AS min_rtt, min(rtt) FILTER (rtt > 0) AS rtt_min,
    avg(srtt / 8) FILTER (kind IN ('main', '{SAMPLE}') AND srtt > 0) AS srtt_mean,
    quantile_cont(srtt / 8, 0.95) FILTER (kind IN ('main', '{SAMPLE}') AND srtt > 0) AS srtt_p95,
    arg_max(mss, seq) AS mss, max(max_bw) AS max_bw,
    sum(d) FILTER (during = 'STARTUP') AS d_startup, sum(d) FILTER (during = 'DRAIN') AS d_drain,
    sum(d) FILTER (during LIKE 'PROBE_BW%') AS d_bw,
    sum(d) FILTER (during = 'PROBE_RTT') AS d_rtt, arg_max(phase, seq) AS final_phase,
    arg_max(hi, seq) AS hi, arg_max(lo, seq) AS lo, arg_max(bw_lo, seq) AS bw_lo
  FROM timed GROUP BY run_id, run, version, flow
)
SELECT s.run_id, s.run, s.flow, s.version,
  f.local_address || ':' || f.local_port AS local, f.remote_address || ':' || f.remote_port
  AS remote, f.events, (f.last_ns - f.first_ns)::BIGINT AS duration_ns,
  s.delivered::BIGINT AS delivered,
  s.bytes AS delivered_bytes,
  CASE WHEN f.last_ns > f.first_ns THEN s.bytes * 8e3 / (f.last_ns - f.first_ns) END
    AS throughput_mbps,
  (s.lost_last::BIGINT - s.lost_first + 4294967296) % 4294967296 AS lost,
  CASE WHEN s.min_rtt <> {UNSET} THEN s.min_rtt END AS min_rtt_us, s.rtt_min AS rtt_min_us,
  s.srtt_mean AS srtt_mean_us, s.srtt_p95 AS srtt_p95_us, s.mss, s.max_bw,
  s.max_bw::DOUBLE * s.mss * 8 / 16777216 AS max_bw_mbps,
  CASE WHEN s.span > 0 THEN coalesce(s.d_startup, 0) / s.span END AS share_startup,
  CASE WHEN s.span > 0 THEN coalesce(s.d_drain, 0) / s.span END AS share_drain,
  CASE WHEN s.span > 0 THEN coalesce(s.d_bw, 0) / s.span END AS share_probe_bw,
  CASE WHEN s.span > 0 THEN coalesce(s.d_rtt, 0) / s.span END AS share_probe_rtt,
  s.final_phase, s.hi AS final_inflight_hi, s.lo AS final_inflight_lo, s.bw_lo AS final_bw_lo,
  f.has_init, p.events AS replayed, p.exact, p.gaps
FROM (
  SELECT *, coalesce(sampled_bytes, round(delivered * coalesce(size, mss, 0)))::BIGINT AS bytes
  FROM sums
) s JOIN flows f USING (run_id, flow)
LEFT JOIN replays p ON p.run_id = s.run_id AND p.flow = s.flow AND p.mode = 'step'
ORDER BY s.run_id, s.flow
""",
    kept=True,
)

REPAIRS = View(
    "repairs",
    "Each packet that was marked lost, and when the kernel sent it again: v1's loss_marks, v2's "
    "and v3's events of kind skb_marked_lost, each with the next of retransmits that begins with "
    "the same byte. What the packets themselves say of it is in loss_timeline.",
    (
        RUN_ID,
        RUN,
        FLOW,
        NS,
        T_NS,
        Column("skb_seq", "UINTEGER", "", "first sequence number of the lost packet"),
        Column("skb_end_seq", "UINTEGER", "", "the one after its last"),
        Column("skb_gso_segs", "USMALLINT", "packets", "it stands for so many"),
        Column(
            "resent_ns", "UBIGINT", "ns", "when it was sent again; NULL: not recorded, or never"
        ),
        Column("repair_ns", "BIGINT", "ns", "from the mark to that"),
    ),
    """
WITH marks AS (
  SELECT run_id, flow, ns, skb_seq, skb_end_seq, skb_gso_segs FROM loss_marks
  UNION ALL
  SELECT run_id, flow, ns, skb_seq, skb_end_seq, skb_gso_segs FROM events
  WHERE kind = 'skb_marked_lost'
)
SELECT m.run_id, r.run, m.flow, m.ns, (m.ns - f.first_ns)::BIGINT AS t_ns, m.skb_seq,
  m.skb_end_seq, m.skb_gso_segs, a.ns AS resent_ns, (a.ns - m.ns)::BIGINT AS repair_ns
FROM marks m JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
ASOF LEFT JOIN retransmits a ON a.run_id = m.run_id AND a.flow = m.flow
  AND a.skb_seq = m.skb_seq AND a.ns >= m.ns
""",
)

DECISION_LOG = View(
    "decision_log",
    "Every decision with its name, what it is about, and where it comes from.",
    (
        RUN_ID,
        RUN,
        FLOW,
        SEQ,
        Column("ord", "USMALLINT", "", "order within the event, from 0"),
        NS,
        T_NS,
        Column("code", "USMALLINT", "", "see decision_codes"),
        Column("name", "VARCHAR", "", "stable name"),
        Column("about", "VARCHAR", "", "what it decides on"),
        Column("change", "BOOLEAN", "", "it changed that; false: deliberately kept it"),
        *EVIDENCE,
        Column("evidence", "VARCHAR[]", "", "names of e0 to e3"),
        Column("sentence", "VARCHAR", "", "template; braces name the evidence"),
        Column("function", "VARCHAR", "", "kernel function"),
        Column("draft", "VARCHAR", "", "section of draft-ietf-ccwg-bbr"),
    ),
    f"""
SELECT d.run_id, r.run, d.flow, d.seq, d.ord, d.ns, (d.ns - f.first_ns)::BIGINT AS t_ns, d.code,
  {NAMED}, d.e0, d.e1, d.e2, d.e3, c.evidence, c.sentence, c.function, c.draft
FROM decisions d JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
JOIN decision_codes c USING (code)
""",
    kept=True,
)

TABLES = ()
VIEWS = (
    STATES,
    TRANSITIONS,
    PHASES,
    INFLIGHT_HI_HISTORY,
    BOUNDS_HISTORY,
    ROUNDS,
    FLOW_SUMMARY,
    REPAIRS,
    DECISION_LOG,
    BINDING,
    BINDING_SUMMARY,
)
