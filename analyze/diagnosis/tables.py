"""What rules ask: one run's flows, events, phases, limits and surroundings, worked out once.

Rules are SQL over these temporary tables (names begin with ``this_``) and over the store itself.
Times are CLOCK_MONOTONIC [ns], rates bytes of payload per second, volumes packets, unless a
column's name says otherwise. Flows that carried next to nothing (iperf3's control connection) are
left out, as the report leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..views.materialize import narrowed, narrowed_query, stored_views
from ..views.registry import VIEWS

if TYPE_CHECKING:
    import duckdb

_PARAMETER = re.compile(r"\$(\w+)")

# One row: the run, zero of its clock, and when the last of its flows ended; no flow: no row.
_RUN = """
SELECT r.run_id, r.run, r.version, r.kernel, r.hz, r.setup, any_value(c.zero_ns) AS zero_ns,
  max(c.last_event_ns) AS last_event_ns, count(*) AS flows
FROM runs r, this_chosen c WHERE r.run_id = $run_id GROUP BY ALL
"""

# The flows that carry data and whose callbacks were recorded.
_CHOSEN = (
    "SELECT s.flow, s.last_event_ns, s.zero_ns FROM senders s JOIN flows f USING (run_id, flow)"
    " WHERE s.counts AND f.main > 0"
)

# The flows that carry data, of which packets alone tell.
_OTHER_SENDERS = "SELECT stream FROM senders WHERE flow IS NULL AND counts"

# When all senders were there, and which whole seconds since zero_ns that are; no row: never. Flows
# are compared at no other time.
_WINDOW = "SELECT start_ns, end_ns, first_s, last_s FROM comparison_windows"

_BASES = "SELECT flow, base_rtt_us AS us, source FROM base_rtts"


def _after(column: str) -> str:
    """State after an event is what the next one found; init recorded its own."""
    return (
        f"CASE WHEN kind = 'init' THEN {column} ELSE coalesce(lead({column}) OVER w, {column}) END"
    )


def _growth(column: str) -> str:
    """By how much a 32-bit counter grew since the event before; 0 if it fell back."""
    return f"growth32({column}, lag({column}) OVER w)"


# capacity is what the bottleneck's rate leaves for payload, NULL where the setup does not say;
# bw what BBR believes (its filter, or bw_lo below it), gap_s how long nothing was heard before.
_EVENTS = f"""
WITH counted AS (
  SELECT flow, seq, ns::BIGINT AS ns, kind::VARCHAR AS kind, kind = 'main' AS main,
    coalesce(lead(ns) OVER w - ns, 0)::BIGINT AS held_ns,
    coalesce(ns - lag(ns) OVER w, 0)::BIGINT AS silent_ns,
    {_after("mode_name(bbr_mode)")} AS mode, tp_mss_cache::BIGINT AS mss,
    CASE WHEN kind = 'main' AND rs_rtt_us > 0 THEN rs_rtt_us END AS rtt_us,
    if_set({_after("bbr_min_rtt_us")}) AS min_rtt_us,
    coalesce({_after("tp_snd_cwnd")}, tp_snd_cwnd)::BIGINT AS cwnd,
    coalesce(exit_sk_pacing_rate, sk_pacing_rate)::DOUBLE AS pacing,
    packets_in_flight(tp_packets_out, tp_sacked_out, tp_lost_out, tp_retrans_out) AS inflight,
    if_set({_after("bbr_inflight_hi")}) AS inflight_hi,
    if_set({_after("bbr_inflight_lo")}) AS inflight_lo,
    bw_to_bytes(if_set({_after("bbr_bw_lo")}), tp_mss_cache) AS bw_lo,
    bw_to_bytes({_after("max_bw(bbr_bw_hi_0, bbr_bw_hi_1, bbr_bw_s_0_v)")}, tp_mss_cache) AS max_bw,
    CASE WHEN kind = 'main' AND rs_delivered > 0 AND rs_interval_us > 0
      THEN rs_delivered::DOUBLE * tp_mss_cache * 1e6 / rs_interval_us END AS sample_bw,
    rs_is_app_limited = 1 AS app_limited_sample,
    {_growth("tp_delivered")} AS delivered, {_growth("tp_lost")} AS lost,
    {_growth("tp_delivered_ce")} AS ce, {_growth("tp_snd_una")} AS acked_bytes,
    coalesce(rs_acked_sacked, 0)::BIGINT AS acked_sacked,
    greatest(bbr_extra_acked_0, bbr_extra_acked_1)::BIGINT AS extra_acked,
    icsk_ca_state AS ca_state, tp_snd_wnd::BIGINT AS snd_wnd, tp_srtt_us / 8.0 AS srtt_us,
    new_state, event, tp_app_limited > 0 AS app_limited,
    nullif(sk_max_pacing_rate, 18446744073709551615)::DOUBLE AS max_pacing,
    tp_ecn_flags & 1 = 1 AS ecn_ok, tp_ecn_flags & 16 = 16 AS ecn_low,
    bbr_ecn_eligible = 1 AS ecn_eligible,
    kind = 'main' AND {_after("bbr_round_start")} = 1 AS round_start,
    bbr_full_bw_reached = 1 AS full_bw_reached, bbr_lt_use_bw = 1 AS lt_use_bw
  FROM events JOIN flows USING (run_id, flow)
  WHERE run_id = $run_id AND flow IN (SELECT flow FROM this_chosen) AND seq >= pre_init
  WINDOW w AS (PARTITION BY flow ORDER BY seq)
), linked AS (
  SELECT start_ns, bits_per_s,
    coalesce(lead(start_ns) OVER (ORDER BY start_ns), 9223372036854775807) AS end_ns
  FROM link_rates WHERE run_id = $run_id
)
-- A range, not ASOF: the few rates are looked through for each event, and nothing is sorted.
SELECT e.*, l.bits_per_s / 8 * e.mss / frame_bytes(e.mss) AS capacity,
  coalesce(capacity, (SELECT max(c.max_bw) FROM counted c WHERE c.flow = e.flow)) AS full_rate
