"""The numbers that papers report about flows, from kernel events and from packets on their own.

What comes from packets has names that begin with pkt_; nothing of it goes into the other columns,
so that each side checks the other. Rates are in Mbit/s = 1e6 bit/s and name their layer: goodput
counts payload that was acknowledged in order, throughput whole frames as the wire (and tbf) does.
Of a flow that has samples (of ss, or v2alpha's lines) and no events, they tell the kernel's side.
"""

from __future__ import annotations

from .model import Column, View
from .recording import RUN_ID
from .view_parts import RUN

# Ethernet 14, IPv4 20, TCP 20 and timestamps 12: what a segment has on top of tp.mss_cache.
OVERHEAD = 66

_UNITS = (
    "CASE lower(regexp_extract({0}, '([A-Za-z]+)$', 1)) WHEN 'bit' THEN 1 WHEN 'kbit' THEN 1e3"
    " WHEN 'mbit' THEN 1e6 WHEN 'gbit' THEN 1e9 WHEN 'bps' THEN 8 WHEN 'kbps' THEN 8e3"
    " WHEN 'mbps' THEN 8e6 WHEN 'gbps' THEN 8e9 END"
)


def _bits(text: str) -> str:
    """A rate as tc writes it (10mbit; bps is bytes/s there) in bit/s; NULL: not a rate."""
    return f"(TRY_CAST(regexp_extract({text}, '^([0-9.]+)', 1) AS DOUBLE) * {_UNITS.format(text)})"


LINK_RATES = View(
    "link_rates",
    "The bottleneck's rate over time, as the run's setup or its lab says.",
    (
        RUN_ID,
        Column("start_ns", "BIGINT", "ns", "CLOCK_MONOTONIC; 0: from the beginning"),
        Column("bits_per_s", "DOUBLE", "bit/s", "rate of the link layer, from then on"),
    ),
    f"""
WITH boot AS (
  SELECT run_id, min(boottime_ns::BIGINT - monotonic_ns) AS ahead FROM clocks
  WHERE point = 'start' GROUP BY run_id
), steps AS (
  -- A lab's setup may name another parameter; what it came to is in lab_runs.
  SELECT run_id, 0::BIGINT AS start_ns,
    coalesce(l.rate_bps, {_bits("json_extract_string(setup, '$.rate')")}) AS bits_per_s
  FROM runs LEFT JOIN lab_runs l USING (run_id)
  UNION ALL
  SELECT l.run_id,
    (r.traffic_start_ns + 1e9 * TRY_CAST(c ->> '$.at_s' AS DOUBLE))::BIGINT,
    TRY_CAST(c ->> '$.value' AS DOUBLE)
  FROM lab_runs l JOIN runs r USING (run_id), unnest(TRY_CAST(l.changes AS JSON[])) AS t(c)
  WHERE c ->> '$.what' = 'rate'
  UNION ALL
  SELECT h.run_id,
    ((TRY_CAST(json_extract_string(h.value, '$.uptime_s') AS DOUBLE) * 1e9) - b.ahead)::BIGINT,
    {_bits("json_extract_string(h.value, '$.rate')")}
  FROM host_facts h JOIN boot b USING (run_id)
  WHERE h.scope = 'changes' AND json_valid(h.value)
)
FROM steps WHERE bits_per_s > 0 AND start_ns IS NOT NULL
""",
)

_SENDERS = """
senders AS (
  SELECT s.run_id, s.flow, s.stream, s.direction, s.src || ':' || s.sport AS "local",
    s.dst || ':' || s.dport AS remote, s.first_ns::BIGINT AS first_ns, s.last_ns::BIGINT AS last_ns
  FROM streams s WHERE s.flow IS NOT NULL OR s.direction = 'data'
  UNION ALL
  SELECT f.run_id, f.flow, NULL, NULL, f.local_address || ':' || f.local_port,
    f.remote_address || ':' || f.remote_port, NULL, NULL
  FROM flows f WHERE (f.events > 0 OR f.first_ns IS NOT NULL) AND NOT EXISTS (
    SELECT 1 FROM streams s WHERE s.run_id = f.run_id AND s.flow = f.flow)
), named AS (
  SELECT x.run_id, r.run, x.flow, x.stream, x.direction, x."local", x.remote,
    least(f.first_ns::BIGINT, x.first_ns) AS first_ns, f.first_ns::BIGINT AS first_event_ns,
    greatest(coalesce(f.last_ns::BIGINT, x.last_ns), coalesce(x.last_ns, 0)) AS last_ns,
    f.last_ns::BIGINT AS last_event_ns,
    coalesce(r.first_ns::BIGINT, min(x.first_ns) OVER (PARTITION BY x.run_id)) AS zero_ns
  FROM senders x JOIN runs r USING (run_id) LEFT JOIN flows f USING (run_id, flow)
)
"""

# A capture whose clock jumps can span centuries; the last slice then has all the rest.
MOST_SECONDS = 100_000

# What each slicing calls its slices, and where they begin; they tile the flow's time.
_SLICES = {
    "flow": """
slices AS (
  SELECT run_id, flow, stream, 0 AS label, first_ns AS start_ns, last_ns AS end_ns FROM named
)
""",
    "second": """
slices AS (
  SELECT run_id, flow, stream, label::INTEGER AS label,
    greatest(first_ns, zero_ns + label * 1000000000) AS start_ns,
    least(last_ns, zero_ns + (label + 1) * 1000000000) AS end_ns
  FROM (SELECT *, unnest(generate_series(floor((first_ns - zero_ns) / 1e9)::BIGINT,
    least(floor((last_ns - zero_ns) / 1e9)::BIGINT,
      floor((first_ns - zero_ns) / 1e9)::BIGINT + {most}))) AS label
    FROM named)
)
""".replace("{most}", str(MOST_SECONDS)),
    "phase": """
slices AS (
  SELECT n.run_id, n.flow, n.stream, p.phase AS label, p.start_ns::BIGINT AS start_ns,
    p.end_ns::BIGINT AS end_ns
  FROM named n JOIN phases p ON p.run_id = n.run_id AND p.flow = n.flow
)
""",
    "round": """
begun AS (
  SELECT run_id, flow, round, start_ns::BIGINT AS start_ns, duration_ns FROM rounds
), slices AS (
  SELECT n.run_id, n.flow, n.stream, 0 AS label, n.first_ns AS start_ns, r.start_ns AS end_ns
  FROM named n JOIN begun r ON r.run_id = n.run_id AND r.flow = n.flow AND r.round = 1
  UNION ALL
  SELECT n.run_id, n.flow, n.stream, r.round, r.start_ns, r.start_ns + r.duration_ns
  FROM named n JOIN begun r ON r.run_id = n.run_id AND r.flow = n.flow
)
""",
}


def _increase(column: str) -> str:
    """By how much a counter grew since the flow's sample before; 0 if it fell; NULL: unknown."""
    return (
        f"CASE WHEN {column} IS NOT NULL"
        f" THEN greatest(coalesce({column} - lag({column}) OVER w, 0), 0) END"
    )


