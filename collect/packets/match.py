"""The SQL that makes rows of packets out of tshark's text, and joins them to the events.

Parameters by name: ``$run_id``; ``$at``, ``$span``, ``$offset``, ``$drift`` are the line by which
CLOCK_REALTIME becomes CLOCK_MONOTONIC, ``$sudden`` that all of the drift came at once, at ``$at``;
``$shift`` moves it so that no event precedes its ACK.
"""

from __future__ import annotations

from ..bundle.numbers import MAX_NS

# An ACK is processed within this time of passing the capture point, or within twice the 99th
# percentile seen on pairs that leave no choice, whatever is more.
LEAST_LIMIT_NS = 20_000_000
# Flow and connection of the same addresses belong together if their times overlap but for this.
SLACK_NS = 5_000_000_000


# The file of the store; of one in memory, the folder that its queries may spill into.
STORE = """
SELECT coalesce(path, current_setting('temp_directory')) AS path FROM duckdb_databases()
WHERE database_name = current_database()"""

# Fields as `tshark_text` has them; stream as the tshark of a part numbered it, plus 2**32 times
# that part.
STAGE = "CREATE TEMP TABLE staged_packets AS FROM incoming_frames"

# Parts hold different connections, or tshark would have had to see both at once.
SHARED = """
SELECT count(*) AS shared FROM (
  SELECT 1 FROM staged_streams
  GROUP BY least((src, sport), (dst, dport)), greatest((src, sport), (dst, dport))
  HAVING count(DISTINCT stream >> 32) > 1
)
"""

# The two directions of each connection. The one with more payload carries the data; of two that
# carry the same, the one that spoke first.
STAGE_STREAMS = """
CREATE TEMP TABLE staged_streams AS
WITH sides AS (
  SELECT stream, src, sport, dst, dport, min(realtime_ns) AS first_rt, max(realtime_ns) AS last_rt,
    min(packet) AS first_packet, count(*) AS packets, count_if(len > 0) AS segments,
    sum(len)::BIGINT AS payload_bytes, sum(frame_len)::BIGINT AS wire_bytes,
    bool_or(flags & 2 <> 0) AS syn
  FROM staged_packets GROUP BY stream, src, sport, dst, dport
)
SELECT *, CASE WHEN row_number() OVER (PARTITION BY stream
  ORDER BY payload_bytes DESC, first_packet) = 1 THEN 'data' ELSE 'ack' END AS direction,
  NULL::INTEGER AS flow, NULL::INTEGER AS ack_flow
FROM sides JOIN stream_numbers USING (stream)
"""

# A packet seen by two taps comes twice within a moment, the same in every header field; TCP itself
# never sends an IPv4 packet twice under one identification, apart from 0 (don't fragment).
# After a hundred packets of a connection the other end has answered, unseen by the capture.
STAGED = """
WITH steps AS MATERIALIZED (
  SELECT packet, realtime_ns AS rt,
    realtime_ns::BIGINT - lag(realtime_ns) OVER (ORDER BY packet)::BIGINT AS step
  FROM staged_packets
)
SELECT (SELECT count(*) FROM staged_packets) AS packets,
  (SELECT count(DISTINCT stream) FROM staged_streams) AS streams,
  (SELECT min(realtime_ns) FROM staged_packets) AS first_realtime_ns,
  (SELECT max(realtime_ns) FROM staged_packets) AS last_realtime_ns,
  (SELECT count(*) FROM (SELECT stream FROM staged_streams GROUP BY stream
     HAVING NOT bool_or(syn))) AS no_syn,
  (SELECT count(*) FROM (SELECT stream FROM staged_streams GROUP BY stream
     HAVING count(*) = 1 AND sum(packets) >= 100)) AS one_way,
  (SELECT count(*) FROM staged_packets WHERE captured_len::BIGINT + len < frame_len) AS cut_options,
  (SELECT count(*) FROM staged_packets WHERE realtime_ns IS NULL) AS untimed,
  (SELECT {'count': count_if(step < -10000000), 'seconds': coalesce(-min(step), 0) / 1e9}
     FROM steps) AS clock_back,
  (SELECT max({'step': step, 'packet': packet, 'rt': rt}, 200) FILTER (step > 1000000000)
     FROM steps) AS gaps,
  (SELECT coalesce(sum(n - 1), 0)::BIGINT FROM (SELECT count(*) AS n FROM staged_packets
     WHERE ip_id <> 0 GROUP BY stream, src, sport, ip_id, seq_raw, ack_raw, len, flags, tsval
     HAVING n > 1 AND max(realtime_ns) - min(realtime_ns) < 5000000)) AS doubles
"""

