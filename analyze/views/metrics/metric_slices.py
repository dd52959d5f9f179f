"""The numbers that papers report about flows, from kernel events and from packets on their own.

What comes from packets has names that begin with pkt_; nothing of it goes into the other columns,
so that each side checks the other. Rates are in Mbit/s = 1e6 bit/s and name their layer: goodput
counts payload that was acknowledged in order, throughput whole frames as the wire (and tbf) does.
If a flow has samples (of ss, or v2alpha's lines) and no events, they give the kernel's side.
"""

from __future__ import annotations

from ....collect.store.schema.table import Column
from ..view import View
from .metric_columns import metric_columns

# A capture whose clock jumps can span centuries; the last slice then has all the rest.
MOST_SECONDS = 100_000

# What each slicing calls its slices, and where they begin; they tile the flow's time.
_SLICES = {
    "flow": """
slices AS (
  SELECT run_id, flow, stream, 0 AS label, first_ns AS start_ns, last_ns AS end_ns FROM senders
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
    FROM senders)
)
""".replace("{most}", str(MOST_SECONDS)),
    "phase": """
slices AS (
  SELECT n.run_id, n.flow, n.stream, p.phase AS label, p.start_ns::BIGINT AS start_ns,
    p.end_ns::BIGINT AS end_ns
  FROM senders n JOIN phases p ON p.run_id = n.run_id AND p.flow = n.flow
)
""",
    "round": """
begun AS (
  SELECT run_id, flow, round, start_ns::BIGINT AS start_ns, duration_ns FROM rounds
), slices AS (
  SELECT n.run_id, n.flow, n.stream, 0 AS label, n.first_ns AS start_ns, r.start_ns AS end_ns
  FROM senders n JOIN begun r ON r.run_id = n.run_id AND r.flow = n.flow AND r.round = 1
  UNION ALL
  SELECT n.run_id, n.flow, n.stream, r.round, r.start_ns, r.start_ns + r.duration_ns
  FROM senders n JOIN begun r ON r.run_id = n.run_id AND r.flow = n.flow
)
""",
}


_AS_OF = """
  ASOF LEFT JOIN link_rates l ON l.run_id = p.run_id AND p.ns >= l.start_ns
  ASOF JOIN slices s ON s.run_id = p.run_id AND s.flow = p.flow AND p.ns >= s.start_ns
"""
_RANGES = """
rate_ranges AS (
  SELECT *, lead(start_ns, 1, 9223372036854775807) OVER
    (PARTITION BY run_id ORDER BY start_ns) AS end_ns
  FROM link_rates
), slice_ranges AS (
  SELECT *, lead(start_ns, 1, 9223372036854775807) OVER
    (PARTITION BY run_id, flow ORDER BY start_ns, stream) AS next_ns
  FROM slices WHERE flow IS NOT NULL
), """
# Pieces of slices in which the link has one rate (or none, before the first), listed by the second
# of CLOCK_MONOTONIC: an event is compared with the few of its second. A flow's last slice has no
# end: it is listed under the second in which it begins, and later events get that second, too.
_PIECES = f"""{_RANGES}last_slices AS (
  SELECT run_id, flow, max(start_ns) // 1000000000 AS second FROM slice_ranges GROUP BY run_id, flow
), all_rates AS (
  SELECT run_id, start_ns, end_ns, bits_per_s, measured FROM rate_ranges
  UNION ALL
  SELECT run_id, -9223372036854775807, coalesce(min(r.start_ns), 9223372036854775807), NULL, NULL
  FROM (SELECT DISTINCT run_id FROM slice_ranges) LEFT JOIN rate_ranges r USING (run_id)
  GROUP BY run_id
), pieces AS (
  SELECT run_id, flow, stream, label, start_ns, from_ns, until_ns, bits_per_s, measured,
    unnest(generate_series(least(from_ns // 1000000000, last_second),
      least((until_ns - 1) // 1000000000, last_second))) AS second
  FROM (
    SELECT s.*, t.second AS last_second, l.bits_per_s, l.measured,
      greatest(s.start_ns, l.start_ns) AS from_ns, least(s.next_ns, l.end_ns) AS until_ns
    FROM slice_ranges s JOIN last_slices t USING (run_id, flow)
    JOIN all_rates l ON l.run_id = s.run_id AND l.start_ns < s.next_ns AND l.end_ns > s.start_ns
  ) WHERE from_ns < until_ns
), """
# A LEFT JOIN: DuckDB then hashes the few pieces, and not the many events. An event that is in no
# slice gets label NULL, and counts in none.
_IN_PIECES = """
  LEFT JOIN pieces s ON s.run_id = p.run_id AND s.flow = p.flow AND s.second = p.second
    AND p.ns >= s.from_ns AND p.ns < s.until_ns
"""
_STEPS_OF_PIECES = """(
  SELECT x.*, least(x.ns // 1000000000, t.second) AS second
  FROM flow_steps x JOIN last_slices t USING (run_id, flow))"""