def _printed(column: str) -> str:
    """A counter that ss leaves out while it is 0, and that nothing else prints."""
    return f"CASE s.source WHEN 'ss' THEN coalesce(s.{column}, 0) END"


def _growth(column: str) -> str:
    """By how much a 32-bit counter grew since the flow's event before; 0 if it fell back."""
    grown = f"(({column}::BIGINT - lag({column}) OVER w + 4294967296) % 4294967296)"
    return f"CASE WHEN {grown} < 2147483648 THEN {grown} ELSE 0 END"


# Kernel side. Each event counts for the slice in which it happened, and what held after it until
# the next event is weighted with that time.
_KERNEL = f"""
ev AS (
  SELECT e.run_id, e.flow, e.seq, e.ns::BIGINT AS ns, e.kind = 'main' AS main,
    (lead(e.ns) OVER w - e.ns)::DOUBLE AS held, e.tp_mss_cache::BIGINT AS mss,
    {_growth("e.tp_snd_una")} AS acked_bytes, {_growth("e.tp_delivered")} AS delivered,
    {_growth("e.tp_lost")} AS lost, {_growth("e.tp_delivered_ce")} AS ce,
    CASE WHEN e.kind = 'main' AND e.rs_rtt_us > 0 THEN e.rs_rtt_us END AS rtt,
    CASE WHEN e.kind = 'main' AND e.rs_delivered > 0 AND e.rs_interval_us > 0
      THEN e.rs_delivered::DOUBLE * e.tp_mss_cache * 8 / e.rs_interval_us END AS rate,
    greatest(e.tp_packets_out::BIGINT - e.tp_sacked_out - e.tp_lost_out + e.tp_retrans_out, 0)
      AS in_flight,
    coalesce(e.exit_snd_cwnd, e.tp_snd_cwnd)::DOUBLE AS cwnd,
    coalesce(e.exit_sk_pacing_rate, e.sk_pacing_rate)::DOUBLE AS pacing
  FROM events e JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init
  WINDOW w AS (PARTITION BY e.run_id, e.flow ORDER BY e.seq)
), seen AS (
  SELECT s.run_id, s.flow, s.look AS seq, s.ns::BIGINT AS ns, false AS main,
    (lead(s.ns) OVER w - s.ns)::DOUBLE AS held, s.mss, {_increase("s.bytes_acked")} AS acked_bytes,
    {_increase("s.delivered")} AS delivered,
    {_increase(f"coalesce(s.lost, {_printed('total_retrans')})")} AS lost,
    {_increase("s.delivered_ce")} AS ce, coalesce(s.rtt_us, s.srtt_us) AS rtt,
    coalesce(s.delivery_rate, s.sample_bw) / 1e6 AS rate, s.in_flight,
    s.snd_cwnd::DOUBLE AS cwnd, s.sk_pacing_rate / 8e0 AS pacing,
    s.app_limited::INTEGER * held AS app, {_increase(_printed("rwnd_limited_ms"))} * 1e6 AS rwnd,
    {_increase(_printed("sndbuf_limited_ms"))} * 1e6 AS sndbuf, held AS told
  FROM samples s JOIN flows f ON f.run_id = s.run_id AND f.flow = s.flow AND f.events = 0
  WHERE s.ns IS NOT NULL
  WINDOW w AS (PARTITION BY s.run_id, s.flow ORDER BY s.ns, s.look)
), told AS (FROM ev UNION ALL BY NAME FROM seen), rtts AS (
  SELECT run_id, flow, min(rtt) AS base FROM told GROUP BY run_id, flow
), priced AS (
  SELECT ev.*, rtts.base, l.bits_per_s * rtts.base / 8e6 / (ev.mss + {OVERHEAD}) AS bdp
  FROM told ev LEFT JOIN rtts USING (run_id, flow)
  ASOF LEFT JOIN link_rates l ON l.run_id = ev.run_id AND ev.ns >= l.start_ns
), kernel AS (
  SELECT s.run_id, s.flow, s.stream, s.label, count_if(p.main) AS mains,
    sum(p.delivered * (p.mss + {OVERHEAD})) * 8 AS carried_bits,
    sum(p.acked_bytes)::BIGINT AS acked_bytes, sum(p.delivered)::BIGINT AS delivered,
    sum(p.lost)::BIGINT AS lost, sum(p.ce)::BIGINT AS ce,
    median(p.rate) AS rate, max(p.rate) AS rate_max, min(p.rtt) AS rtt_min, avg(p.rtt) AS rtt_mean,
    quantile_cont(p.rtt, 0.5) AS rtt_p50, quantile_cont(p.rtt, 0.95) AS rtt_p95,
    quantile_cont(p.rtt, 0.99) AS rtt_p99, avg(p.rtt - p.base) AS queue_delay,
    sum(p.in_flight * p.held) / sum(p.held) AS in_flight,
    sum((p.in_flight - p.bdp) * p.held) / sum(p.held) AS over_bdp,
    sum(p.cwnd * p.held) / sum(p.held) AS cwnd,
    sum(p.pacing * p.held) / sum(p.held) AS pacing,
    coalesce(sum(b.duration_ns) FILTER (b.binding = 'application'), sum(p.app))
      / coalesce(sum(b.duration_ns), sum(p.told)) AS app,
    coalesce(sum(b.duration_ns) FILTER (b.binding = 'receive_window'), sum(p.rwnd))
      / coalesce(sum(b.duration_ns), sum(p.told)) AS rwnd,
    sum(p.sndbuf) / sum(p.told) AS sndbuf, coalesce(sum(b.duration_ns), sum(p.told)) AS told
  FROM priced p ASOF JOIN slices s ON s.run_id = p.run_id AND s.flow = p.flow
    AND p.ns >= s.start_ns
  LEFT JOIN binding b ON b.run_id = p.run_id AND b.flow = p.flow AND b.seq = p.seq
  GROUP BY s.run_id, s.flow, s.stream, s.label
)
"""


def _beyond_wraps(column: str, others: str) -> str:
    """Rows of packets with `others`, and `column` as `position`, which goes on where 2**32 wraps.

    Each number is within 2**31 of the one before it, in either direction (RFC 9293 section 3.4).
    """
    each = "PARTITION BY run_id, stream, direction ORDER BY packet"
    step = f"({column}::BIGINT - lag({column}, 1, 0) OVER (each) + 6442450944) % 4294967296"
    return f"""
  SELECT run_id, stream, direction, packet, {others},
    (sum(step) OVER (each ROWS UNBOUNDED PRECEDING))::BIGINT AS position
  FROM (SELECT *, {step} - 2147483648 AS step FROM packets WHERE {column} IS NOT NULL
    WINDOW each AS ({each}))
  WINDOW each AS ({each})
"""