# Where the capture's clock was set forward: over a gap in it, a sender's timestamps went on by less
# than the clock, and what a packet needs to the capture point stays longer by that from then on.
# That is its time less its timestamp's; the least of many counts, as queues come and go. What RFC
# 7323 section 5.4 recommends for a tick, 1 ms to 1 s, follows from the rate, Linux's us, too.
AHEAD = """
WITH gaps AS (SELECT unnest($gaps, recursive := true)
), near AS (
  SELECT g.packet AS gap, g.step, g.rt, p.packet >= g.packet AS past, p.stream, p.src, p.sport,
    p.realtime_ns::BIGINT AS ns,
    -- From the first one on, beyond 2**32 of them.
    ((p.tsval::BIGINT - first_value(p.tsval) OVER w + 2147483648) & 4294967295) - 2147483648
      AS tsval,
    p.realtime_ns::BIGINT - lag(p.realtime_ns::BIGINT) OVER w AS step_ns,
    (p.tsval::BIGINT - lag(p.tsval) OVER w) & 4294967295 AS step_ticks
  FROM gaps g JOIN staged_packets p
    ON p.packet BETWEEN g.packet::BIGINT - 5000 AND g.packet::BIGINT + 4999
  WHERE p.tsval IS NOT NULL
  WINDOW w AS (PARTITION BY g.packet, p.stream, p.src, p.sport ORDER BY p.packet)
), rates AS (
  SELECT *, sum(step_ticks) FILTER (steady) OVER side * 1e9
    / nullif(sum(step_ns) FILTER (steady) OVER side, 0) AS hz
  FROM (SELECT *, step_ns BETWEEN 0 AND 1000000000 AND step_ticks < 2147483648 AS steady FROM near)
  WINDOW side AS (PARTITION BY gap, stream, src, sport)
), timed AS (
  SELECT *, CASE WHEN hz BETWEEN 5e5 AND 2e6 THEN 1000 WHEN hz BETWEEN 500 AND 2000 THEN 1000000
    WHEN hz BETWEEN 180 AND 350 THEN 4000000 WHEN hz BETWEEN 50 AND 150 THEN 10000000 END AS tick
  FROM rates
), sides AS (
  SELECT gap, any_value(step) AS step, any_value(rt) AS rt, min(ns - tsval * tick) FILTER (past)
    - min(ns - tsval * tick) FILTER (NOT past) AS ahead
  FROM timed WHERE tick IS NOT NULL GROUP BY gap, stream, src, sport
), jumps AS (
  -- Clocks that are right differ by 500 ppm at most, and paths by much less than half a second.
  SELECT gap, any_value(rt) AS rt, max(ahead) AS ahead FROM sides
  GROUP BY gap HAVING min(ahead) > 500000000 + any_value(step) // 2000
)
SELECT count(*) AS count, max(ahead) / 1e9 AS seconds, arg_max(gap, ahead) AS packet,
  arg_max(rt, ahead) AS realtime_ns
FROM jumps
"""


def clock(realtime: str) -> str:
    """The SQL that puts a CLOCK_REALTIME column [ns] on CLOCK_MONOTONIC, before `$shift`.

    Computed as HUGEINT, then kept between -MAX_NS and MAX_NS (2**62 - 1): no time of a recording
    lies beyond, and the difference of two results fits in BIGINT. NULL where there is no time.
    """
    gone = f"({realtime}::HUGEINT - $at::HUGEINT)"
    return (
        f"CASE WHEN {realtime} IS NOT NULL THEN least(greatest("
        f"{realtime}::HUGEINT - $offset::HUGEINT - CASE WHEN $sudden THEN"
        f" ({gone} >= 0)::HUGEINT * $drift::HUGEINT ELSE $drift::HUGEINT * {gone}"
        f" // $span::HUGEINT END, -{MAX_NS}), {MAX_NS})::BIGINT END"
    )


