"""Who sent in a run: which flows count, when all of them were there, and how long their path is."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import RUN

# What a test tool's control connection carries is less than this share of the largest flow's.
LEAST_SHARE = 0.01
# TCP_TS_HZ: an RTT that is taken from timestamps may be so much too low.
TIMESTAMP_US = 1000
# A path's jitter as its setup says it: a packet may take so much more than the delay, or less.
_JITTER = "json_extract_string(r.setup, '$.jitter')"
_JITTER_US = (
    f"TRY_CAST(regexp_extract({_JITTER}, '^([0-9.]+)', 1) AS DOUBLE)"
    f" * CASE regexp_extract({_JITTER}, '([a-z]+)$', 1)"
    " WHEN 'us' THEN 1 WHEN 'ms' THEN 1e3 WHEN 's' THEN 1e6 END"
)
# Netem's delay of the packets that others overtake, before a colon; what overtakes them is few.
_OVERTAKEN_US = (
    "coalesce(TRY_CAST(split_part(json_extract_string(r.setup, '$.reorder'), ':', 1) AS DOUBLE), 0)"
    " * 1e3"
)
# enum tcp_ca_state: where TCP_CA_Disorder (1) ends in TCP_CA_Open (0) so often, the path reorders.
LEAST_SPELLS = 10
# Of fewer ACKs, no rate, no share and no percentile says anything.
LEAST_ACKS = 50


def why_not(among: str = "") -> str:
    """SQL of why a sender with `bytes` and `acks` does not count beside the others of its run.

    Args:
        among: a FILTER clause: which of the run's senders it is measured by; empty: by all.
    """
    most = f"max(bytes) {among} OVER (PARTITION BY run_id, run)"
    return f"""CASE WHEN bytes <= 0 THEN 'no data'
    WHEN bytes < {LEAST_SHARE} * {most} THEN 'little data'
    WHEN acks < {LEAST_ACKS} THEN 'few ACKs' END"""


# Recorded senders first: of two ways the first is theirs.
_LARGEST = "sends DESC, bytes DESC, flow, stream"
# Of pairs of addresses, the largest sender's first, each one's way: the first on which none sends
# from where this one sends to, or to where it sends from.
_WAYS = """list_reduce(
    list_transform(pairs, lambda p: [{'src': p.src, 'dst': p.dst, 'way': 1::BIGINT}]),
    lambda known, p: list_append(known, {'src': p[1].src, 'dst': p[1].dst, 'way': list_filter(
      range(1, len(known) + 2), lambda n: NOT coalesce(list_bool_or(list_transform(known,
        lambda k: k.way = n AND (k.src = p[1].dst OR k.dst = p[1].src))), false))[1]}))"""

FLOW_OR_NONE = Column(
    "flow",
    "INTEGER",
    "",
    "see flows; NULL: a connection that events do not know, or that left BBR before most of it",
)
STREAM = Column("stream", "UINTEGER", "", "connection of the capture; NULL: not captured")
LOCAL = Column("local", "VARCHAR", "", "the sender, address:port; NULL: unknown")
REMOTE = Column("remote", "VARCHAR", "", "the receiver, address:port")

# Rows `m` of metrics and `c` of senders are about the same one.
SAME_SENDER = (
    "c.run_id = m.run_id AND c.flow IS NOT DISTINCT FROM m.flow"
    " AND c.stream IS NOT DISTINCT FROM m.stream"
)

SENDERS = View(
    "senders",
    "Every sender of a run: flows with events or samples, and connections that only the capture "
    "knows, such as a CUBIC competitor. Which of them count, and why others do not.",
    (
        RUN_ID,
        RUN,
        FLOW_OR_NONE,
        STREAM,
        Column("direction", "VARCHAR", "", "of its bytes in the capture: data or ack"),
        LOCAL,
        REMOTE,
        Column("first_ns", "BIGINT", "ns", "its first event or packet"),
        Column("last_ns", "BIGINT", "ns", "its last"),
        Column("first_event_ns", "BIGINT", "ns", "its first event or sample; NULL: none"),
        Column("last_event_ns", "BIGINT", "ns", "its last"),
        Column(
            "zero_ns",
            "BIGINT",
            "ns",
            "zero of the run's clock, the same for all: the first event of the first that counts; "
            "where none does, of the first with more than little data, then of any",
        ),
        Column("bytes", "BIGINT", "bytes", "delivered x mss; acked (samples); else payload"),
        Column("acks", "BIGINT", "events", "events of kind main or sample; NULL: none recorded"),
        Column(
            "way",
            "BIGINT",
            "",
            "1, 2, ...: senders whose addresses show that they send in opposite directions, and so "
            "share no queue, have different ones; 1: that of the largest with events or samples",
        ),
        Column("counts", "BOOLEAN", "", "it carried data: its shares and rates are reported"),
        Column(
            "why_not",
            "VARCHAR",
            "",
            "no data, little data (under 1 % of the largest sender's), few ACKs, or other way: "
            "captured only, it sends to where flows come from; NULL: counts",
        ),
    ),
    f"""