# Packet side. A segment that ends at or below the highest byte seen so far was sent before (or took
# longer): it is a retransmission if its timestamp is as new as any, so late by being sent late.
# RTT from timestamps: the echo in an ACK is the sender's clock when the segment left. Its zero on
# the capture's clock is taken from the segment that was fastest from there to the capture point.
# What that leaves out, and the ACK's way from there to the sender, is the least time from an ACK to
# what the sender sends next, which echoes it: its answer in the handshake comes at once.
_PACKETS = f"""
sent AS (
  SELECT p.*, p.position + p.len AS last_byte,
    coalesce(max(p.position + p.len) OVER before, 0) AS highest,
    coalesce(max(p.tsval) OVER before, 0) AS newest
  FROM ({_beyond_wraps("seq", "ns::BIGINT AS ns, frame_len, len, ecn, tsval, bytes_in_flight")}) p
  WINDOW before AS (PARTITION BY p.run_id, p.stream, p.direction ORDER BY p.packet
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), judged AS (
  SELECT *, len > 0 AND last_byte <= highest AND highest - last_byte < 2147483648
    AND (tsval IS NULL OR tsval >= newest) AS resent,
    len > 0 AND last_byte <= highest AND tsval < newest AS overtaken
  FROM sent
), ticks AS (
  SELECT run_id, stream, direction, CASE WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 900 AND 1100
    THEN 1000000 WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 900000 AND 1100000 THEN 1000
    WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 90 AND 110 THEN 10000000
    WHEN regr_slope(tsval, ns) * 1e9 BETWEEN 225 AND 275 THEN 4000000 END AS tick
  FROM sent WHERE tsval IS NOT NULL GROUP BY run_id, stream, direction
), zeros AS (
  SELECT t.run_id, t.stream, t.direction, t.tick, min(s.ns - s.tsval::BIGINT * t.tick) AS zero
  FROM sent s JOIN ticks t USING (run_id, stream, direction)
  WHERE t.tick IS NOT NULL GROUP BY ALL
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
), echoes AS (
  SELECT a.*, greatest(a.ack - a.highest, 0) AS acked,
    CASE WHEN a.ack > a.highest AND a.tsecr > 0 AND z.zero IS NOT NULL
      THEN (a.ns - z.zero - a.tsecr::BIGINT * z.tick + coalesce(h.home, 0)) / 1e3 END AS rtt
  FROM answers a LEFT JOIN zeros z USING (run_id, stream, direction)
  LEFT JOIN homes h USING (run_id, stream, direction)
), keyed AS (
  SELECT s.*, n.direction FROM slices s
  JOIN named n ON n.run_id = s.run_id AND n.stream = s.stream
    AND n.flow IS NOT DISTINCT FROM s.flow
  WHERE s.stream IS NOT NULL
), wire AS (
  SELECT s.run_id, s.flow, s.stream, s.direction, s.label, sum(j.frame_len)::BIGINT AS bytes,
    sum(j.len)::BIGINT AS payload, count_if(j.len > 0)::BIGINT AS segments,
    count_if(j.resent)::BIGINT AS resent, count_if(j.overtaken)::BIGINT AS overtaken,
    count_if(j.ecn = 3 AND j.len > 0)::BIGINT AS ce,
    avg(j.bytes_in_flight) FILTER (j.len > 0) AS in_flight
  FROM judged j ASOF JOIN keyed s ON s.run_id = j.run_id AND s.stream = j.stream
    AND s.direction = j.direction AND j.ns >= s.start_ns
  GROUP BY ALL
), replies AS (
  SELECT s.run_id, s.flow, s.stream, s.direction, s.label, sum(e.acked)::BIGINT AS acked,
    min(e.rtt) AS rtt_min, avg(e.rtt) AS rtt_mean, quantile_cont(e.rtt, 0.5) AS rtt_p50,
    quantile_cont(e.rtt, 0.95) AS rtt_p95, quantile_cont(e.rtt, 0.99) AS rtt_p99
  FROM echoes e ASOF JOIN keyed s ON s.run_id = e.run_id AND s.stream = e.stream
    AND s.direction = e.direction AND e.ns >= s.start_ns
  GROUP BY ALL
)
"""

# How much of a slice events and capture cover, to divide what was counted there by.
_SPANS = """
spans AS (
  SELECT s.run_id, s.flow, s.stream, s.label, min(s.start_ns) AS start_ns,
    sum(s.end_ns - s.start_ns) / 1e9 AS seconds,
    sum(greatest(least(s.end_ns, n.last_event_ns) - greatest(s.start_ns, n.first_event_ns), 0))
      / 1e9 AS told_seconds,
    sum(greatest(least(s.end_ns, t.last_ns::BIGINT) - greatest(s.start_ns, t.first_ns::BIGINT), 0))
      / 1e9 AS pkt_seconds
  FROM slices s JOIN named n ON n.run_id = s.run_id AND n.flow IS NOT DISTINCT FROM s.flow
    AND n.stream IS NOT DISTINCT FROM s.stream
  LEFT JOIN streams t ON t.run_id = s.run_id AND t.stream = s.stream AND t.direction = n.direction
  GROUP BY s.run_id, s.flow, s.stream, s.label
)
"""

# What the link could have carried in a slice, and what queue samples say of it.
_LINK = """
capacities AS (
  SELECT s.run_id, s.flow, s.stream, s.label, sum(l.bits_per_s
    * greatest(least(s.end_ns, l.end_ns) - greatest(s.start_ns, l.start_ns), 0)) / 1e9 AS bits
  FROM slices s JOIN (
    SELECT *, lead(start_ns, 1, 9223372036854775807) OVER
      (PARTITION BY run_id ORDER BY start_ns) AS end_ns
    FROM link_rates
  ) l USING (run_id)
  GROUP BY s.run_id, s.flow, s.stream, s.label
), waits AS (
  SELECT q.run_id, q.ns, q.backlog * 8e6 / l.bits_per_s AS delay
  FROM (
    SELECT run_id, ns::BIGINT AS ns, max(backlog_bytes) AS backlog FROM queue_samples
    WHERE ns IS NOT NULL GROUP BY run_id, ns
  ) q ASOF JOIN link_rates l ON l.run_id = q.run_id AND q.ns >= l.start_ns
), backlogs AS (
  SELECT s.run_id, s.flow, s.stream, s.label, avg(w.delay) AS delay
  FROM slices s JOIN waits w
    ON w.run_id = s.run_id AND w.ns >= s.start_ns AND w.ns < s.end_ns
  GROUP BY s.run_id, s.flow, s.stream, s.label
)
"""