def _plain(address: str) -> str:
    """An address that kernel and capture write alike: IPv4 without its IPv6 mapping."""
    return f"regexp_replace(lower({address}), '^::ffff:([0-9.]+)$', '\\1')"


# Whose flow each direction is: the same addresses and ports and, where one 4-tuple was used again,
# the longest time in common. The local address may be unknown.
OWNERS = f"""
UPDATE staged_streams SET flow = found.flow, ack_flow = found.ack_flow
FROM (
  WITH ends AS (
    SELECT flow, {_plain("local_address")} AS local, local_port,
      {_plain("remote_address")} AS remote, remote_port,
      first_ns::BIGINT AS first_ns, last_ns::BIGINT AS last_ns
    FROM flows WHERE run_id = $run_id
  ), sides AS (
    SELECT stream, src, sport, dst, dport, {_plain("src")} AS here, {_plain("dst")} AS there,
      {clock("first_rt")} AS first_ns, {clock("last_rt")} AS last_ns
    FROM staged_streams
  ), candidates AS (
    SELECT s.stream, s.src, s.sport, e.flow, e.sends,
      CASE WHEN $known THEN least(s.last_ns, e.last_ns) - greatest(s.first_ns, e.first_ns)
        ELSE 0 END AS overlap
    FROM sides s JOIN (
      SELECT *, true AS sends FROM ends UNION ALL BY NAME
      SELECT flow, local AS remote, local_port AS remote_port, remote AS local,
        remote_port AS local_port, first_ns, last_ns, false AS sends FROM ends
    ) e ON e.local_port = s.sport AND e.remote_port = s.dport
      AND coalesce(e.local, s.here) = s.here AND coalesce(e.remote, s.there) = s.there
  ), chosen AS (
    SELECT stream, src, sport, sends, arg_max(flow, overlap) AS flow FROM candidates
    WHERE overlap > -{SLACK_NS} GROUP BY stream, src, sport, sends
  )
  SELECT stream, src, sport, max(flow) FILTER (sends) AS flow,
    max(flow) FILTER (NOT sends) AS ack_flow
  FROM chosen GROUP BY stream, src, sport
) found
WHERE staged_streams.stream = found.stream AND staged_streams.src = found.src
  AND staged_streams.sport = found.sport
"""

# What tells why no packet belongs to a flow: times of both on CLOCK_MONOTONIC.
WITHOUT_OWNER = f"""
SELECT p.*, f.* FROM
  (SELECT count(flow) + count(ack_flow) AS owned, sum(packets)::BIGINT AS packets,
     min({clock("first_rt")}) AS first_packet_ns, max({clock("last_rt")}) AS last_packet_ns
   FROM staged_streams) p,
  (SELECT min(first_ns)::BIGINT AS first_event_ns, max(last_ns)::BIGINT AS last_event_ns
   FROM flows WHERE run_id = $run_id) f
"""

# Without any other record each connection that carried data is a flow, of the end that sent most.
NUMBER_FLOWS = """
UPDATE staged_streams SET flow = CASE direction WHEN 'data' THEN found.flow END,
  ack_flow = CASE direction WHEN 'ack' THEN found.flow END
FROM (
  SELECT stream, row_number() OVER (ORDER BY number)::INTEGER AS flow FROM staged_streams
  WHERE direction = 'data' AND payload_bytes > 0
) found
WHERE staged_streams.stream = found.stream
"""
ADD_FLOWS = f"""
INSERT INTO flows BY NAME
SELECT $run_id::INTEGER AS run_id, max(flow) AS flow,
  any_value(src) FILTER (flow IS NOT NULL) AS local_address,
  any_value(sport) FILTER (flow IS NOT NULL) AS local_port,
  any_value(dst) FILTER (flow IS NOT NULL) AS remote_address,
  any_value(dport) FILTER (flow IS NOT NULL) AS remote_port,
  {clock("min(first_rt)")} AS first_ns, {clock("max(last_rt)")} AS last_ns,
  0 AS events, 0 AS main, false AS has_init, 0 AS pre_init
FROM staged_streams GROUP BY stream HAVING max(flow) IS NOT NULL ORDER BY flow
"""