WITH carried AS (
  SELECT run_id, r.run, flow, increase32(arg_max(tp_delivered, seq), arg_min(tp_delivered, seq))
    * max(tp_mss_cache)::BIGINT AS bytes
  FROM events JOIN runs r USING (run_id) GROUP BY ALL
), acknowledged AS (
  SELECT run_id, r.run, flow, max(bytes_acked) - min(bytes_acked) AS bytes
  FROM samples JOIN runs r USING (run_id) GROUP BY ALL
), ends AS (
  SELECT s.run_id, s.flow, s.stream, s.direction::VARCHAR AS direction,
    s.src || ':' || s.sport AS "local", s.dst || ':' || s.dport AS remote, s.src, s.dst,
    s.first_ns::BIGINT AS first_ns, s.last_ns::BIGINT AS last_ns, s.payload_bytes::BIGINT AS bytes
  FROM streams s WHERE s.flow IS NOT NULL OR s.direction = 'data'
  UNION ALL
  SELECT f.run_id, f.flow, NULL, NULL, f.local_address || ':' || f.local_port,
    f.remote_address || ':' || f.remote_port, NULL, NULL, NULL, NULL, NULL
  FROM flows f WHERE (f.events > 0 OR f.first_ns IS NOT NULL) AND NOT EXISTS (
    SELECT 1 FROM streams s WHERE s.run_id = f.run_id AND s.flow = f.flow)
), gone AS (
  SELECT DISTINCT run_id, flow FROM capture_quality WHERE kind = 'left_bbr'
), measured AS (
  -- What a socket sends after it left BBR (iperf3 -C where BBR is the default), packets alone show.
  SELECT x.*, r.run, c.bytes AS event_bytes, a.bytes AS sample_bytes, g.flow IS NOT NULL
    AND coalesce(x.bytes > 2 * coalesce(c.bytes, 0), false) AS is_other
  FROM ends x JOIN runs r USING (run_id)
  LEFT JOIN carried c ON c.run_id = x.run_id AND c.run = r.run AND c.flow = x.flow
  LEFT JOIN acknowledged a ON a.run_id = x.run_id AND a.run = r.run AND a.flow = x.flow
  LEFT JOIN gone g ON g.run_id = x.run_id AND g.flow = x.flow
), sized AS (
  SELECT x.run_id, x.run, f.flow, x.stream, x.direction, x."local", x.remote,
    least(f.first_ns::BIGINT, x.first_ns) AS first_ns,
    greatest(coalesce(f.last_ns::BIGINT, x.last_ns), coalesce(x.last_ns, 0)) AS last_ns,
    f.first_ns::BIGINT AS first_event_ns, f.last_ns::BIGINT AS last_event_ns,
    CASE WHEN is_other THEN x.bytes
      ELSE coalesce(event_bytes, sample_bytes, x.bytes, 0) END::BIGINT AS bytes,
    CASE WHEN f.events > 0 THEN f.main + f.sample END AS acks,
    coalesce(f.local_address, x.src) AS src, coalesce(f.remote_address, x.dst) AS dst,
    NOT is_other AND coalesce(event_bytes, sample_bytes, 0) > 0 AS sends
  FROM measured x LEFT JOIN flows f
    ON f.run_id = x.run_id AND f.flow = x.flow AND NOT is_other
), ranked AS (
  -- What a host sends to itself passes one device, whichever address it has: no direction.
  SELECT *, CASE WHEN src IS DISTINCT FROM dst AND NOT regexp_matches(coalesce(src, dst, ''),
      '^(::ffff:)?127[.]|^::1$') THEN {{'src': src, 'dst': dst}} END AS ends,
    row_number() OVER (PARTITION BY run_id, run ORDER BY {_LARGEST}) AS rank,
    row_number() OVER (PARTITION BY run_id, run, src, dst ORDER BY {_LARGEST}) = 1 AS is_first
  FROM sized
), sided AS (
  -- Once for each run. In one pass over windows of it: what is read twice, a filter on the run
  -- does not reach.
  SELECT *, CASE WHEN rank = 1 AND list_has_any(sources, targets) THEN {_WAYS} END AS ways
  FROM (SELECT *, list(ends ORDER BY rank) FILTER (is_first AND ends IS NOT NULL) OVER of_run
      AS pairs, list(ends.src) FILTER (is_first) OVER of_run AS sources,
      list(ends.dst) FILTER (is_first) OVER of_run AS targets
    FROM ranked WINDOW of_run AS (PARTITION BY run_id, run))
), placed AS (
  -- What only the capture shows, on a way that no recorded flow takes, is on that of the ACKs.
  SELECT *, flow IS NULL AND way > 1 AND NOT bool_or(sends) OVER (PARTITION BY run_id, run, way)
    AS other_way
  FROM (SELECT *, coalesce(list_filter(any_value(ways) OVER of_run,
      lambda w: w.src IS NOT DISTINCT FROM ends.src AND w.dst IS NOT DISTINCT FROM ends.dst)[1].way,
      1) AS way
    FROM sided WINDOW of_run AS (PARTITION BY run_id, run))
), judged AS (
  SELECT *, CASE WHEN other_way THEN 'other way'
    ELSE {why_not("FILTER (NOT other_way)")} END AS why_not
  FROM placed
)
SELECT run_id, run, flow, stream, direction, "local", remote, first_ns, last_ns, first_event_ns,
  last_event_ns, coalesce(min(first_event_ns) FILTER (why_not IS NULL) OVER of_run,
    min(first_event_ns) FILTER (why_not = 'few ACKs') OVER of_run, min(first_event_ns) OVER of_run,
    min(first_ns) OVER of_run) AS zero_ns, bytes, acks, way, why_not IS NULL AS counts, why_not