_IN_RANGES = """
  LEFT JOIN rate_ranges l ON l.run_id = p.run_id AND p.ns >= l.start_ns AND p.ns < l.end_ns
  JOIN slice_ranges s
    ON s.run_id = p.run_id AND s.flow = p.flow AND p.ns >= s.start_ns AND p.ns < s.next_ns
"""


# For how long the application or the receiver's window was what limited sending.
_BOUND_NS = """
  CASE binding WHEN 'application' THEN duration_ns END AS application_ns,
  CASE binding WHEN 'receive_window' THEN duration_ns END AS receive_window_ns,
  duration_ns AS all_ns
"""
_BOUND = f"SELECT run_id, flow, seq, {_BOUND_NS} FROM binding"
_BOUND_IN_RANGES = f"""
  SELECT b.run_id, b.flow, s.start_ns, sum(application_ns) AS application_ns,
    sum(receive_window_ns) AS receive_window_ns, sum(all_ns) AS all_ns
  FROM (SELECT run_id, flow, ns, {_BOUND_NS} FROM binding) b JOIN slice_ranges s
    ON s.run_id = b.run_id AND s.flow = b.flow AND b.ns >= s.start_ns AND b.ns < s.next_ns
  GROUP BY b.run_id, b.flow, s.start_ns
"""


# What an event brought belongs to the slice in which it happened, of phases to the one that it
# found; what held after it until the next is weighted with that time in the slice that follows.
#
# A path that is stated may be shorter in truth; its queue is then none, and not below.
#
# Whole flows and seconds are found by range: an ASOF join sorts all events with all that was said
# of them. For phases and rounds, which may be many or long, it is still the faster of the two.
def _kernel(by: str, cut: bool) -> str:
    ranges = by == "flow" and not cut
    before, steps, joined, rate = "", "flow_steps", _AS_OF, "l"
    if ranges:
        before, joined = _RANGES, _IN_RANGES
    elif by == "second":
        before, steps, joined, rate = _PIECES, _STEPS_OF_PIECES, _IN_PIECES, "s"
    bound = "any_value(b.{}_ns)" if ranges else "sum(b.{}_ns)"
    phase_column = "p.phase" if by == "phase" else "s.label"
    if by == "phase" and cut:
        phase_column = (
            "struct_pack(part := coalesce(p.phase, s.label.part), piece := s.label.piece)"
        )
    return f"""
{before}rtts AS (
  SELECT run_id, flow, base_rtt_us AS base,
    (run_id, flow) IN (SELECT (run_id, flow) FROM queue_bypasses) AS bypasses
  FROM base_rtts
), placed AS (
  SELECT p.*, p.rtt_us - rtts.base AS queue_us, s.stream, s.label, s.start_ns,
    coalesce({phase_column}, s.label) AS phase_column,
    CASE WHEN NOT ({rate}.measured AND rtts.bypasses)
      THEN bdp_packets({rate}.bits_per_s, rtts.base, p.frame) END AS bdp
  FROM {steps} p LEFT JOIN rtts USING (run_id, flow)
  {joined}
), brought AS (
  SELECT run_id, flow, stream, phase_column AS label, count_if(is_ack) AS mains,
    sum(delivered * frame) * 8 AS carried_bits,
    sum(acked_bytes)::BIGINT AS acked_bytes, sum(delivered)::BIGINT AS delivered,
    sum(lost)::BIGINT AS lost, sum(ce)::BIGINT AS ce, median(rate_mbps) AS rate,
    max(rate_mbps) AS rate_max, min(rtt_us) AS rtt_min, avg(rtt_us) AS rtt_mean,
    quantile_cont(rtt_us, 0.5) AS rtt_p50, quantile_cont(rtt_us, 0.95) AS rtt_p95,
    quantile_cont(rtt_us, 0.99) AS rtt_p99, if(avg(queue_us) < 0, 0, avg(queue_us)) AS queue_delay
  FROM placed GROUP BY run_id, flow, stream, phase_column
), bound AS (
  {_BOUND_IN_RANGES if ranges else _BOUND}
), held AS (
  SELECT p.run_id, p.flow, p.stream, p.label,
    sum(p.in_flight * p.held_ns) / sum(p.held_ns) AS in_flight,
    sum((p.in_flight - p.bdp) * p.held_ns) / sum(p.held_ns) AS over_bdp,
    sum(p.cwnd * p.held_ns) / sum(p.held_ns) AS cwnd,
    sum(p.pacing * p.held_ns) / sum(p.held_ns) AS pacing,
    coalesce({bound.format("application")}, sum(p.app_limited_ns))
      / coalesce({bound.format("all")}, sum(p.sampled_ns)) AS app,
    coalesce({bound.format("receive_window")}, sum(p.rwnd_limited_ns))
      / coalesce({bound.format("all")}, sum(p.sampled_ns)) AS rwnd,
    sum(p.sndbuf_limited_ns) / sum(p.sampled_ns) AS sndbuf,
    coalesce({bound.format("all")}, sum(p.sampled_ns)) AS known_ns
  FROM placed p LEFT JOIN bound b ON b.run_id = p.run_id AND b.flow = p.flow
    AND {"b.start_ns = p.start_ns" if ranges else "b.seq = p.seq"}
  GROUP BY p.run_id, p.flow, p.stream, p.label
), kernel AS (
  SELECT coalesce(a.run_id, h.run_id) AS run_id, coalesce(a.flow, h.flow) AS flow,
    coalesce(a.stream, h.stream) AS stream, coalesce(a.label, h.label) AS label,
    a.* EXCLUDE (run_id, flow, stream, label), h.* EXCLUDE (run_id, flow, stream, label)
  FROM brought a FULL JOIN held h ON h.run_id = a.run_id AND h.flow = a.flow
    AND h.stream IS NOT DISTINCT FROM a.stream AND h.label = a.label
)
"""