FROM counted e LEFT JOIN linked l ON e.ns >= l.start_ns AND e.ns < l.end_ns
"""

_FLOWS = """
SELECT flow, min(ns) AS first_ns, max(ns) AS last_ns, (max(ns) - min(ns)) / 1e9 AS duration_s,
  max(mss) AS mss, sum(acked_bytes)::BIGINT AS acked_bytes, sum(delivered)::BIGINT AS delivered,
  sum(lost)::BIGINT AS lost, sum(ce)::BIGINT AS ce, min(rtt_us) AS rtt_min_us,
  coalesce(any_value(base.us), min(rtt_us))::DOUBLE AS base_rtt_us,
  any_value(base.source) IN ('lab', 'setup') AS base_is_known,
  max(max_bw) AS max_bw, max(capacity) AS capacity, coalesce(max(capacity), max(max_bw)) AS rate,
  sum(acked_bytes) / nullif((max(ns) - min(ns)) / 1e9, 0) AS goodput,
  sum(lost) / nullif(sum(lost) + sum(delivered), 0) AS loss_share
FROM this_events JOIN this_bases base USING (flow) GROUP BY flow ORDER BY flow
"""

_PHASES = """
SELECT p.flow, p.phase, p.start_ns::BIGINT AS start_ns, p.end_ns::BIGINT AS end_ns,
  p.duration_ns / 1e9 AS duration_s, p.end_name, p.seq, p.seq + p.events AS end_seq
FROM phases p WHERE p.flow IN (SELECT flow FROM this_chosen) ORDER BY p.flow, p.seq
"""

_BINDING = """
SELECT flow, seq, ns::BIGINT AS ns, duration_ns, phase, binding
FROM binding WHERE flow IN (SELECT flow FROM this_chosen)
ORDER BY flow, seq
"""

_BOUNDS = """
SELECT flow, seq, ns::BIGINT AS ns, bound, old::BIGINT AS old, new::BIGINT AS new, name, e0, e1
FROM bounds_history WHERE flow IN (SELECT flow FROM this_chosen)
ORDER BY flow, seq
"""

# Only the decisions that some rule names: the others would be most of the store.
_DECISIONS = """
SELECT d.flow, d.seq, d.ord, d.ns::BIGINT AS ns, c.name, d.e0, d.e1, d.e2, d.e3
FROM decisions d JOIN decision_codes c USING (code)
WHERE d.run_id = $run_id AND c.name IN (SELECT unnest($codes))
  AND d.flow IN (SELECT flow FROM this_chosen)