def _select(label: str) -> str:
    return f"""
SELECT x.run_id, n.run, x.flow, x.stream, n."local", n.remote, {label}
  (x.start_ns - n.zero_ns) / 1e9 AS start_s, x.seconds AS duration_s,
  k.acked_bytes, k.acked_bytes * 8 / 1e6 / nullif(x.told_seconds, 0) AS goodput_mbps,
  k.carried_bits * x.seconds / nullif(c.bits * x.told_seconds, 0) AS utilisation,
  k.delivered AS delivered_packets, k.rate AS delivery_rate_mbps,
  k.rate_max AS delivery_rate_max_mbps, k.lost AS lost_packets,
  k.lost / nullif(k.lost + k.delivered, 0) AS loss_rate,
  k.ce / nullif(k.delivered, 0) AS ce_rate,
  k.rtt_min AS rtt_min_us, k.rtt_mean AS rtt_mean_us, k.rtt_p50 AS rtt_p50_us,
  k.rtt_p95 AS rtt_p95_us, k.rtt_p99 AS rtt_p99_us, k.queue_delay AS queue_delay_us,
  b.delay AS queue_sampled_us, k.in_flight AS inflight_packets,
  k.over_bdp AS inflight_minus_bdp_packets,
  k.cwnd AS cwnd_packets, k.pacing * 8 / 1e6 AS pacing_mbps,
  CASE WHEN k.told > 0 THEN coalesce(k.app, 0) END AS app_limited_share,
  CASE WHEN k.told > 0 AND (k.mains > 0 OR k.sndbuf IS NOT NULL) THEN coalesce(k.rwnd, 0)
    END AS rwnd_limited_share,
  k.sndbuf AS sndbuf_limited_share,
  w.bytes AS pkt_wire_bytes, w.bytes * 8 / 1e6 / nullif(x.pkt_seconds, 0) AS pkt_throughput_mbps,
  w.bytes * 8 * x.seconds / nullif(c.bits * x.pkt_seconds, 0) AS pkt_utilisation,
  a.acked AS pkt_acked_bytes, a.acked * 8 / 1e6 / nullif(x.pkt_seconds, 0) AS pkt_goodput_mbps,
  w.segments AS pkt_segments, w.resent AS pkt_retransmissions,
  w.resent / nullif(w.segments, 0) AS pkt_retransmission_rate, w.overtaken AS pkt_reordered,
  w.ce / nullif(w.segments, 0) AS pkt_ce_rate, w.in_flight AS pkt_inflight_bytes,
  a.rtt_min AS pkt_rtt_min_us, a.rtt_mean AS pkt_rtt_mean_us, a.rtt_p50 AS pkt_rtt_p50_us,
  a.rtt_p95 AS pkt_rtt_p95_us, a.rtt_p99 AS pkt_rtt_p99_us
FROM spans x JOIN named n ON n.run_id = x.run_id AND n.flow IS NOT DISTINCT FROM x.flow
  AND n.stream IS NOT DISTINCT FROM x.stream
LEFT JOIN kernel k ON k.run_id = x.run_id AND k.flow = x.flow AND k.label = x.label
  AND k.stream IS NOT DISTINCT FROM x.stream
LEFT JOIN wire w ON w.run_id = x.run_id AND w.stream = x.stream AND w.label = x.label
  AND w.direction = n.direction
LEFT JOIN replies a ON a.run_id = x.run_id AND a.stream = x.stream AND a.label = x.label
  AND a.direction = n.direction
LEFT JOIN capacities c ON c.run_id = x.run_id AND c.label = x.label
  AND c.flow IS NOT DISTINCT FROM x.flow AND c.stream IS NOT DISTINCT FROM x.stream
LEFT JOIN backlogs b ON b.run_id = x.run_id AND b.label = x.label
  AND b.flow IS NOT DISTINCT FROM x.flow AND b.stream IS NOT DISTINCT FROM x.stream
ORDER BY x.run_id, x.flow NULLS LAST, x.stream, x.label
"""


def _sql(by: str, label: str) -> str:
    parts = (_SENDERS, _SLICES[by], _KERNEL, _PACKETS, _SPANS, _LINK)
    return f"WITH {', '.join(parts)} {_select(label)}"


def _columns(label: tuple[Column, ...]) -> tuple[Column, ...]:
    return (
        RUN_ID,
        RUN,
        Column("flow", "INTEGER", "", "see flows; NULL: a connection that events do not know"),
        Column("stream", "UINTEGER", "", "connection of the capture; NULL: not captured"),
        Column("local", "VARCHAR", "", "the sender, address:port; NULL: unknown"),
        Column("remote", "VARCHAR", "", "the receiver, address:port"),
        *label,
        Column(
            "start_s",
            "DOUBLE",
            "s",
            "since the run's first event (else first packet); may be negative",
        ),
        Column("duration_s", "DOUBLE", "s", "from its first packet or event to its last"),
        Column("acked_bytes", "BIGINT", "bytes", "growth of tp.snd_una: acknowledged in order"),
        Column("goodput_mbps", "DOUBLE", "Mbit/s", "acked_bytes over the time that events cover"),
        Column(
            "utilisation",
            "DOUBLE",
            "",
            "of the link, by what was delivered, in whole frames; NULL: no rate is known",
        ),
        Column("delivered_packets", "BIGINT", "packets", "growth of tp.delivered: ACKed or SACKed"),
        Column("delivery_rate_mbps", "DOUBLE", "Mbit/s", "median rate sample: rs.delivered x mss"),
        Column("delivery_rate_max_mbps", "DOUBLE", "Mbit/s", "largest rate sample"),
        Column("lost_packets", "BIGINT", "packets", "growth of tp.lost: marked lost"),
        Column("loss_rate", "DOUBLE", "", "lost over lost and delivered"),
        Column("ce_rate", "DOUBLE", "", "tp.delivered_ce over tp.delivered; NULL: not recorded"),
        Column("rtt_min_us", "BIGINT", "us", "smallest rs.rtt_us"),
        Column("rtt_mean_us", "DOUBLE", "us", "mean over ACKs"),
        Column("rtt_p50_us", "DOUBLE", "us", "median over ACKs"),
        Column("rtt_p95_us", "DOUBLE", "us", "95th percentile over ACKs"),
        Column("rtt_p99_us", "DOUBLE", "us", "99th percentile over ACKs"),
        Column("queue_delay_us", "DOUBLE", "us", "mean RTT above the flow's smallest"),
        Column(
            "queue_sampled_us",
            "DOUBLE",
            "us",
            "mean of the bottleneck queue's sampled backlog at the link's rate; NULL: no samples",
        ),
        Column("inflight_packets", "DOUBLE", "packets", "in flight, mean over time"),
        Column(
            "inflight_minus_bdp_packets",
            "DOUBLE",
            "packets",
            "in flight above link rate x the flow's smallest RTT, mean over time; NULL: no rate",
        ),
        Column("cwnd_packets", "DOUBLE", "packets", "snd_cwnd, mean over time"),
        Column("pacing_mbps", "DOUBLE", "Mbit/s", "sk_pacing_rate, mean over time"),
        Column("app_limited_share", "DOUBLE", "", "share of time limited so, see view binding"),
        Column("rwnd_limited_share", "DOUBLE", "", "share of time limited so, see view binding"),
        Column("sndbuf_limited_share", "DOUBLE", "", "the same, by samples of ss; NULL: none"),
        Column("pkt_wire_bytes", "BIGINT", "bytes", "frames at the capture point"),
        Column("pkt_throughput_mbps", "DOUBLE", "Mbit/s", "the same over the captured time"),
        Column("pkt_utilisation", "DOUBLE", "", "of the link; NULL: no rate is known"),
        Column("pkt_acked_bytes", "BIGINT", "bytes", "growth of the acknowledgement number"),
        Column("pkt_goodput_mbps", "DOUBLE", "Mbit/s", "the same over the captured time"),
        Column("pkt_segments", "BIGINT", "packets", "with payload"),
        Column(
            "pkt_retransmissions",
            "BIGINT",
            "packets",
            "below the highest byte seen, with the newest timestamp: sent again",
        ),
        Column("pkt_retransmission_rate", "DOUBLE", "", "of pkt_segments"),
        Column(
            "pkt_reordered", "BIGINT", "packets", "below it, with an older timestamp: overtaken"
        ),
        Column("pkt_ce_rate", "DOUBLE", "", "segments with the CE codepoint"),
        Column(
            "pkt_inflight_bytes",
            "DOUBLE",
            "bytes",
            "past the capture point and not acknowledged there, by tshark, mean over segments",
        ),
        Column(
            "pkt_rtt_min_us",
            "DOUBLE",
            "us",
            "from timestamps, as fine as their tick; of the way between sender and capture point "
            "the least that it took (without a handshake: nothing)",
        ),
        Column("pkt_rtt_mean_us", "DOUBLE", "us", "mean over ACKs that advance"),
        Column("pkt_rtt_p50_us", "DOUBLE", "us", "median over ACKs that advance"),
        Column("pkt_rtt_p95_us", "DOUBLE", "us", "95th percentile"),
        Column("pkt_rtt_p99_us", "DOUBLE", "us", "99th percentile"),
    )


