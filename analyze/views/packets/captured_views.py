"""Captured packets, judged: what was sent again, what overtaken, and what each ACK says."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..view import View

_STREAM = Column("stream", "UINTEGER", "", "connection of the capture")
_DIRECTION = Column("direction", "VARCHAR", "", "data or ack, of the bytes, see packets")
_PACKET = Column("packet", "UINTEGER", "", "see packets")
_NS = Column("ns", "BIGINT", "ns", "when it passed the capture point, see packets")


def _beyond_wraps(column: str, others: str) -> str:
    """Rows of packets with `others`, and `column` as `position`, which goes on where 2**32 wraps.

    Each number is within 2**31 of the one before it, in either direction (RFC 9293 section 3.4).
    """
    each = "PARTITION BY run_id, stream, direction ORDER BY packet"
    return f"""
  SELECT run_id, stream, direction, packet, {others},
    (sum(step) OVER (each ROWS UNBOUNDED PRECEDING))::BIGINT AS position
  FROM (SELECT *, distance32({column}, lag({column}, 1, 0) OVER each) AS step FROM packets
    WHERE {column} IS NOT NULL WINDOW each AS ({each}))
  WINDOW each AS ({each})
"""


_OF_SEGMENTS = "ns::BIGINT AS ns, frame_len, len, flags, ecn, tsval, bytes_in_flight"

# A segment that ends at or below the highest byte seen so far was sent before (or took longer): it
# is a retransmission if its timestamp is as new as any, so late by being sent late.
CAPTURED_SEGMENTS = View(
    "captured_segments",
    "Each captured packet by what it brings of its sender's bytes: new ones, some that were sent "
    "before, or some that others overtook.",
    (
        RUN_ID,
        _STREAM,
        _DIRECTION,
        _PACKET,
        _NS,
        Column("frame_len", "UINTEGER", "bytes", "the whole frame"),
        Column("len", "UINTEGER", "bytes", "payload"),
        Column("position", "BIGINT", "bytes", "its first byte, counted on beyond 2^32"),
        Column("flags", "USMALLINT", "", "TCP flags"),
        Column("ecn", "UTINYINT", "", "codepoint of the IP header; 3: CE"),
        Column("bytes_in_flight", "UINTEGER", "bytes", "tshark: sent and not acknowledged"),
        Column("sent_again", "BOOLEAN", "", "below the highest byte, with the newest timestamp"),
        Column("overtaken", "BOOLEAN", "", "below it, with an older timestamp"),
    ),
    f"""
SELECT run_id, stream, direction::VARCHAR AS direction, packet, ns, frame_len, len, position, flags,
  ecn, bytes_in_flight,
  len > 0 AND last_byte <= highest AND highest - last_byte < 2147483648
    AND (tsval IS NULL OR tsval >= newest) AS sent_again,
  len > 0 AND last_byte <= highest AND tsval < newest AS overtaken
FROM (
  SELECT *, position + len AS last_byte, coalesce(max(position + len) OVER before, 0) AS highest,
    coalesce(max(tsval) OVER before, 0) AS newest
  FROM ({_beyond_wraps("seq", _OF_SEGMENTS)})
  WINDOW before AS (PARTITION BY run_id, stream, direction ORDER BY packet
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
""",
    shared=True,
)

# RTT from timestamps: the echo in an ACK is the sender's clock when the segment left. Its zero on
# the capture's clock is taken from the segment that was fastest from there to the capture point.
# What that leaves out, and the ACK's way from there to the sender, is the least time from an ACK to
# what the sender sends next, which echoes it: its answer in the handshake comes at once.
CAPTURED_ACKS = View(
    "captured_acks",
    "Each captured acknowledgement number: how far it goes beyond those before, and the RTT that "
    "its timestamp tells.",
    (
        RUN_ID,
        _STREAM,
        Column("direction", "VARCHAR", "", "of the bytes that it acknowledges: data or ack"),
        _PACKET,
        _NS,
        Column("position", "BIGINT", "bytes", "the number, counted on beyond 2^32"),
        Column("acked", "BIGINT", "bytes", "newly acknowledged"),
        Column("rtt_us", "DOUBLE", "us", "from timestamps; NULL: acknowledges nothing, or no such"),
    ),
    f"""
WITH ticks AS (
  SELECT run_id, stream, direction, CASE WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 900 AND 1100
    THEN 1000000 WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 900000 AND 1100000 THEN 1000
    WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 90 AND 110 THEN 10000000
    WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 225 AND 275 THEN 4000000 END AS tick
  FROM packets WHERE tsval IS NOT NULL GROUP BY run_id, stream, direction
), zeros AS (
  SELECT t.run_id, t.stream, t.direction, t.tick,
    min(s.ns::BIGINT - s.tsval::BIGINT * t.tick) AS zero
  FROM packets s JOIN ticks t USING (run_id, stream, direction)
  WHERE t.tick IS NOT NULL AND s.seq IS NOT NULL GROUP BY ALL
), answers AS (
  SELECT p.run_id, p.stream, p.packet, CASE p.direction WHEN 'data' THEN 'ack' ELSE 'data' END
    AS direction, p.ns, p.position AS ack,
    coalesce(max(p.position) OVER before, 1) AS highest, p.tsecr,
    max(p.tsecr) OVER before AS newest
  FROM ({_beyond_wraps("ack", "ns::BIGINT AS ns, tsecr")}) p
  WINDOW before AS (PARTITION BY p.run_id, p.stream, p.direction ORDER BY p.packet
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), stamps AS (
  SELECT run_id, stream, direction, tsval, min(ns)::BIGINT AS ns FROM packets
  WHERE tsval IS NOT NULL GROUP BY ALL
), returns AS (
  SELECT run_id, stream, direction, tsecr, min(ns)::BIGINT AS ns FROM packets
  WHERE tsecr > 0 GROUP BY ALL
), homes AS (
  SELECT r.run_id, r.stream, r.direction, min(r.ns - t.ns) AS home
  FROM returns r JOIN stamps t ON t.run_id = r.run_id AND t.stream = r.stream
    AND t.direction <> r.direction AND t.tsval = r.tsecr
  JOIN streams s ON s.run_id = t.run_id AND s.stream = t.stream AND s.direction = t.direction
  WHERE s.syn AND r.ns >= t.ns GROUP BY ALL
)
SELECT a.run_id, a.stream, a.direction::VARCHAR AS direction, a.packet, a.ns, a.ack AS position,
  greatest(a.ack - a.highest, 0) AS acked,
  CASE WHEN a.ack > a.highest AND a.tsecr > 0 AND z.zero IS NOT NULL
    THEN (a.ns - z.zero - a.tsecr::BIGINT * z.tick + coalesce(h.home, 0)) / 1e3 END AS rtt_us
FROM answers a LEFT JOIN zeros z USING (run_id, stream, direction)
LEFT JOIN homes h USING (run_id, stream, direction)
""",
    shared=True,
)

VIEWS = (CAPTURED_SEGMENTS, CAPTURED_ACKS)
