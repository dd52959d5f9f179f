"""Every change of inflight_hi, inflight_lo and bw_lo, and the decision that made it."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SAMPLE, SEQ
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import (
    BW_UNITS,
    CODE,
    EVIDENCE,
    FLOW_T_NS,
    FLOW_WINDOW,
    NS,
    RUN,
    SOURCE,
    T_NS,
    UNSET,
    lead,
    times,
)

_BOUNDS = ("inflight_hi", "inflight_lo", "bw_lo")
_PAIRS = ", ".join(f"e.bbr_{b} AS old_{b}, {lead(f'e.bbr_{b}')} AS new_{b}" for b in _BOUNDS)
_MOVED = " OR ".join(f"old_{b} <> new_{b}" for b in _BOUNDS)
_VALUES = ", ".join(f"{{bound: '{b}', old: old_{b}, new: new_{b}}}" for b in _BOUNDS)

# Changes of bounds; the decision is the event's last about it: it left the value.
_HISTORY = f"""
WITH h AS (
  SELECT run_id, run, flow, first_ns, gap, sampled, (seq + gap::INTEGER) AS seq,
    CASE WHEN gap THEN next_ns ELSE ns END AS ns, b.bound, b.old, b.new
  FROM (
    SELECT *, unnest([{_VALUES}]) AS b FROM (
      SELECT e.run_id, r.run, e.flow, e.seq, e.ns, f.first_ns, e.gap,
        e.kind = '{SAMPLE}' AS sampled, {lead("e.ns")} AS next_ns, {_PAIRS}
      {SOURCE} {FLOW_WINDOW}
    ) WHERE {_MOVED}
  ) WHERE b.old <> b.new
), d AS (
  SELECT d.run_id, r.run, d.flow, d.seq, c.about AS bound, max_by(d.code, d.ord) AS code,
    max_by(c.name, d.ord) AS name, max_by(d.e0, d.ord) AS e0, max_by(d.e1, d.ord) AS e1,
    max_by(d.e2, d.ord) AS e2, max_by(d.e3, d.ord) AS e3
  FROM decisions d JOIN runs r USING (run_id) JOIN decision_codes c USING (code)
  WHERE c.change AND c.about IN {_BOUNDS}
  GROUP BY ALL
)
SELECT h.run_id, h.run, h.flow, h.seq, h.ns, {times("h.ns", "h.first_ns")},
  h.bound, h.old, h.new, CASE WHEN h.gap THEN NULL ELSE d.code END AS code,
  CASE WHEN h.gap THEN 'GAP' WHEN h.sampled THEN 'SAMPLED' ELSE d.name END AS name,
  CASE WHEN h.gap THEN NULL ELSE d.e0 END AS e0, CASE WHEN h.gap THEN NULL ELSE d.e1 END AS e1,
  CASE WHEN h.gap THEN NULL ELSE d.e2 END AS e2, CASE WHEN h.gap THEN NULL ELSE d.e3 END AS e3
FROM h LEFT JOIN d USING (run_id, run, flow, seq, bound) JOIN run_clocks k USING (run_id, run)
"""

_HISTORY_COLUMNS = (
    RUN_ID,
    RUN,
    FLOW,
    SEQ,
    NS,
    T_NS,
    FLOW_T_NS,
    Column("old", "UINTEGER", "packets", f"before; {UNSET}: unset"),
    Column("new", "UINTEGER", "packets", f"after; {UNSET}: unset"),
    CODE,
    Column("name", "VARCHAR", "", "its name; GAP, SAMPLED: not recorded"),
    *EVIDENCE,
)

BOUNDS_HISTORY = View(
    "bounds_history",
    "Every change of inflight_hi, inflight_lo and bw_lo (v2, v3) with the decision that made it.",
    (
        *_HISTORY_COLUMNS[:7],
        Column("bound", "VARCHAR", "", "inflight_hi, inflight_lo or bw_lo"),
        Column("old", "UINTEGER", "by bound", f"packets, or {BW_UNITS}; {UNSET}: unset"),
        Column("new", "UINTEGER", "by bound", f"packets, or {BW_UNITS}; {UNSET}: unset"),
        *_HISTORY_COLUMNS[9:],
    ),
    f"FROM ({_HISTORY}) ORDER BY run_id, flow, seq, bound",
    materialized=True,
)

INFLIGHT_HI_HISTORY = View(
    "inflight_hi_history",
    "Every change of inflight_hi (v2, v3) with the decision that made it.",
    _HISTORY_COLUMNS,
    "SELECT * EXCLUDE (bound) FROM bounds_history WHERE bound = 'inflight_hi'"
    " ORDER BY run_id, flow, seq",
    materialized=True,
)

VIEWS = (
    BOUNDS_HISTORY,
    INFLIGHT_HI_HISTORY,
)