METRICS_BY_FLOW = View(
    "metrics_by_flow",
    "Each flow in numbers, from kernel events (of flows without any, from samples: then RTTs are "
    "smoothed ones and lost_packets counts retransmissions, if ss printed them) and (pkt_) from "
    "packets on their own. Connections that only the capture knows, such as a CUBIC competitor, "
    "have flow NULL.",
    _columns(()),
    _sql("flow", ""),
    kept=True,
)

METRICS_BY_SECOND = View(
    "metrics_by_second",
    f"The same per second of the run, for the first {MOST_SECONDS:,} seconds of each flow; what "
    "comes later is counted in the last.",
    _columns((Column("t_s", "INTEGER", "s", "second, from the run's first event; -1: before"),)),
    _sql("second", "x.label AS t_s,"),
    kept=True,
)

METRICS_BY_PHASE = View(
    "metrics_by_phase",
    "The same per phase (see phases), all its occurrences together: durations of a flow add up to "
    "its time since init.",
    _columns((Column("phase", "VARCHAR", "", "see phases"),)),
    _sql("phase", "x.label AS phase,"),
    kept=True,
)

METRICS_BY_ROUND = View(
    "metrics_by_round",
    "The same per packet-timed round of the kernel (see rounds): what the kernel marked lost in it "
    "beside what the capture shows to be sent again, and CE marks on both sides.",
    _columns((Column("round", "INTEGER", "", "see rounds; 0: before the first"),)),
    _sql("round", "x.label AS round,"),
    kept=True,
)

# Flows that count for fairness carried this share of what the run's largest flow did: the control
# connection of a test tool is no competitor.
_COUNTS = 0.01

SHARING = View(
    "sharing",
    "How flows shared the link: per second in which two or more were active all the time, and in "
    "total (t_s NULL) over those seconds. Flows with less than 1 % of the largest one's bytes do "
    "not count. source packets sees every flow, source kernel those with events.",
    (
        RUN_ID,
        RUN,
        Column("source", "VARCHAR", "", "packets or kernel"),
        Column("t_s", "INTEGER", "s", "second, from the run's first event; NULL: in total"),
        Column("flows", "BIGINT", "flows", "active flows"),
        Column("seconds", "BIGINT", "s", "seconds counted"),
        Column("jain", "DOUBLE", "", "Jain's index of their goodput: 1/flows (one has all) to 1"),
        Column("largest_share", "DOUBLE", "", "of the flow with most goodput"),
        Column("ratio", "DOUBLE", "", "goodput of the flow that began first over the last's"),
        Column("goodput_mbps", "DOUBLE", "Mbit/s", "of all flows together"),
    ),
    f"""
WITH both_sides AS (
  SELECT run_id, run, t_s, flow, stream, start_s, duration_s, 'packets' AS source,
    pkt_acked_bytes AS bytes
  FROM metrics_by_second WHERE pkt_acked_bytes IS NOT NULL
  UNION ALL
  SELECT run_id, run, t_s, flow, stream, start_s, duration_s, 'kernel', acked_bytes
  FROM metrics_by_second WHERE acked_bytes IS NOT NULL
), totals AS (
  SELECT run_id, source, flow, stream, sum(bytes) AS bytes, min(start_s) AS began
  FROM both_sides GROUP BY ALL
), counted AS (
  SELECT *, row_number() OVER (PARTITION BY run_id, source ORDER BY began, flow, stream) AS place
  FROM totals QUALIFY bytes >= {_COUNTS} * max(bytes) OVER (PARTITION BY run_id, source)
    AND bytes > 0
), seconds AS (
  SELECT b.run_id, b.run, b.source, b.t_s, c.place, b.bytes::DOUBLE AS bytes
  FROM both_sides b JOIN counted c ON c.run_id = b.run_id AND c.source = b.source
    AND c.flow IS NOT DISTINCT FROM b.flow AND c.stream IS NOT DISTINCT FROM b.stream
  WHERE b.duration_s > 0.999
), shared AS (
  SELECT *, count(*) OVER (PARTITION BY run_id, source, t_s) AS flows FROM seconds
  QUALIFY flows >= 2
), sums AS (
  SELECT run_id, run, source, t_s, place, bytes, flows, 1::BIGINT AS seconds FROM shared
  UNION ALL
  SELECT run_id, run, source, NULL, place, sum(bytes), max(flows), count(*) FROM shared
  GROUP BY run_id, run, source, place
)
SELECT run_id, run, source, t_s, count(*) AS flows, max(seconds) AS seconds,
  sum(bytes) ** 2 / nullif(count(*) * sum(bytes ** 2), 0) AS jain,
  max(bytes) / nullif(sum(bytes), 0) AS largest_share,
  arg_min(bytes, place) / nullif(arg_max(bytes, place), 0) AS ratio,
  sum(bytes) * 8 / 1e6 / max(seconds) AS goodput_mbps
FROM sums GROUP BY run_id, run, source, t_s ORDER BY run_id, source, t_s NULLS LAST
""",
    kept=True,
)