FROM judged WINDOW of_run AS (PARTITION BY run_id, run)
""",
    shared=True,
)

RUN_CLOCKS = View(
    "run_clocks",
    "Zero of each run's clock: every time in seconds and every column t_ns counts from it, in "
    "each command, view and report, so that they name the same instant for the same event.",
    (
        RUN_ID,
        RUN,
        Column("zero_ns", "BIGINT", "ns", "t_ns is 0 at this ns, see senders for which it is"),
    ),
    "SELECT run_id, run, any_value(zero_ns) AS zero_ns FROM senders GROUP BY run_id, run",
    materialized=True,
)

COMPARISON_WINDOWS = View(
    "comparison_windows",
    "When all senders of a run that count and go one way were active at once: only then can they "
    "be compared. Ways on which they never were, or with a single one, have no row.",
    (
        RUN_ID,
        RUN,
        Column("way", "BIGINT", "", "see senders"),
        Column("flows", "BIGINT", "flows", "senders that count"),
        Column("zero_ns", "BIGINT", "ns", "zero of the run's clock, see senders"),
        Column("start_ns", "BIGINT", "ns", "the last of them began"),
        Column("end_ns", "BIGINT", "ns", "the first of them ended"),
        Column("first_s", "INTEGER", "s", "first second of it, whole but for 1 ms"),
        Column("last_s", "INTEGER", "s", "last whole second; less than first_s: none"),
    ),
    """
SELECT run_id, run, way, count(*) AS flows, any_value(zero_ns) AS zero_ns,
  max(first_ns) AS start_ns,
  min(last_ns) AS end_ns,
  ceil((max(first_ns) - any_value(zero_ns)) / 1e9 - 1e-3)::INTEGER AS first_s,
  (floor((min(last_ns) - any_value(zero_ns)) / 1e9 + 1e-3) - 1)::INTEGER AS last_s
FROM senders WHERE counts GROUP BY run_id, run, way
HAVING count(*) > 1 AND max(first_ns) < min(last_ns)
""",
    shared=True,
)

BASE_RTTS = View(
    "base_rtts",
    "The round-trip time of each flow's path without a queue, its own extra delay included.",
    (
        RUN_ID,
        Column("flow", "INTEGER", "", "see flows"),
        Column("base_rtt_us", "DOUBLE", "us", "without a queue; NULL: no RTT was ever sampled"),
        Column(
            "source",
            "VARCHAR",
            "",
            "lab: as it set the path up; setup: the run's delay; least RTT: no delay is known, or "
            "the path took a tenth and a millisecond less than the setup says, its jitter taken "
            "off, or "
            "another flow saw the path empty meanwhile and this one never that short a path",
        ),
    ),
    f"""
