"""The views that show kernel events beside the captured packets that they belong to."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SEQ
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import FLOW_T_NS, NS, RUN, T_NS, grown, times

ACK_TIMELINE = View(
    "ack_timeline",
    "Each main event beside the captured ACK that triggered it: same acknowledgement number, the "
    "last such packet before the event that no nearer event claims. packet NULL: not captured.",
    (
        RUN_ID,
        RUN,
        FLOW,
        SEQ,
        NS,
        T_NS,
        FLOW_T_NS,
        Column("packet", "UINTEGER", "", "the ACK, see packets; NULL: none found"),
        Column("packet_ns", "UBIGINT", "ns", "when it passed the capture point"),
        Column("lag_ns", "BIGINT", "ns", "from there to the event"),
        Column("snd_una", "UINTEGER", "", "tp.snd_una at the event = ack_raw of the packet"),
        Column("acked_sacked", "UINTEGER", "packets", "rs.acked_sacked: newly delivered"),
        Column("losses", "INTEGER", "packets", "rs.losses: newly marked lost"),
        Column("rtt_us", "BIGINT", "us", "rs.rtt_us; -1: none"),
        Column("sack_left", "UINTEGER[]", "bytes", "SACK blocks of the packet, left edges"),
        Column("sack_right", "UINTEGER[]", "bytes", "right edges"),
        Column("dup_ack", "UINTEGER", "", "tshark: how many-eth duplicate ACK; NULL: none"),
        Column("window", "UINTEGER", "bytes", "window of the packet, scaled"),
        Column("ece", "BOOLEAN", "", "ECE flag of the packet"),
        Column("acks_packet", "UINTEGER", "", "the data packet that it acknowledges"),
        Column("ack_rtt_ns", "BIGINT", "ns", "from that one, at the capture point"),
    ),
    f"""
SELECT e.run_id, r.run, e.flow, e.seq, e.ns, {times("e.ns")},
  m.packet, p.ns AS packet_ns, m.lag_ns, e.tp_snd_una AS snd_una, e.rs_acked_sacked AS acked_sacked,
  e.rs_losses AS losses, e.rs_rtt_us AS rtt_us, p.sack_left, p.sack_right, p.dup_ack, p."window",
  p.ece, p.acks_packet, p.ack_rtt_ns
FROM events e JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
JOIN run_clocks k USING (run_id, run)
LEFT JOIN ack_matches m USING (run_id, flow, seq)
LEFT JOIN packets p ON p.run_id = e.run_id AND p.packet = m.packet
WHERE e.kind = 'main'
""",
    materialized=True,
    rows_of="captures",
)

LOSS_TIMELINE = View(
    "loss_timeline",
    "Each skb_marked_lost event (v2, v3) beside the lost packet and its retransmission, by "
    "sequence number. On a capture taken after the bottleneck's queue, a packet that the queue "
    "dropped has no lost_packet; one that has was lost later, or never lost at all.",
    (
        RUN_ID,
        RUN,
        FLOW,
        SEQ,
        NS,
        T_NS,
        FLOW_T_NS,
        Column("skb_seq", "UINTEGER", "", "first sequence number of the lost packet"),
        Column("skb_end_seq", "UINTEGER", "", "the one after its last"),
        Column("tx_in_flight", "UINTEGER", "packets", "in flight when it was sent"),
        Column("lost_packet", "UINTEGER", "", "the packet; NULL: it did not get to the capture"),
        Column("lost_packet_ns", "UBIGINT", "ns", "when it passed the capture point"),
        Column("resent_packet", "UINTEGER", "", "its retransmission; NULL: not captured"),
        Column("resent_packet_ns", "UBIGINT", "ns", "when that passed the capture point"),
        Column("repair_ns", "BIGINT", "ns", "from being marked lost to the retransmission's pass"),
        Column("passed_ns", "UBIGINT", "ns", "when it passed the capture, or would have"),
        Column(
            "queue_dropped",
            "BIGINT",
            "packets",
            "dropped by the queue between its samples around passed_ns, and the one before; 0: "
            "lost elsewhere; NULL: not sampled",
        ),
    ),
    f"""
WITH drops AS (
  SELECT run_id, ns, {grown("lead(dropped, 1, dropped) OVER w", "lag(dropped, 1, dropped) OVER w")}
    AS dropped
  FROM queue_samples WHERE ns IS NOT NULL
  WINDOW w AS (PARTITION BY run_id, kind ORDER BY ns)
), sampled AS (
  SELECT run_id, ns, max(dropped) AS dropped FROM drops GROUP BY run_id, ns
), located AS (
SELECT e.run_id, r.run, e.flow, e.seq, e.ns, {times("e.ns")},
  e.skb_seq, e.skb_end_seq, e.skb_in_flight AS tx_in_flight, m.lost_packet, l.ns AS lost_packet_ns,
  m.resent_packet, s.ns AS resent_packet_ns, (s.ns - e.ns)::BIGINT AS repair_ns,
  coalesce(l.ns, g.ns) AS passed_ns
FROM events e JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
JOIN run_clocks k USING (run_id, run)
LEFT JOIN loss_matches m USING (run_id, flow, seq)
LEFT JOIN packets l ON l.run_id = e.run_id AND l.packet = m.lost_packet
LEFT JOIN packets s ON s.run_id = e.run_id AND s.packet = m.resent_packet
LEFT JOIN packets g ON g.run_id = e.run_id AND g.packet = m.overtaking_packet
WHERE e.kind = 'skb_marked_lost'
)
SELECT t.*, q.dropped AS queue_dropped
FROM located t ASOF LEFT JOIN sampled q ON q.run_id = t.run_id AND t.passed_ns >= q.ns
""",
    materialized=True,
)

VIEWS = (ACK_TIMELINE, LOSS_TIMELINE)