QUEUE_METRICS = View(
    "queue_metrics",
    "The bottleneck's queue while the run's events lasted, from its samples.",
    (
        RUN_ID,
        RUN,
        Column("kind", "VARCHAR", "", "qdisc"),
        Column("samples", "BIGINT", "", "samples"),
        Column("backlog_mean_bytes", "DOUBLE", "bytes", "mean backlog"),
        Column("backlog_p5_bytes", "DOUBLE", "bytes", "5th percentile: the standing queue"),
        Column("backlog_p95_bytes", "DOUBLE", "bytes", "95th percentile"),
        Column("backlog_max_bytes", "UBIGINT", "bytes", "largest sample"),
        Column("delay_mean_us", "DOUBLE", "us", "mean backlog at the link's rate; NULL: no rate"),
        Column("delay_p95_us", "DOUBLE", "us", "its 95th percentile"),
        Column("sent_bytes", "BIGINT", "bytes", "sent in that time"),
        Column("dropped_packets", "BIGINT", "packets", "dropped in that time"),
        Column("utilisation", "DOUBLE", "", "sent_bytes over what the link could have sent"),
    ),
    """
WITH q AS (
  SELECT q.run_id, r.run, q.kind, q.ns::BIGINT AS ns, q.backlog_bytes, q.sent_bytes, q.dropped,
    lead(q.ns) OVER w - q.ns AS held, lead(q.sent_bytes) OVER w AS next_sent,
    lead(q.dropped) OVER w AS next_dropped,
    r.first_ns::BIGINT AS first_ns, r.last_ns::BIGINT AS last_ns
  FROM queue_samples q JOIN runs r USING (run_id)
  WINDOW w AS (PARTITION BY q.run_id, q.kind ORDER BY q.ns)
), priced AS (
  SELECT q.*, l.bits_per_s, q.backlog_bytes * 8e6 / l.bits_per_s AS delay,
    q.ns BETWEEN q.first_ns AND q.last_ns AS inside
  FROM q ASOF LEFT JOIN link_rates l ON l.run_id = q.run_id AND q.ns >= l.start_ns
)
SELECT run_id, run, kind, count_if(inside)::BIGINT AS samples,
  avg(backlog_bytes) FILTER (inside) AS backlog_mean_bytes,
  quantile_cont(backlog_bytes, 0.05) FILTER (inside) AS backlog_p5_bytes,
  quantile_cont(backlog_bytes, 0.95) FILTER (inside) AS backlog_p95_bytes,
  max(backlog_bytes) FILTER (inside) AS backlog_max_bytes,
  avg(delay) FILTER (inside) AS delay_mean_us,
  quantile_cont(delay, 0.95) FILTER (inside) AS delay_p95_us,
  sum(next_sent::BIGINT - sent_bytes) FILTER (inside)::BIGINT AS sent_bytes,
  sum(next_dropped::BIGINT - dropped) FILTER (inside)::BIGINT AS dropped_packets,
  sum(next_sent::BIGINT - sent_bytes) FILTER (inside)
    / nullif(sum(bits_per_s / 8 * held / 1e9) FILTER (inside), 0) AS utilisation
FROM priced GROUP BY run_id, run, kind
""",
    kept=True,
)

RTT_FAIRNESS = View(
    "rtt_fairness",
    "How goodput depends on the path's RTT: flows that count, over the seconds in which two or "
    "more were active, each compared with the one of the shortest RTT.",
    (
        RUN_ID,
        RUN,
        Column("flow", "INTEGER", "", "see flows; NULL: a connection that events do not know"),
        Column("stream", "UINTEGER", "", "connection of the capture; NULL: not captured"),
        Column("rtt_min_us", "DOUBLE", "us", "its smallest RTT, from events, else from packets"),
        Column("rtt_ratio", "DOUBLE", "", "over that of the flow with the shortest"),
        Column("goodput_mbps", "DOUBLE", "Mbit/s", "over the common seconds"),
        Column("goodput_ratio", "DOUBLE", "", "over that of the flow with the shortest RTT"),
    ),
    f"""
WITH seconds AS (
  SELECT m.run_id, m.run, m.flow, m.stream, m.t_s,
    coalesce(m.pkt_acked_bytes, m.acked_bytes)::DOUBLE AS bytes
  FROM metrics_by_second m JOIN metrics_by_flow f ON f.run_id = m.run_id
    AND f.flow IS NOT DISTINCT FROM m.flow AND f.stream IS NOT DISTINCT FROM m.stream
  WHERE m.duration_s > 0.999
  QUALIFY coalesce(f.acked_bytes, f.pkt_acked_bytes, 0) > 0
    AND coalesce(f.acked_bytes, f.pkt_acked_bytes) >= {_COUNTS}
      * max(coalesce(f.acked_bytes, f.pkt_acked_bytes, 0)) OVER (PARTITION BY m.run_id)
), shared AS (
  SELECT * FROM seconds QUALIFY count(*) OVER (PARTITION BY run_id, t_s) >= 2
), sums AS (
  SELECT s.run_id, s.run, s.flow, s.stream, sum(bytes) * 8 / 1e6 / count(*) AS goodput_mbps
  FROM shared s GROUP BY ALL
), timed AS (
  SELECT s.*, coalesce(f.rtt_min_us::DOUBLE, f.pkt_rtt_min_us) AS rtt_min_us
  FROM sums s JOIN metrics_by_flow f ON f.run_id = s.run_id
    AND f.flow IS NOT DISTINCT FROM s.flow AND f.stream IS NOT DISTINCT FROM s.stream
)
SELECT run_id, run, flow, stream, rtt_min_us,
  rtt_min_us / nullif(min(rtt_min_us) OVER w, 0) AS rtt_ratio, goodput_mbps,
  goodput_mbps / nullif(arg_min(goodput_mbps, rtt_min_us) OVER w, 0) AS goodput_ratio
FROM timed WINDOW w AS (PARTITION BY run_id)
""",
    kept=True,
)

PROBE_RTT_SYNC = View(
    "probe_rtt_sync",
    "Each PROBE_RTT of a flow, and how many other flows of the run were in PROBE_RTT meanwhile: "
    "flows that share a bottleneck tend to enter it together, once one has drained the queue.",
    (
        RUN_ID,
        RUN,
        Column("flow", "INTEGER", "", "the flow within its run"),
        Column("start_ns", "UBIGINT", "ns", "CLOCK_MONOTONIC: it entered"),
        Column("end_ns", "UBIGINT", "ns", "it left"),
        Column("active_flows", "BIGINT", "flows", "flows that count at that time, itself included"),
        Column("together", "BIGINT", "flows", "of these, in PROBE_RTT at some time of it"),
        Column("overlap_share", "DOUBLE", "", "of its time, the largest common with one other"),
    ),
    """
WITH p AS (
  SELECT run_id, run, flow, start_ns, end_ns FROM phases WHERE phase = 'PROBE_RTT'
), others AS (
  SELECT p.run_id, p.flow, p.start_ns, o.flow AS other,
    sum(least(p.end_ns, o.end_ns) - greatest(p.start_ns, o.start_ns)) AS common_ns
  FROM p JOIN p o ON o.run_id = p.run_id AND o.flow <> p.flow AND o.start_ns < p.end_ns
    AND o.end_ns > p.start_ns
  GROUP BY ALL
), big AS (
  SELECT run_id, first_ns, last_ns FROM flows
  QUALIFY main > 0 AND main >= {counts} * max(main) OVER (PARTITION BY run_id)
), active AS (
  SELECT p.run_id, p.flow, p.start_ns, count(*) AS flows
  FROM p JOIN big f ON f.run_id = p.run_id AND f.first_ns < p.end_ns AND f.last_ns > p.start_ns
  GROUP BY ALL
)
SELECT p.run_id, p.run, p.flow, p.start_ns, p.end_ns, any_value(a.flows) AS active_flows,
  1 + count(o.other) AS together,
  coalesce(max(o.common_ns), 0) / nullif(p.end_ns - p.start_ns, 0) AS overlap_share
FROM p JOIN active a USING (run_id, flow, start_ns)
LEFT JOIN others o USING (run_id, flow, start_ns)
GROUP BY p.run_id, p.run, p.flow, p.start_ns, p.end_ns
""".replace("{counts}", str(_COUNTS)),
    kept=True,
)

