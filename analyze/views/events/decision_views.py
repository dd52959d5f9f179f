"""Decisions in words, and what became of each lost packet."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SEQ
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import (
    EVIDENCE,
    FLOW_T_NS,
    NAMED,
    NS,
    RUN,
    T_NS,
    times,
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
        FLOW_T_NS,
        Column("skb_seq", "UINTEGER", "", "first sequence number of the lost packet"),
        Column("skb_end_seq", "UINTEGER", "", "the one after its last"),
        Column("skb_gso_segs", "USMALLINT", "packets", "it stands for so many"),
        Column(
            "resent_ns", "UBIGINT", "ns", "when it was sent again; NULL: not recorded, or never"
        ),
        Column("repair_ns", "BIGINT", "ns", "from the mark to that"),
    ),
    f"""
WITH marks AS (
  SELECT run_id, flow, ns, skb_seq, skb_end_seq, skb_gso_segs FROM loss_marks
  UNION ALL
  SELECT run_id, flow, ns, skb_seq, skb_end_seq, skb_gso_segs FROM events
  WHERE kind = 'skb_marked_lost'
)
SELECT m.run_id, r.run, m.flow, m.ns, {times("m.ns")},
  m.skb_seq, m.skb_end_seq, m.skb_gso_segs, a.ns AS resent_ns, (a.ns - m.ns)::BIGINT AS repair_ns
FROM marks m JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
JOIN run_clocks k USING (run_id, run)
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
        FLOW_T_NS,
        Column("code", "USMALLINT", "", "see decision_codes"),
        Column("name", "VARCHAR", "", "stable name"),
        Column("about", "VARCHAR", "", "what it decides on"),
        Column("change", "BOOLEAN", "", "it changed that; false: deliberately kept it"),
        *EVIDENCE,
        Column("evidence", "VARCHAR[]", "", "names of e0 to e3"),
        Column("sentence", "VARCHAR", "", "template: {evidence}, or {evidence:one|many}"),
        Column("function", "VARCHAR", "", "kernel function"),
        Column("draft", "VARCHAR", "", "section of draft-ietf-ccwg-bbr"),
    ),
    f"""
SELECT d.run_id, r.run, d.flow, d.seq, d.ord, d.ns, {times("d.ns")},
  d.code, {NAMED}, d.e0, d.e1, d.e2, d.e3, c.evidence, c.sentence, c.function, c.draft
FROM decisions d JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
JOIN run_clocks k USING (run_id, run) JOIN decision_codes c USING (code)
""",
)

VIEWS = (
    REPAIRS,
    DECISION_LOG,
)