# Acknowledgement numbers that one packet carries and one main() found as snd_una leave no choice:
# their lags tell how the clocks relate. A few pairs are wrong, where the capture missed the ACK
# and saw a later one, so the earliest is taken at 0.1 %. A packet without a time tells nothing.
PAIRS = f"""
WITH acks AS (
  SELECT s.ack_flow AS flow, p.ack_raw AS ack, min({clock("p.realtime_ns")}) AS ns
  FROM staged_packets p JOIN staged_streams s
    ON s.stream = p.stream AND s.src = p.src AND s.sport = p.sport
  WHERE s.ack_flow IS NOT NULL AND p.ack_raw IS NOT NULL
  GROUP BY s.ack_flow, p.ack_raw HAVING count(*) = 1 AND count(p.realtime_ns) = 1
), mains AS (
  SELECT flow, tp_snd_una AS ack, min(ns)::BIGINT AS ns FROM events
  WHERE run_id = $run_id AND kind = 'main' GROUP BY flow, tp_snd_una HAVING count(*) = 1
), lags AS (
  SELECT m.ns - a.ns AS lag FROM acks a JOIN mains m USING (flow, ack)
)
SELECT count(*) AS pairs, quantile_disc(lag, 0.001) AS earliest, min(lag) AS lag_min_ns,
  quantile_disc(lag, 0.5) AS lag_p50_ns, quantile_disc(lag, 0.99) AS lag_p99_ns,
  max(lag) AS lag_max_ns
FROM lags
"""


def _time(realtime: str) -> str:
    """packets.ns: NULL without a clock or a time, never below 0."""
    known = f"$shift IS NOT NULL AND {realtime} IS NOT NULL"
    return f"CASE WHEN {known} THEN greatest({clock(realtime)} + $shift::BIGINT, 0) END"


KEEP_STREAMS = f"""
INSERT INTO streams BY NAME
SELECT $run_id::INTEGER AS run_id, * EXCLUDE (stream, number, first_rt, last_rt, first_packet),
  number AS stream,
  {_time("first_rt")} AS first_ns, {_time("last_rt")} AS last_ns
FROM staged_streams ORDER BY number, direction
"""

KEEP_PACKETS = f"""
INSERT INTO packets BY NAME
SELECT $run_id::INTEGER AS run_id, p.* EXCLUDE (stream), s.number AS stream,
  {_time("p.realtime_ns")} AS ns, s.direction, s.flow, s.ack_flow,
  p.dsfield & 3 AS ecn, p.flags & 64 <> 0 AS ece, p.flags & 128 <> 0 AS cwr,
  (p.flags >> 6) & 7 AS ace
FROM staged_packets p JOIN staged_streams s
  ON s.stream = p.stream AND s.src = p.src AND s.sport = p.sport
"""