ACK_AGGREGATION = View(
    "ack_aggregation",
    "How many packets each ACK delivered, and how unevenly ACKs came: from main events, and from "
    "captured ACKs that advance.",
    (
        RUN_ID,
        RUN,
        Column("flow", "INTEGER", "", "see flows; NULL: a connection that events do not know"),
        Column("stream", "UINTEGER", "", "connection of the capture; NULL: not captured"),
        Column("acks", "BIGINT", "events", "main events that delivered something"),
        Column("per_ack_mean", "DOUBLE", "packets", "rs.acked_sacked, mean"),
        Column("per_ack_p99", "DOUBLE", "packets", "its 99th percentile"),
        Column("per_ack_max", "BIGINT", "packets", "its maximum"),
        Column("extra_acked_max", "BIGINT", "packets", "BBR's largest extra_acked in the filter"),
        Column("pkt_acks", "BIGINT", "packets", "captured ACKs that advance"),
        Column("pkt_per_ack_mean_bytes", "DOUBLE", "bytes", "advance per ACK, mean"),
        Column("pkt_per_ack_max_bytes", "BIGINT", "bytes", "its maximum"),
        Column("pkt_gap_p50_us", "DOUBLE", "us", "between such ACKs, median"),
        Column("pkt_gap_p99_us", "DOUBLE", "us", "its 99th percentile"),
    ),
    f"""
WITH kernel AS (
  SELECT e.run_id, e.flow, count(*) AS acks, avg(rs_acked_sacked) AS per_ack_mean,
    quantile_cont(rs_acked_sacked, 0.99) AS per_ack_p99,
    max(rs_acked_sacked)::BIGINT AS per_ack_max,
    max(greatest(bbr_extra_acked_0, bbr_extra_acked_1))::BIGINT AS extra_acked_max
  FROM events e JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init
  WHERE e.kind = 'main' AND e.rs_acked_sacked > 0 GROUP BY ALL
), answers AS (
  SELECT run_id, stream, direction, ns, position
    - max(position) OVER (PARTITION BY run_id, stream, direction ORDER BY packet
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS advance
  FROM ({_beyond_wraps("ack", "ns::BIGINT AS ns")})
), advances AS (
  SELECT *, (ns - lag(ns) OVER (PARTITION BY run_id, stream, direction ORDER BY ns)) / 1e3 AS gap
  FROM answers WHERE advance > 0
), wire AS (
  SELECT run_id, stream, CASE direction WHEN 'data' THEN 'ack' ELSE 'data' END AS direction,
    count(*) AS acks, avg(advance) AS mean, max(advance) AS most,
    quantile_cont(gap, 0.5) AS gap_p50, quantile_cont(gap, 0.99) AS gap_p99
  FROM advances GROUP BY ALL
), ends AS (
  SELECT s.run_id, s.stream, s.flow, s.direction FROM streams s
  WHERE s.flow IS NOT NULL OR s.direction = 'data'
)
SELECT r.run_id, r.run, coalesce(k.flow, s.flow) AS flow, s.stream, k.acks, k.per_ack_mean,
  k.per_ack_p99, k.per_ack_max, k.extra_acked_max, w.acks AS pkt_acks,
  w.mean AS pkt_per_ack_mean_bytes, w.most AS pkt_per_ack_max_bytes,
  w.gap_p50 AS pkt_gap_p50_us, w.gap_p99 AS pkt_gap_p99_us
FROM ends s FULL JOIN kernel k ON k.run_id = s.run_id AND k.flow = s.flow
LEFT JOIN wire w ON w.run_id = s.run_id AND w.stream = s.stream AND w.direction = s.direction
JOIN runs r ON r.run_id = coalesce(k.run_id, s.run_id)
""",
    kept=True,
)

COMPLETION = View(
    "completion",
    "How long each flow took: from its SYN to the ACK of its last byte as the capture saw them, "
    "and from init (after the handshake) to the last event that advanced tp.snd_una.",
    (
        RUN_ID,
        RUN,
        Column("flow", "INTEGER", "", "see flows; NULL: a connection that events do not know"),
        Column("stream", "UINTEGER", "", "connection of the capture; NULL: not captured"),
        Column("completion_s", "DOUBLE", "s", "init to the last advance; NULL: init not recorded"),
        Column("pkt_completion_s", "DOUBLE", "s", "SYN to the last byte's ACK; NULL: not closed"),
        Column("pkt_bytes", "BIGINT", "bytes", "payload acknowledged from end to end"),
    ),
    f"""
WITH kernel AS (
  SELECT e.run_id, e.flow, (max(e.ns) FILTER (grown > 0) - min(f.first_ns)) / 1e9 AS seconds
  FROM (
    SELECT run_id, flow, ns, seq, tp_snd_una::BIGINT - lag(tp_snd_una) OVER
      (PARTITION BY run_id, flow ORDER BY seq) AS grown
    FROM events
  ) e JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init
  WHERE f.has_init GROUP BY ALL
), ends AS (
  SELECT run_id, stream, direction, min(ns) FILTER (flags & 2 <> 0) AS syn_ns,
    max(position + len) AS last_byte, bool_or(flags & 1 <> 0) AS fin
  FROM ({_beyond_wraps("seq", "ns, len, flags")}) GROUP BY ALL
), answers AS ({_beyond_wraps("ack", "ns")}
), closed AS (
  SELECT d.run_id, d.stream, d.direction, d.last_byte,
    (min(a.ns) - any_value(least(d.syn_ns, o.syn_ns))) / 1e9 AS seconds
  FROM ends d JOIN ends o ON o.run_id = d.run_id AND o.stream = d.stream
    AND o.direction <> d.direction
  JOIN answers a ON a.run_id = d.run_id AND a.stream = d.stream AND a.direction = o.direction
    AND a.position >= d.last_byte
  WHERE d.fin AND d.syn_ns IS NOT NULL GROUP BY ALL
), sides AS (
  SELECT run_id, stream, direction, flow FROM streams WHERE flow IS NOT NULL OR direction = 'data'
)
SELECT r.run_id, r.run, coalesce(k.flow, s.flow) AS flow, s.stream, k.seconds AS completion_s,
  c.seconds AS pkt_completion_s, c.last_byte - 1 AS pkt_bytes
FROM sides s FULL JOIN kernel k ON k.run_id = s.run_id AND k.flow = s.flow
LEFT JOIN closed c ON c.run_id = s.run_id AND c.stream = s.stream AND c.direction = s.direction
JOIN runs r ON r.run_id = coalesce(k.run_id, s.run_id)
""",
    kept=True,
)

# Convergence, after the experiments' catalogue: every flow within this share of an equal part, as
# a moving mean over WINDOW_S seconds, and for HOLD_S seconds on end.
TOLERANCE = 0.1
WINDOW_S = 10
HOLD_S = 30


