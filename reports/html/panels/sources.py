"""Where signals come from beside a flow's events: rows with a time `ns`, as SQL.

Each query knows $run_id and, but for the queue, $flow; those of bins also $bin_ns, their length.
"""

from __future__ import annotations

# Packet-timed rounds, separated by the tp.delivered that ends them (bbr_update_model() of
# net/ipv4/tcp_bbr.c); one row each, at its first event.
_ROUNDS = """
WITH grown AS (
  SELECT ns, seq, bbr_next_rtt_delivered AS round, tp_delivered_ce IS NOT NULL AS counted,
    tp_lost::BIGINT - lag(tp_lost) OVER w AS lost,
    tp_delivered::BIGINT - lag(tp_delivered) OVER w AS delivered,
    tp_delivered_ce::BIGINT - lag(tp_delivered_ce) OVER w AS ce,
    max(tp_delivered_ce) OVER () > 0 AS marked
  FROM events WHERE run_id = $run_id AND flow = $flow AND bbr_next_rtt_delivered IS NOT NULL
  WINDOW w AS (ORDER BY seq)
)
SELECT min(ns) AS ns, min(seq) AS seq, sum(greatest(lost, 0)) AS lost,
  sum(greatest(delivered, 0)) AS delivered, sum(greatest(ce, 0)) AS ce, any_value(marked) AS marked
FROM grown GROUP BY round
"""

# The capture point may lie behind a bottleneck that dropped the first copy: what tshark then calls
# out of order was most often sent again.
AGAIN = "coalesce(retransmission OR out_of_order, false)"

_SEGMENTS = f"""
SELECT ns, packet AS seq, increase32(seq_raw::BIGINT + len, 0) AS edge, len, {AGAIN} AS again,
  coalesce(ecn = 3, false) AS ce, bytes_in_flight AS in_flight
FROM packets WHERE run_id = $run_id AND flow = $flow AND len > 0 AND ns IS NOT NULL
"""

# An ACK that ends a repair answers packets that had come long before: no RTT.
_ACKS = """
SELECT ns, packet AS seq, CASE WHEN sack_left IS NULL AND lag(sack_left) OVER (ORDER BY packet)
  IS NULL THEN ack_rtt_ns // 1000 END AS rtt_us,
  increase32(sack_right[1]::BIGINT - ack + ack_raw, 0) AS sack_edge,
  increase32(sack_right[1], sack_left[1]) AS sack_len,
  coalesce(ece, false) AS ece
FROM packets
WHERE run_id = $run_id AND ack_flow = $flow AND ack_raw IS NOT NULL AND ns IS NOT NULL
"""

# ACKs advance in leaps while holes are filled, which no link carries; segments pass one by one. Of
# those sent again the last copy counts, which is what arrived. (Numbers wrap, so that the same one
# may come back; then it was not sent again.) Few are: only their copies are put in order.
_WIRE = f"""
WITH passed AS (
  SELECT packet, ns, len, frame_len, seq_raw, {AGAIN} AS again
  FROM packets WHERE run_id = $run_id AND flow = $flow AND len > 0 AND ns IS NOT NULL
), repeated AS (
  SELECT DISTINCT seq_raw FROM passed WHERE again
), segments AS (
  SELECT ns, len, frame_len, again, lead(again) OVER copies AS comes_again
  FROM passed SEMI JOIN repeated USING (seq_raw)
  WINDOW copies AS (PARTITION BY seq_raw ORDER BY packet)
  UNION ALL
  SELECT ns, len, frame_len, again, NULL FROM passed ANTI JOIN repeated USING (seq_raw)
), sent AS (
  SELECT ns // $bin_ns AS bin, sum(frame_len) * 8 AS bits,
    sum(frame_len) FILTER (again) * 8 AS again_bits,
    sum(len) FILTER (comes_again IS NOT TRUE) * 8 AS good_bits
  FROM segments GROUP BY bin
), bins AS (
  SELECT unnest(generate_series(min(bin)::BIGINT, max(bin)::BIGINT + 1)) AS bin,
    max(bin)::BIGINT AS last FROM sent
), ends AS (
  SELECT max(last_ns)::BIGINT AS ns,
    (SELECT max(p.ns)::BIGINT FROM packets p WHERE p.run_id = $run_id) // $bin_ns AS cut
  FROM flows WHERE run_id = $run_id AND flow = $flow
)
-- Where the capture ended before the flow did, nothing is known of the rest: not a rate of 0. Nor
-- of the bin in which it ended.
SELECT (bin * $bin_ns)::UBIGINT AS ns, bin AS seq, $bin_ns / 1e9 AS seconds,
  (bin > last OR bin = cut) AND ends.ns > (bin + 1) * $bin_ns AS unknown,
  CASE WHEN unknown THEN NULL ELSE coalesce(bits, 0) END AS bits,
  CASE WHEN unknown THEN NULL ELSE coalesce(again_bits, 0) END AS again_bits,
  CASE WHEN unknown THEN NULL ELSE coalesce(good_bits, 0) END AS good_bits,
  sum(again_bits) OVER () > 0 AS again_any
FROM bins LEFT JOIN sent USING (bin), ends
"""

# What the path can do: its rate, and what of it is left for payload, from each change on; the RTT
# without a queue. The last row draws them to the flow's end.
_PATH = """
WITH flow AS (
  SELECT first_ns::BIGINT AS first_ns, last_ns::BIGINT AS last_ns, (SELECT max(tp_mss_cache)
    FROM events e WHERE e.run_id = $run_id AND e.flow = $flow) AS mss,
    remote_address,
    (SELECT any_value(base_rtt_us) FROM base_rtts b WHERE b.run_id = $run_id AND b.flow = $flow)
      AS base_us
  FROM flows WHERE run_id = $run_id AND flow = $flow
), times AS (
  SELECT first_ns AS ns FROM flow UNION SELECT last_ns FROM flow
  UNION SELECT start_ns FROM link_rates, flow
  WHERE run_id = $run_id AND start_ns BETWEEN first_ns AND last_ns
)
SELECT t.ns, t.ns AS seq, l.bits_per_s, mss,
  frame_bytes(mss, remote_address) AS frame, base_us
FROM times t ASOF LEFT JOIN (SELECT start_ns, bits_per_s FROM link_rates WHERE run_id = $run_id) l
  ON t.ns >= l.start_ns, flow
"""

_QUEUE = """
SELECT *, boottime_ns AS seq FROM queue_samples WHERE run_id = $run_id AND ns IS NOT NULL
"""

_SAMPLES = """
SELECT *, ns AS seq FROM samples WHERE run_id = $run_id AND flow = $flow AND ns IS NOT NULL
"""

# What timestamps tell of the whole path, the sender's way to the capture point included.
_ECHOES = """
SELECT a.ns, a.packet AS seq, a.rtt_us FROM captured_acks a
JOIN senders s ON s.run_id = a.run_id AND s.stream = a.stream AND s.direction = a.direction
WHERE a.run_id = $run_id AND s.flow = $flow AND a.rtt_us IS NOT NULL AND a.ns IS NOT NULL
"""

SOURCES = {
    "echoes": _ECHOES,
    "rounds": _ROUNDS,
    "segments": _SEGMENTS,
    "acks": _ACKS,
    "wire": _WIRE,
    "path": _PATH,
    "queue": _QUEUE,
    "samples": _SAMPLES,
}