_PACKETS = """
keyed AS (
  SELECT s.*, n.direction FROM slices s
  JOIN senders n ON n.run_id = s.run_id AND n.stream = s.stream
    AND n.flow IS NOT DISTINCT FROM s.flow
  WHERE s.stream IS NOT NULL
), wire AS (
  SELECT s.run_id, s.flow, s.stream, s.direction, s.label, sum(j.frame_len)::BIGINT AS bytes,
    sum(j.len)::BIGINT AS payload, count_if(j.len > 0)::BIGINT AS segments,
    count_if(j.sent_again)::BIGINT AS resent, count_if(j.overtaken)::BIGINT AS overtaken,
    count_if(j.ecn = 3 AND j.len > 0)::BIGINT AS ce,
    avg(j.bytes_in_flight) FILTER (j.len > 0) AS in_flight
  FROM captured_segments j ASOF JOIN keyed s ON s.run_id = j.run_id AND s.stream = j.stream
    AND s.direction = j.direction AND j.ns >= s.start_ns
  GROUP BY ALL
), replies AS (
  SELECT s.run_id, s.flow, s.stream, s.direction, s.label, sum(e.acked)::BIGINT AS acked,
    min(e.rtt_us) AS rtt_min, avg(e.rtt_us) AS rtt_mean, quantile_cont(e.rtt_us, 0.5) AS rtt_p50,
    quantile_cont(e.rtt_us, 0.95) AS rtt_p95, quantile_cont(e.rtt_us, 0.99) AS rtt_p99
  FROM captured_acks e ASOF JOIN keyed s ON s.run_id = e.run_id AND s.stream = e.stream
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
      / 1e9 AS event_seconds,
    sum(greatest(least(s.end_ns, t.last_ns::BIGINT) - greatest(s.start_ns, t.first_ns::BIGINT), 0))
      / 1e9 AS pkt_seconds
  FROM slices s JOIN senders n ON n.run_id = s.run_id AND n.flow IS NOT DISTINCT FROM s.flow
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
  -- A rate that a queue tells is none of a flow that did not pass it.
  WHERE NOT (l.measured AND (s.run_id, s.flow) IN (SELECT (run_id, flow) FROM queue_bypasses))
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
  ANTI JOIN queue_bypasses b ON b.run_id = s.run_id AND b.flow = s.flow
  GROUP BY s.run_id, s.flow, s.stream, s.label
)
"""