def convergence_sql(
    tolerance: float = TOLERANCE, window_s: int = WINDOW_S, hold_s: int = HOLD_S
) -> str:
    """Return the query for the second in which each run's flows had converged.

    x(t) is a flow's goodput as a mean over the seconds t .. t + window_s - 1, fair an equal part of
    all. Converged at the first T such that for every flow |x(t) - fair| <= tolerance x fair for
    all t in T .. T + hold_s.
    """
    return f"""
WITH shares AS (
  SELECT run_id, source, t_s, flow, stream,
    CASE source WHEN 'packets' THEN pkt_acked_bytes ELSE acked_bytes END::DOUBLE AS bytes
  FROM metrics_by_second m JOIN (
    SELECT run_id, max(source) AS source FROM sharing GROUP BY run_id) USING (run_id)
  WHERE duration_s > 0.999
), counted AS (
  SELECT * FROM shares WHERE bytes IS NOT NULL
  QUALIFY sum(bytes) OVER (PARTITION BY run_id, flow, stream)
    >= 0.01 * max(bytes) OVER (PARTITION BY run_id)
), smooth AS (
  SELECT run_id, t_s, flow, stream, avg(bytes) OVER w AS x, count(*) OVER w AS n
  FROM counted
  WINDOW w AS (PARTITION BY run_id, flow, stream ORDER BY t_s
    RANGE BETWEEN CURRENT ROW AND {window_s} - 1 FOLLOWING)
), judged AS (
  SELECT run_id, t_s, count(*) AS flows,
    bool_and(abs(x - fair) <= {tolerance!r} * fair) AS fair
  FROM (SELECT *, avg(x) OVER (PARTITION BY run_id, t_s) AS fair FROM smooth WHERE n = {window_s})
  GROUP BY run_id, t_s
), held AS (
  SELECT run_id, t_s, fair AND bool_and(fair) OVER w AND min(flows) OVER w >= 2
    AND count(*) OVER w >= {hold_s} + 1 AS converged
  FROM judged
  WINDOW w AS (PARTITION BY run_id ORDER BY t_s RANGE BETWEEN CURRENT ROW AND {hold_s} FOLLOWING)
)
SELECT run_id, min(t_s) FILTER (converged) AS converged_s FROM held GROUP BY run_id
"""


METRICS_BY_RUN = View(
    "metrics_by_run",
    "Each run in numbers: its link, its queue and how flows shared them. Flows with less than 1 % "
    "of the largest one's bytes do not count as flows.",
    (
        RUN_ID,
        RUN,
        Column("flows", "BIGINT", "flows", "flows and captured connections that count"),
        Column("rate_mbps", "DOUBLE", "Mbit/s", "rate of the link at the start; NULL: unknown"),
        Column("rate_changes", "BIGINT", "", "how often it was changed"),
        Column("utilisation", "DOUBLE", "", "of the link, by the queue's own counters"),
        Column(
            "goodput_mbps",
            "DOUBLE",
            "Mbit/s",
            "of all flows, from the first's start to the "
            "last's end; from events, or packets where a flow has no events",
        ),
        Column("lost_packets", "BIGINT", "packets", "marked lost by the kernel"),
        Column("pkt_retransmissions", "BIGINT", "packets", "seen by the capture"),
        Column("dropped_packets", "BIGINT", "packets", "by the queue's own counters"),
        Column("rtt_min_us", "BIGINT", "us", "smallest RTT sample of any flow"),
        Column("queue_delay_mean_us", "DOUBLE", "us", "mean backlog at the link's rate"),
        Column("backlog_mean_bytes", "DOUBLE", "bytes", "mean backlog"),
        Column("standing_queue_bytes", "DOUBLE", "bytes", "5th percentile of the backlog"),
        Column("shares_from", "VARCHAR", "", "packets or kernel; NULL: no two flows at once"),
        Column("shared_seconds", "BIGINT", "s", "seconds with two or more flows"),
        Column("jain", "DOUBLE", "", "Jain's index over these"),
        Column("ratio", "DOUBLE", "", "goodput of the first flow over the last's over these"),
        Column(
            "converged_s",
            "INTEGER",
            "s",
            f"second from which on every flow's goodput, as a "
            f"mean over {WINDOW_S} s, stays within {TOLERANCE:.0%} of an equal part for "
            f"{HOLD_S} s; NULL: not converged",
        ),
    ),
    f"""
WITH link AS (
  SELECT run_id, arg_min(bits_per_s, start_ns) / 1e6 AS rate_mbps, count(*) - 1 AS rate_changes
  FROM link_rates GROUP BY run_id
), sizes AS (
  SELECT *, coalesce(acked_bytes, pkt_acked_bytes, 0) AS bytes FROM metrics_by_flow
), counted AS (
  SELECT * FROM sizes
  QUALIFY bytes > 0 AND bytes >= {_COUNTS} * max(bytes) OVER (PARTITION BY run_id)
), flows_of AS (
  SELECT run_id, run, count(*) AS flows, sum(bytes) * 8 / 1e6
    / nullif(max(start_s + duration_s) - min(start_s), 0) AS goodput_mbps,
    sum(lost_packets)::BIGINT AS lost_packets,
    sum(pkt_retransmissions)::BIGINT AS pkt_retransmissions, min(rtt_min_us) AS rtt_min_us
  FROM counted GROUP BY run_id, run
), total AS (
  SELECT run_id, max(source) AS shares_from, arg_max(jain, source) AS jain,
    arg_max(ratio, source) AS ratio, arg_max(seconds, source) AS shared_seconds
  FROM sharing WHERE t_s IS NULL GROUP BY run_id
), queue AS (
  SELECT run_id, max(utilisation) AS utilisation, max(backlog_mean_bytes) AS backlog_mean_bytes,
    max(backlog_p5_bytes) AS standing_queue_bytes, max(delay_mean_us) AS queue_delay_mean_us,
    max(dropped_packets) AS dropped_packets
  FROM queue_metrics GROUP BY run_id
), convergence AS ({{convergence}})
SELECT f.run_id, f.run, f.flows, l.rate_mbps, l.rate_changes, q.utilisation, f.goodput_mbps,
  f.lost_packets, f.pkt_retransmissions, q.dropped_packets, f.rtt_min_us, q.queue_delay_mean_us,
  q.backlog_mean_bytes, q.standing_queue_bytes, t.shares_from, t.shared_seconds, t.jain, t.ratio,
  c.converged_s
FROM flows_of f LEFT JOIN link l USING (run_id) LEFT JOIN total t USING (run_id)
LEFT JOIN queue q USING (run_id) LEFT JOIN convergence c USING (run_id)
ORDER BY f.run_id
""".format(convergence=convergence_sql()),
    kept=True,
)

TABLES = ()
VIEWS: tuple[View, ...] = (
    LINK_RATES,
    METRICS_BY_FLOW,
    METRICS_BY_SECOND,
    METRICS_BY_PHASE,
    METRICS_BY_ROUND,
    SHARING,
    QUEUE_METRICS,
    METRICS_BY_RUN,
    RTT_FAIRNESS,
    PROBE_RTT_SYNC,
    ACK_AGGREGATION,
    COMPLETION,
)
