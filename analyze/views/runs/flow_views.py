"""One row per flow."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SAMPLE
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import (
    BW_UNITS,
    FLOW_WINDOW,
    MAX_BW,
    PHASE,
    RUN,
    SOURCE,
    UNSET,
    lead,
)

FLOW_SUMMARY = View(
    "flow_summary",
    "One row per flow: who, how much, how fast, in which phases, and how far to trust it.",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("version", "VARCHAR", "", "v1, v2 or v3"),
        Column("local", "VARCHAR", "", "address:port; NULL: unknown"),
        Column("remote", "VARCHAR", "", "address:port; NULL: unknown"),
        Column("events", "BIGINT", "events", "events of all kinds"),
        Column("duration_ns", "BIGINT", "ns", "first event to last"),
        Column("delivered", "BIGINT", "packets", "acked or SACKed (growth of tp.delivered)"),
        Column(
            "delivered_bytes",
            "BIGINT",
            "bytes",
            "the same times the mean tp.mss_cache; samples: growth of tp.snd_una",
        ),
        Column("throughput_mbps", "DOUBLE", "Mbit/s", "delivered_bytes over the duration"),
        Column("lost", "BIGINT", "packets", "marked lost (growth of tp.lost)"),
        Column("min_rtt_us", "UINTEGER", "us", "at the last event; NULL: none"),
        Column("rtt_min_us", "BIGINT", "us", "smallest RTT sample; NULL: none"),
        Column("srtt_mean_us", "DOUBLE", "us", "mean of the smoothed RTT over ACKs"),
        Column("srtt_p95_us", "DOUBLE", "us", "its 95th percentile"),
        Column("mss", "UINTEGER", "bytes", "at the last event"),
        Column("max_bw", "UINTEGER", BW_UNITS, "largest bandwidth in the filter at any time"),
        Column("max_bw_mbps", "DOUBLE", "Mbit/s", "the same with mss"),
        *(
            Column(f"share_{mode.lower()}", "DOUBLE", "", f"share of time in {mode}")
            for mode in ("STARTUP", "DRAIN", "PROBE_BW", "PROBE_RTT")
        ),
        Column("final_phase", "VARCHAR", "", "phase at the last event"),
        Column("final_inflight_hi", "UINTEGER", "packets", f"at the last event; {UNSET}: unset"),
        Column("final_inflight_lo", "UINTEGER", "packets", f"at the last event; {UNSET}: unset"),
        Column("final_bw_lo", "UINTEGER", BW_UNITS, f"at the last event; {UNSET}: unset"),
        Column("has_init", "BOOLEAN", "", "its init was recorded"),
        Column("replayed", "BIGINT", "events", "events compared in step mode; NULL: not replayed"),
        Column("exact", "BIGINT", "events", "of these, exact"),
        Column("gaps", "BIGINT", "gaps", "gaps of the recording; NULL: not replayed"),
    ),
    f"""
WITH s AS (
  SELECT e.run_id, r.run, r.version, e.flow, e.seq, e.ns, {PHASE} AS phase,
    {lead(PHASE)} AS next_phase, {lead("e.ns")} AS next_ns, e.rs_acked_sacked AS acked,
    e.tp_delivered AS delivered, e.tp_mss_cache AS mss, e.tp_lost AS lost,
    e.tp_srtt_us AS srtt, e.rs_rtt_us AS rtt, e.kind,
    {MAX_BW} AS max_bw,
    e.bbr_min_rtt_us AS min_rtt, e.bbr_inflight_hi AS hi, e.bbr_inflight_lo AS lo,
    e.bbr_bw_lo AS bw_lo, e.gap, CASE WHEN e.kind = '{SAMPLE}'
      THEN growth32({lead("e.tp_snd_una")}, e.tp_snd_una) END AS grown
  {SOURCE} {FLOW_WINDOW}
), timed AS (
  SELECT *, (next_ns - ns)::BIGINT AS d, CASE WHEN gap THEN phase ELSE next_phase END AS during
  FROM s
), sums AS (
  SELECT run_id, run, version, flow, sum(d) AS span,
    increase32(arg_max(delivered, seq), arg_min(delivered, seq)) AS delivered,
    sum(acked::BIGINT * mss) FILTER (kind = 'main')
    / nullif(sum(acked) FILTER (kind = 'main'), 0) AS size,
    sum(grown) AS sampled_bytes,
    arg_min(lost, seq) AS lost_first, arg_max(lost, seq) AS lost_last,
    arg_max(min_rtt, seq) AS min_rtt, min(rtt) FILTER (rtt > 0) AS rtt_min,
    avg(srtt / 8) FILTER (kind IN ('main', '{SAMPLE}') AND srtt > 0) AS srtt_mean,
    quantile_cont(srtt / 8, 0.95) FILTER (kind IN ('main', '{SAMPLE}') AND srtt > 0) AS srtt_p95,
    arg_max(mss, seq) AS mss, max(max_bw) AS max_bw,
    sum(d) FILTER (during = 'STARTUP') AS d_startup, sum(d) FILTER (during = 'DRAIN') AS d_drain,
    sum(d) FILTER (during LIKE 'PROBE_BW%') AS d_bw,
    sum(d) FILTER (during = 'PROBE_RTT') AS d_rtt, arg_max(phase, seq) AS final_phase,
    arg_max(hi, seq) AS hi, arg_max(lo, seq) AS lo, arg_max(bw_lo, seq) AS bw_lo
  FROM timed GROUP BY run_id, run, version, flow
)
SELECT s.run_id, s.run, s.flow, s.version,
  f.local_address || ':' || f.local_port AS local, f.remote_address || ':' || f.remote_port
  AS remote, f.events, (f.last_ns - f.first_ns)::BIGINT AS duration_ns,
  s.delivered::BIGINT AS delivered,
  s.bytes AS delivered_bytes,
  CASE WHEN f.last_ns > f.first_ns THEN s.bytes * 8e3 / (f.last_ns - f.first_ns) END
    AS throughput_mbps,
  increase32(s.lost_last, s.lost_first) AS lost,
  if_set(s.min_rtt)::UINTEGER AS min_rtt_us, s.rtt_min AS rtt_min_us,
  s.srtt_mean AS srtt_mean_us, s.srtt_p95 AS srtt_p95_us, s.mss, s.max_bw,
  bw_to_mbps(s.max_bw, s.mss) AS max_bw_mbps,
  CASE WHEN s.span > 0 THEN coalesce(s.d_startup, 0) / s.span END AS share_startup,
  CASE WHEN s.span > 0 THEN coalesce(s.d_drain, 0) / s.span END AS share_drain,
  CASE WHEN s.span > 0 THEN coalesce(s.d_bw, 0) / s.span END AS share_probe_bw,
  CASE WHEN s.span > 0 THEN coalesce(s.d_rtt, 0) / s.span END AS share_probe_rtt,
  s.final_phase, s.hi AS final_inflight_hi, s.lo AS final_inflight_lo, s.bw_lo AS final_bw_lo,
  f.has_init, p.events AS replayed, p.exact, p.gaps
FROM (
  SELECT *, coalesce(sampled_bytes, round(delivered * coalesce(size, mss, 0)))::BIGINT AS bytes
  FROM sums
) s JOIN flows f USING (run_id, flow)
LEFT JOIN replays p ON p.run_id = s.run_id AND p.flow = s.flow AND p.mode = 'step'
ORDER BY s.run_id, s.flow
""",
    materialized=True,
)

VIEWS = (FLOW_SUMMARY,)
