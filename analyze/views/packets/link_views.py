"""The bottleneck: its rate over time, and its queue by the queue's own counters."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import RUN_ID
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import RUN, grown, stated_changes
from .measured_rates import MEASURED

_UNITS = (
    "CASE lower(regexp_extract({0}, '([A-Za-z]+)$', 1)) WHEN 'bit' THEN 1 WHEN 'kbit' THEN 1e3"
    " WHEN 'mbit' THEN 1e6 WHEN 'gbit' THEN 1e9 WHEN 'bps' THEN 8 WHEN 'kbps' THEN 8e3"
    " WHEN 'mbps' THEN 8e6 WHEN 'gbps' THEN 8e9 END"
)


def bits(text: str) -> str:
    """A rate as tc writes it (10mbit; bps is bytes/s there) in bit/s; NULL: not a rate.

    A bare number is bits per second, as of tc and of simulations.
    """
    rate = f"TRY_CAST(regexp_extract({text}, '^([0-9.]+)', 1) AS DOUBLE) * {_UNITS.format(text)}"
    return f"coalesce({rate}, TRY_CAST(regexp_extract({text}, '^[0-9.]+$') AS DOUBLE))"


LINK_RATES = View(
    "link_rates",
    "The bottleneck's rate over time, as the run's setup or its lab says; else as the counters of "
    "its queue show while packets wait in it.",
    (
        RUN_ID,
        Column("start_ns", "BIGINT", "ns", "CLOCK_MONOTONIC; 0: from the beginning"),
        Column("bits_per_s", "DOUBLE", "bit/s", "rate of the link layer, from then on"),
        Column("measured", "BOOLEAN", "", "nobody stated it: the counters of the queue show it"),
    ),
    f"""
WITH boot AS (
  SELECT run_id, min(boottime_ns::BIGINT - monotonic_ns) AS ahead FROM clocks
  WHERE point = 'start' GROUP BY run_id
), told AS (
  -- A lab's setup may name another parameter; what it came to is in lab_runs.
  SELECT run_id, 0::BIGINT AS start_ns,
    coalesce(l.rate_bps, {bits("json_extract_string(setup, '$.rate')")}) AS bits_per_s
  FROM runs LEFT JOIN lab_runs l USING (run_id)
  UNION ALL
{stated_changes("rate")}
  UNION ALL
  SELECT h.run_id,
    ((TRY_CAST(json_extract_string(h.value, '$.uptime_s') AS DOUBLE) * 1e9) - b.ahead)::BIGINT,
    {bits("json_extract_string(h.value, '$.rate')")}
  FROM host_facts h JOIN boot b USING (run_id)
  WHERE h.scope = 'changes' AND json_valid(h.value)
), stated AS (
  FROM told WHERE bits_per_s > 0 AND start_ns IS NOT NULL
), {MEASURED}
SELECT *, false AS measured FROM stated UNION ALL SELECT *, true FROM measured
""",
    shared=True,
)


def _queue_sql(first: str, last: str, windows: str = "") -> str:
    return f"""
WITH q AS (
  SELECT q.run_id, r.run, q.kind, q.ns::BIGINT AS ns, q.backlog_bytes, q.sent_bytes, q.dropped,
    lead(q.ns) OVER w - q.ns AS held, lead(q.sent_bytes) OVER w AS next_sent,
    lead(q.dropped) OVER w AS next_dropped,
    {first} AS first_ns, {last} AS last_ns
  FROM queue_samples q JOIN runs r USING (run_id){windows}
  WINDOW w AS (PARTITION BY q.run_id, q.kind ORDER BY q.ns)
), rates AS (
  -- What the link could have sent before its rate became this one.
  SELECT run_id, start_ns, bits_per_s,
    coalesce(sum(before) OVER (PARTITION BY run_id ORDER BY start_ns), 0) AS before_bits
  FROM (
    SELECT *, lag(bits_per_s) OVER w * (start_ns - lag(start_ns) OVER w) / 1e9 AS before
    FROM link_rates WINDOW w AS (PARTITION BY run_id ORDER BY start_ns)
  )
), priced AS (
  SELECT q.*, q.backlog_bytes * 8e6 / l.bits_per_s AS delay,
    q.ns BETWEEN q.first_ns AND q.last_ns AS inside,
    e.before_bits + e.bits_per_s * (q.ns + q.held - e.start_ns) / 1e9
      - l.before_bits - l.bits_per_s * (q.ns - l.start_ns) / 1e9 AS could_bits
  FROM q ASOF LEFT JOIN rates l ON l.run_id = q.run_id AND q.ns >= l.start_ns
  ASOF LEFT JOIN rates e ON e.run_id = q.run_id AND q.ns + q.held >= e.start_ns
)
SELECT run_id, run, kind, count_if(inside)::BIGINT AS samples,
  avg(backlog_bytes) FILTER (inside) AS backlog_mean_bytes,
  quantile_cont(backlog_bytes, 0.05) FILTER (inside) AS backlog_p5_bytes,
  quantile_cont(backlog_bytes, 0.95) FILTER (inside) AS backlog_p95_bytes,
  max(backlog_bytes) FILTER (inside) AS backlog_max_bytes,
  avg(delay) FILTER (inside) AS delay_mean_us,
  quantile_cont(delay, 0.95) FILTER (inside) AS delay_p95_us,
  sum({grown("next_sent", "sent_bytes")}) FILTER (inside)::BIGINT AS sent_bytes,
  sum({grown("next_dropped", "dropped")}) FILTER (inside)::BIGINT AS dropped_packets,
  sum({grown("next_sent", "sent_bytes")}) FILTER (inside)
    / nullif(sum(could_bits) FILTER (inside) / 8, 0) AS utilisation
FROM priced GROUP BY run_id, run, kind
"""


def windowed_queue_sql(windows: str) -> str:
    """Return the query of queue_metrics over a window of each run; see windowed_sql."""
    first, last = "greatest(r.first_ns::BIGINT, w.from_ns)", "least(r.last_ns::BIGINT, w.until_ns)"
    query = _queue_sql(first, last, " JOIN chosen_windows w USING (run_id)")
    return query.replace("WITH q AS (", f"WITH {windows}, q AS (", 1)


def windowed_rates_sql(windows: str) -> str:
    """Return the query of link_rates over a window of each run.

    A run's first row is the rate that holds when its window begins; see windowed_sql.
    """
    return f"""
WITH {windows}, steps AS ({LINK_RATES.sql}), ended AS (
  SELECT *, lead(start_ns, 1, 9223372036854775807) OVER (PARTITION BY run_id ORDER BY start_ns)
    AS end_ns FROM steps
)
SELECT run_id, greatest(start_ns, from_ns) AS start_ns, bits_per_s, measured
FROM ended JOIN chosen_windows USING (run_id) WHERE start_ns < until_ns AND end_ns > from_ns
"""


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
        Column(
            "dropped_packets", "BIGINT", "packets", "dropped from its first sample in that time on"
        ),
        Column("utilisation", "DOUBLE", "", "sent_bytes over what the link could have sent"),
    ),
    _queue_sql("r.first_ns::BIGINT", "r.last_ns::BIGINT"),
    materialized=True,
)

VIEWS = (LINK_RATES, QUEUE_METRICS)