def _select(label: str, where: str = "") -> str:
    return f"""
SELECT x.run_id, n.run, x.flow, x.stream, n."local", n.remote, {label}
  (x.start_ns - n.zero_ns) / 1e9 AS start_s, x.seconds AS duration_s,
  k.acked_bytes, k.acked_bytes * 8 / 1e6 / nullif(x.event_seconds, 0) AS goodput_mbps,
  k.carried_bits * x.seconds / nullif(c.bits * x.event_seconds, 0) AS utilisation,
  k.delivered AS delivered_packets, k.rate AS delivery_rate_mbps,
  k.rate_max AS delivery_rate_max_mbps, k.lost AS lost_packets,
  k.lost / nullif(k.lost + k.delivered, 0) AS loss_rate,
  k.ce / nullif(k.delivered, 0) AS ce_rate,
  k.rtt_min AS rtt_min_us, k.rtt_mean AS rtt_mean_us, k.rtt_p50 AS rtt_p50_us,
  k.rtt_p95 AS rtt_p95_us, k.rtt_p99 AS rtt_p99_us, k.queue_delay AS queue_delay_us,
  b.delay AS queue_sampled_us, k.in_flight AS inflight_packets,
  k.over_bdp AS inflight_minus_bdp_packets,
  k.cwnd AS cwnd_packets, k.pacing * 8 / 1e6 AS pacing_mbps,
  CASE WHEN k.known_ns > 0 THEN coalesce(k.app, 0) END AS app_limited_share,
  CASE WHEN k.known_ns > 0 AND (k.mains > 0 OR k.sndbuf IS NOT NULL) THEN coalesce(k.rwnd, 0)
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
FROM spans x JOIN senders n ON n.run_id = x.run_id AND n.flow IS NOT DISTINCT FROM x.flow
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
{where}
ORDER BY x.run_id, x.flow NULLS LAST, x.stream, x.label
"""


# Slices that a run's window goes through are cut there: what is before it, in it, and after it.
_CUT = """
slices AS (
  SELECT * FROM (
    SELECT u.run_id, u.flow, u.stream, struct_pack(part := u.label, piece := p.piece) AS label,
      greatest(u.start_ns, [-9223372036854775807, w.from_ns, w.until_ns][p.piece]) AS start_ns,
      least(u.end_ns, [w.from_ns, w.until_ns, 9223372036854775807][p.piece]) AS end_ns
    FROM uncut u JOIN chosen_windows w USING (run_id), (VALUES (1), (2), (3)) p(piece)
  ) WHERE start_ns < end_ns
)
"""
_LABELS = {"flow": "", "second": "t_s", "phase": "phase", "round": "round"}


def _sql(by: str) -> str:
    label = _LABELS[by] and f"x.label AS {_LABELS[by]},"
    parts = (_SLICES[by], _kernel(by, False), _PACKETS, _SPANS, _LINK)
    return f"WITH {', '.join(parts)} {_select(label)}"


def windowed_sql(by: str, windows: str) -> str:
    """Return the query of a view of metrics over a window of each run, which cuts slices.

    Args:
        by: flow, second, phase or round.
        windows: SQL of a table ``chosen_windows``: run_id, from_ns, until_ns (CLOCK_MONOTONIC).
    """
    label = _LABELS[by] and f"x.label.part AS {_LABELS[by]},"
    uncut = _SLICES[by].replace("slices AS (", "uncut AS (")
    parts = (windows, uncut, _CUT, _kernel(by, True), _PACKETS, _SPANS, _LINK)
    return f"WITH {', '.join(parts)} {_select(label, 'WHERE x.label.piece = 2')}"


METRICS_BY_FLOW = View(
    "metrics_by_flow",
    "Each flow in numbers, from kernel events (of flows without any, from samples: then RTTs are "
    "smoothed ones and lost_packets counts retransmissions, if ss printed them) and (pkt_) from "
    "packets on their own. Connections that only the capture knows, such as a CUBIC competitor, "
    "have flow NULL.",
    metric_columns(()),
    _sql("flow"),
    materialized=True,
)

METRICS_BY_SECOND = View(
    "metrics_by_second",
    f"The same per second of the run, for the first {MOST_SECONDS:,} seconds of each flow; what "
    "comes later is counted in the last.",
    metric_columns(
        (
            Column(
                "t_s",
                "INTEGER",
                "s",
                "second of the run's clock, see senders.zero_ns; -1: before it",
            ),
        )
    ),
    _sql("second"),
    shared=True,
    # What sharing, rtt_fairness and metrics_by_run read: all columns would take as long as finding
    # these three times.
    shared_columns=(
        *("run_id", "run", "flow", "stream", "t_s"),
        *("duration_s", "acked_bytes", "pkt_acked_bytes"),
    ),
)

METRICS_BY_PHASE = View(
    "metrics_by_phase",
    "The same per phase (see phases), all its occurrences together: durations of a flow add up to "
    "its time since init. What an ACK brings counts for the phase that it found.",
    metric_columns((Column("phase", "VARCHAR", "", "see phases"),)),
    _sql("phase"),
)

METRICS_BY_ROUND = View(
    "metrics_by_round",
    "The same per packet-timed round of the kernel (see rounds): what the kernel marked lost in it "
    "beside what the capture shows to be sent again, and CE marks on both sides.",
    metric_columns((Column("round", "INTEGER", "", "see rounds; 0: before the first"),)),
    _sql("round"),
)


VIEWS = (METRICS_BY_FLOW, METRICS_BY_SECOND, METRICS_BY_PHASE, METRICS_BY_ROUND)