WITH lows AS (
  SELECT run_id, flow, ns // 1000000000 AS second,
    min(rs_rtt_us) FILTER (kind = 'main' AND rs_rtt_us > 0) AS us,
    min(rs_rtt_us) FILTER (kind = 'main' AND rs_rtt_us > 0 AND rs_rtt_us % {TIMESTAMP_US} <> 0)
      AS exact_us,
    min(nullif(if_set(bbr_min_rtt_us), 0)) AS model_us,
    min(if_set(bbr_min_rtt_us)) FILTER (bbr_min_rtt_us % {TIMESTAMP_US} <> 0) AS exact_model_us,
    min(rs_rtt_us) FILTER (kind = 'main' AND rs_rtt_us > 0 AND tp_sacked_out = 0
      AND rs_is_retrans = 0) AS in_order_us,
    count_if(kind = 'set_state' AND new_state = 0 AND icsk_ca_state = 1) AS spells
  FROM events GROUP BY run_id, flow, second
), shortest AS (
  SELECT run_id, flow, least(min(us), min(model_us)) AS us,
    least(min(exact_us), min(exact_model_us)) AS exact_us,
    -- What overtook others, and so makes a hole that a SACK tells of, is faster than the path. Of
    -- the first packet of a flight nothing tells that it would have: one second may have such.
    CASE WHEN sum(spells) >= {LEAST_SPELLS} THEN CASE
      WHEN count(in_order_us) > 2 THEN min(in_order_us, 2)[2] ELSE min(in_order_us) END
      END AS in_order_us
  FROM lows GROUP BY run_id, flow
), least AS (
  -- An RTT that a timestamp tells, of a packet that was sent again, is up to a tick short: what the
  -- others say is nearer, where it is no more than that above.
  SELECT run_id, flow, coalesce(in_order_us,
    CASE WHEN exact_us <= us + {TIMESTAMP_US} THEN exact_us ELSE us END) AS us
  FROM shortest
), sampled AS (
  SELECT run_id, flow, min(coalesce(tcp_min_rtt_us, min_rtt_us)) AS us FROM samples
  GROUP BY run_id, flow
), lab AS (
  SELECT f.run_id, f.flow, any_value(l.rtt_us + f.extra_rtt_us) AS us
  FROM lab_runs l JOIN lab_flows f USING (run_id)
  WHERE f.flow IS NOT NULL AND coalesce(l.changes, '') NOT LIKE '%"what": "rtt"%'
  GROUP BY f.run_id, f.flow
), known AS (
  SELECT f.run_id, f.flow, f.first_ns, f.last_ns, lab.us AS lab_us,
    coalesce(least.us, sampled.us) AS least_us,
    TRY_CAST(json_extract_string(r.setup, '$.delay') AS DOUBLE) * 1e3
      + {_OVERTAKEN_US} AS setup_us,
    -- By so much some packets are faster than most.
    coalesce({_JITTER_US}, 0) + {_OVERTAKEN_US} AS faster_us
  FROM flows f JOIN runs r USING (run_id) LEFT JOIN lab USING (run_id, flow)
  LEFT JOIN least USING (run_id, flow) LEFT JOIN sampled USING (run_id, flow)
), empty_path AS (
  -- When some flow saw the path as short as the setup has it, first and last in a second: the
  -- queue was empty then.
  SELECT run_id, flow, min(e.ns) AS first_ns, max(e.ns) AS last_ns
  FROM known k JOIN events e USING (run_id, flow)
  WHERE e.kind = 'main' AND e.rs_rtt_us > 0 AND e.rs_rtt_us <= 1.1 * k.setup_us
  GROUP BY run_id, flow, e.ns // 1000000000
), measured AS (
  SELECT k.*, CASE WHEN lab_us IS NOT NULL THEN 'lab'
    WHEN setup_us > 0 AND least_us < 0.9 * (setup_us - faster_us)
      AND least_us + {TIMESTAMP_US} < setup_us - faster_us
      THEN 'least RTT'
    WHEN setup_us > 0 AND (coalesce(least_us, 0) <= 1.25 * setup_us OR NOT EXISTS (
      SELECT 1 FROM empty_path o WHERE o.run_id = k.run_id AND o.flow <> k.flow
        AND o.first_ns <= k.last_ns AND o.last_ns >= k.first_ns)) THEN 'setup'
    WHEN least_us IS NOT NULL THEN 'least RTT' END AS source
  FROM known k
)
SELECT run_id, flow, CASE source WHEN 'lab' THEN lab_us WHEN 'setup' THEN setup_us
  ELSE least_us END::DOUBLE AS base_rtt_us, source FROM measured
""",
    shared=True,
)

VIEWS = (SENDERS, RUN_CLOCKS, COMPARISON_WINDOWS, BASE_RTTS)
