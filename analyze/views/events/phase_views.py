"""The phases of each flow, and the decisions that changed them."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SAMPLE, SEQ
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import (
    CODE,
    EVIDENCE,
    FLOW_T_NS,
    FLOW_WINDOW,
    NS,
    PHASE,
    RUN,
    SOURCE,
    T_NS,
    lead,
    times,
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
_PHASE_DECISIONS = f"""
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
  SELECT c.run_id, c.run, c.flow, c.seq, c.ns, {times("c.ns", "c.first_ns")},
    c.from_phase, c.to_phase, c.gap, c.sampled, c.uncertain_ns::BIGINT AS uncertain_ns,
    CASE WHEN c.gap THEN NULL
      WHEN left(c.from_phase, 8) IS NOT DISTINCT FROM left(c.to_phase, 8)
      THEN CASE WHEN 'PROBE_BW_LT' IN (c.from_phase, c.to_phase)
        THEN coalesce(d.of_policer, d.of_phase) ELSE coalesce(d.of_phase, d.of_policer) END
      ELSE coalesce(d.of_mode, d.of_phase) END AS why
  FROM changes c LEFT JOIN reasons d USING (run_id, run, flow, seq)
    JOIN run_clocks k USING (run_id, run)
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
        FLOW_T_NS,
        Column("from_phase", "VARCHAR", "", "phase before; NULL: the flow begins"),
        Column("to_phase", "VARCHAR", "", "phase after, see phases"),
        CODE,
        Column("name", "VARCHAR", "", "its name, GAP, SAMPLED or MID_FLOW"),
        *EVIDENCE,
        Column("uncertain_ns", "BIGINT", "ns", "so much earlier (GAP) or later (SAMPLED) at most"),
    ),
    f"""
WITH {_CHANGES}, {_PHASE_DECISIONS}
SELECT run_id, run, flow, seq, ns, t_ns, flow_t_ns, from_phase, to_phase, why.code AS code,
  CASE WHEN gap THEN 'GAP' WHEN sampled THEN 'SAMPLED'
    WHEN from_phase IS NULL AND (why IS NULL OR why.name <> 'INIT') THEN 'MID_FLOW'
    ELSE why.name END AS name,
  why.e0 AS e0, why.e1 AS e1, why.e2 AS e2, why.e3 AS e3, uncertain_ns
FROM explained
ORDER BY run_id, flow, seq, from_phase NULLS FIRST
""",
    materialized=True,
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
        Column("t_ns", "BIGINT", "ns", "its start on the run's clock, see run_clocks"),
        Column("flow_t_ns", "BIGINT", "ns", "its start since the flow's own first event"),
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
  t.end_name, t.seq, t.t_ns, t.flow_t_ns
FROM t JOIN flows f USING (run_id, flow)
ORDER BY t.run_id, t.flow, t.seq
""",
    materialized=True,
)

VIEWS = (
    TRANSITIONS,
    PHASES,
)