ORDER BY d.flow, d.seq, d.ord
"""

# Who carried how much in each second since zero_ns: flows by their ACKs, and other senders by the
# payload of captured connections, or by what a lab's iperf3 received. full_bytes is what a sender
# could have carried in the time that it was there: an equal part of the link's rate (all of what
# the flow ever believed in, where the setup names none); short_bytes is what is missing to it.
_SECONDS = """
WITH spans AS (
  SELECT f.flow, f.rate, second::INTEGER AS second,
    (least(f.last_ns, r.zero_ns + (second + 1) * 1000000000)
      - greatest(f.first_ns, r.zero_ns + second * 1000000000)) / 1e9 AS covered_s
  FROM this_flows f, this_run r, generate_series((f.first_ns - r.zero_ns) // 1000000000,
    (f.last_ns - r.zero_ns) // 1000000000) AS t(second)
), carried AS (
  SELECT flow, ((e.ns - r.zero_ns) // 1000000000)::INTEGER AS second,
    sum(e.acked_bytes)::BIGINT AS bytes, sum(e.lost)::BIGINT AS lost,
    sum(e.delivered)::BIGINT AS delivered, avg(e.full_rate) AS full_rate,
    min(e.rtt_us) AS rtt_min_us, avg(e.srtt_us) AS srtt_us
  FROM this_events e, this_run r GROUP BY ALL
), ours AS (
  SELECT s.flow, s.second, s.covered_s, coalesce(c.bytes, 0) AS bytes, coalesce(c.lost, 0) AS lost,
    coalesce(c.delivered, 0) AS delivered, coalesce(c.full_rate, s.rate) AS full_rate,
    c.rtt_min_us, c.srtt_us
  FROM spans s LEFT JOIN carried c USING (flow, second)
), theirs AS (
  SELECT p.stream AS other, ((p.ns::BIGINT - r.zero_ns) // 1000000000)::INTEGER AS second,
    sum(p.len)::BIGINT AS bytes
  FROM packets p JOIN this_other_senders s USING (stream), this_run r
  WHERE p.run_id = $run_id AND p.direction = 'data'
    AND p.ns BETWEEN r.zero_ns AND r.last_event_ns
  GROUP BY ALL
  UNION ALL
  SELECT f.flow_no, ((x.traffic_start_ns::BIGINT + i.t_s * 1e9 - r.zero_ns) // 1e9)::INTEGER,
    sum(i.goodput_bps * i.seconds / 8)::BIGINT
  FROM lab_flows f JOIN lab_intervals i USING (run_id, flow_no) JOIN runs x USING (run_id),
    this_run r
  WHERE f.run_id = $run_id AND f.flow IS NULL
    AND i.t_s BETWEEN (r.zero_ns - x.traffic_start_ns::BIGINT) / 1e9
      AND (r.last_event_ns - x.traffic_start_ns::BIGINT) / 1e9
    AND NOT EXISTS (FROM streams WHERE run_id = $run_id)
  GROUP BY ALL
), senders AS (
  SELECT second, count(*) AS senders FROM (
    SELECT second FROM ours WHERE bytes > 0 UNION ALL SELECT second FROM theirs WHERE bytes > 0)
  GROUP BY second
), parts AS (
  -- A link is divided among its senders; what a flow believes in is its own part already.
  SELECT ours.*, coalesce(senders, 1) AS senders, full_rate * covered_s
    / CASE WHEN (SELECT max(capacity) FROM this_flows) IS NULL THEN 1 ELSE coalesce(senders, 1) END
    AS full_bytes
  FROM ours LEFT JOIN senders USING (second)
)
SELECT flow, NULL::UINTEGER AS other, second, bytes, lost, delivered, covered_s, senders,
  full_rate, rtt_min_us, srtt_us, full_bytes, greatest(0, full_bytes - bytes) AS short_bytes
FROM parts
UNION ALL
SELECT NULL, other, second, bytes, NULL, NULL, 1, senders, NULL, NULL, NULL, NULL, NULL
FROM theirs JOIN senders USING (second)
"""

# One row: is it known what else was sending?
_OTHERS = """
SELECT EXISTS (FROM packets WHERE run_id = $run_id)
  OR EXISTS (FROM lab_intervals WHERE run_id = $run_id) AS known
"""

# What was missing in each second, laid at the doors of what limited sending then, by their time.
_SHORT = """
WITH limits AS (
  SELECT b.flow, ((b.ns - r.zero_ns) // 1000000000)::INTEGER AS second, b.binding,
    min(b.ns) AS first_ns, max(b.ns + b.duration_ns) AS last_ns, sum(b.duration_ns) AS held_ns
  FROM this_binding b, this_run r GROUP BY ALL
)
SELECT l.flow, l.second, l.binding, l.first_ns, l.last_ns, l.held_ns / 1e9 AS held_s,
  s.short_bytes * l.held_ns / nullif(sum(l.held_ns) OVER (PARTITION BY l.flow, l.second), 0)
    AS short_bytes, s.senders
FROM limits l JOIN this_seconds s ON s.flow = l.flow AND s.second = l.second
"""

_QUEUE = """
SELECT ns, held_ns, backlog_bytes, backlog_pkts, dropped, backlog_bytes * 8 / l.bits_per_s AS wait_s
FROM (
  SELECT ns::BIGINT AS ns, coalesce(lead(ns) OVER w - ns, 0)::BIGINT AS held_ns,
    backlog_bytes::BIGINT AS backlog_bytes, backlog_pkts::BIGINT AS backlog_pkts,
    coalesce(dropped::BIGINT - lag(dropped) OVER w, 0)::BIGINT AS dropped
  FROM queue_samples q, this_run r
  WHERE q.run_id = $run_id AND q.ns BETWEEN r.zero_ns AND r.last_event_ns WINDOW w AS (ORDER BY ns)
) q ASOF LEFT JOIN (SELECT start_ns, bits_per_s FROM link_rates WHERE run_id = $run_id) l
  ON q.ns >= l.start_ns
ORDER BY ns
"""

_FACTS = "SELECT scope, name, value FROM host_facts WHERE run_id = $run_id"

TABLES = {
    "this_chosen": _CHOSEN,
    "this_other_senders": _OTHER_SENDERS,
    "this_bases": _BASES,
    "this_run": _RUN,
    "this_window": _WINDOW,
    "this_events": _EVENTS,
    "this_flows": _FLOWS,
    "this_phases": _PHASES,
    "this_binding": _BINDING,
    "this_bounds": _BOUNDS,
    "this_decisions": _DECISIONS,
    "this_others": _OTHERS,
    "this_seconds": _SECONDS,
    "this_short": _SHORT,
    "this_queue": _QUEUE,
    "this_facts": _FACTS,
}


# Of these, DuckDB is to look at one run's rows only, through the views' windows as well.
_NARROWED = frozenset(
    "this_chosen this_other_senders this_bases this_window this_phases this_binding"
    " this_bounds".split()
)
# Views that several of them read: found once.
_SHARED = ("senders", "transitions", "phases")


def prepare(con: duckdb.DuckDBPyConnection, run_id: int, codes: Sequence[str]) -> None:
    """Make the tables of `TABLES` about a run; `codes` are the decisions that rules ask for."""
    values = {"run_id": run_id, "codes": list(codes)}
    chosen = f"({int(run_id)})"
    stored = stored_views(con, run_id)
    for view in VIEWS:
        if view.name in _SHARED and view.name not in stored:
            table = f"this_shared_{view.name}"
            query = narrowed(view, chosen, stored)
            con.execute(f'CREATE OR REPLACE TEMP TABLE "{table}" AS {query}')
            stored[view.name] = table
    for name, query in TABLES.items():
        if name in _NARROWED:
            query = narrowed_query(query, chosen, stored)
        used = {key: values[key] for key in set(_PARAMETER.findall(query))}
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}", used)