# The ACK that each main() processed. An ACK calls main() once or (nothing new in it) not at all,
# and in order; several packets may carry the same number. First guess: the last packet of that
# number before the event. ACKs processed in a batch guess the same packet: going back in time from
# event to event, each then takes the packet before the one taken last, place(k) = min(guess(k),
# place(k - 1) - 1), which is a running minimum of guess + k, less k.
ACKS = """
INSERT INTO ack_matches BY NAME
WITH acks AS (
  SELECT ack_flow AS flow, ack_raw AS ack, ns::BIGINT AS ns, packet,
    row_number() OVER (PARTITION BY ack_flow, ack_raw ORDER BY ns, packet) AS place
  FROM packets WHERE run_id = $run_id AND ack_flow IS NOT NULL AND ack_raw IS NOT NULL
), mains AS (
  SELECT flow, seq, tp_snd_una AS ack, ns::BIGINT AS ns FROM events
  WHERE run_id = $run_id AND kind = 'main'
), guesses AS (
  SELECT m.flow, m.seq, m.ack, m.ns, a.place,
    row_number() OVER (PARTITION BY m.flow, m.ack ORDER BY m.seq DESC) AS k
  FROM mains m ASOF JOIN acks a ON m.flow = a.flow AND m.ack = a.ack AND m.ns >= a.ns
), settled AS (
  SELECT flow, seq, ack, ns,
    min(place + k) OVER (PARTITION BY flow, ack ORDER BY k) - k AS place
  FROM guesses
)
SELECT $run_id::INTEGER AS run_id, s.flow, s.seq, a.packet, s.ns - a.ns AS lag_ns
FROM settled s JOIN acks a USING (flow, ack, place)
WHERE s.ns - a.ns <= $limit::BIGINT
"""

# The lost packet is the last one sent up to the same sequence number before it was marked lost, the
# retransmission the first one after, and the one that overtook it the first that carried data from
# beyond it: about then the lost one would have passed. Joined by skb.end_seq: what recordings hold
# as skb.seq reads as a time in us, not as a sequence number.
LOSSES = """
INSERT INTO loss_matches BY NAME
WITH sent AS (
  SELECT flow, (seq_raw::BIGINT + len) % 4294967296 AS end_seq, ns, packet FROM packets
  WHERE run_id = $run_id AND flow IS NOT NULL AND len > 0
), starts AS (
  SELECT flow, min(seq_raw::BIGINT - seq) AS zero FROM packets
  WHERE run_id = $run_id AND flow IS NOT NULL AND seq_raw >= seq GROUP BY flow
), edges AS (
  SELECT flow, edge, min(packet) AS packet FROM (
    SELECT flow, packet, max(seq::BIGINT + len) OVER (PARTITION BY flow ORDER BY packet) AS edge
    FROM packets WHERE run_id = $run_id AND flow IS NOT NULL AND len > 0
  ) GROUP BY flow, edge
), losses AS (
  SELECT e.flow, e.seq, e.ns, skb_end_seq AS end_seq,
    (skb_end_seq - zero + 4294967296) % 4294967296 + 1 AS beyond
  FROM events e LEFT JOIN starts USING (flow)
  WHERE run_id = $run_id AND kind = 'skb_marked_lost'
)
SELECT $run_id::INTEGER AS run_id, x.flow, x.seq, b.packet AS lost_packet,
  a.packet AS resent_packet, g.packet AS overtaking_packet
FROM losses x
ASOF LEFT JOIN edges g ON g.flow = x.flow AND x.beyond <= g.edge
ASOF LEFT JOIN sent b ON b.flow = x.flow AND b.end_seq = x.end_seq AND x.ns >= b.ns
ASOF LEFT JOIN sent a ON a.flow = x.flow AND a.end_seq = x.end_seq AND x.ns < a.ns
"""

SHARES = """
WITH span AS (
  SELECT min(ns) AS first_ns, max(ns) AS last_ns FROM packets WHERE run_id = $run_id
)
SELECT count_if(e.kind = 'main') AS mains,
  count_if(e.kind = 'main' AND m.packet IS NOT NULL) AS mains_matched,
  count_if(e.kind = 'skb_marked_lost') AS losses,
  count_if(e.kind = 'skb_marked_lost' AND l.lost_packet IS NOT NULL) AS losses_seen,
  count_if(e.kind = 'skb_marked_lost' AND l.resent_packet IS NOT NULL) AS losses_resent
FROM events e JOIN span ON e.ns BETWEEN span.first_ns AND span.last_ns
LEFT JOIN ack_matches m ON m.run_id = e.run_id AND m.flow = e.flow AND m.seq = e.seq
LEFT JOIN loss_matches l ON l.run_id = e.run_id AND l.flow = e.flow AND l.seq = e.seq
WHERE e.run_id = $run_id
"""
