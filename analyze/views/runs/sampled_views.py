"""What can be read from samples only (table samples): the flows, and their modes."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import FLOW_T_NS, RUN, T_NS, times

# What gains tell is the mode; between polls a second apart the phases of PROBE_BW come and go.
MODE = "CASE WHEN s.phase LIKE 'PROBE_BW%' THEN 'PROBE_BW' ELSE s.phase END"

SAMPLED_MODES = View(
    "sampled_modes",
    "Stretches of samples in which a flow was seen in one mode (table samples). "
    "What happened between two samples is not known: a mode may have come and gone.",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("mode", "VARCHAR", "", "STARTUP, DRAIN, PROBE_BW or PROBE_RTT"),
        Column("before_ns", "UBIGINT", "ns", "last sample in the mode before; NULL: the first"),
        Column("first_ns", "UBIGINT", "ns", "first sample in this mode: it began in between"),
        Column("last_ns", "UBIGINT", "ns", "last sample in this mode"),
        T_NS,
        FLOW_T_NS,
        Column("samples", "BIGINT", "samples", "in this mode"),
    ),
    f"""
WITH m AS (
  SELECT s.run_id, s.flow, s.ns, {MODE} AS mode FROM samples s
  WHERE s.phase IS NOT NULL AND s.ns IS NOT NULL
), marked AS (
  SELECT *, lag(ns) OVER w AS before_ns,
    (lag(mode) OVER w IS DISTINCT FROM mode)::INTEGER AS begins
  FROM m WINDOW w AS (PARTITION BY run_id, flow ORDER BY ns)
), numbered AS (
  SELECT *, sum(begins) OVER (PARTITION BY run_id, flow ORDER BY ns) AS part FROM marked
), parts AS (
  SELECT run_id, flow, any_value(mode) AS mode, min(before_ns) FILTER (begins = 1) AS before_ns,
    min(ns) AS first_ns, max(ns) AS last_ns, count(*) AS samples
  FROM numbered GROUP BY run_id, flow, part
)
SELECT p.run_id, r.run, p.flow, p.mode, p.before_ns, p.first_ns, p.last_ns,
  {times("p.first_ns")}, p.samples
FROM parts p JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
  JOIN run_clocks k USING (run_id, run)
ORDER BY p.run_id, p.flow, p.first_ns
""",
)

SAMPLED_FLOWS = View(
    "sampled_flows",
    "What samples (table samples) show of each flow, from its first sample to its last.",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("local", "VARCHAR", "", "address:port of the sender; NULL: unknown"),
        Column("remote", "VARCHAR", "", "address:port of the peer"),
        Column("samples", "BIGINT", "samples", "how many"),
        Column("first_ns", "UBIGINT", "ns", "the first"),
        Column("last_ns", "UBIGINT", "ns", "the last"),
        Column("duration_ns", "BIGINT", "ns", "between them"),
        Column("acked_bytes", "BIGINT", "bytes", "acknowledged in order between them"),
        Column("goodput_mbps", "DOUBLE", "Mbit/s", "the same over the duration"),
        Column(
            "retrans_packets", "BIGINT", "packets", "sent again between them; NULL: not printed"
        ),
        Column("lost_packets", "BIGINT", "packets", "marked lost meanwhile; NULL: not printed"),
        Column("min_rtt_us", "BIGINT", "us", "BBR's, at the last"),
        Column("srtt_mean_us", "DOUBLE", "us", "mean of the smoothed RTT"),
        Column("bw_max_mbps", "DOUBLE", "Mbit/s", "BBR's bandwidth at most"),
        Column("cwnd_mean", "DOUBLE", "packets", "mean window"),
        Column("last_mode", "VARCHAR", "", "mode at the last, see sampled_modes"),
    ),
    f"""
WITH sums AS (
  SELECT s.run_id, s.flow, count(*) AS samples,
    min(s.ns) AS first_ns, max(s.ns) AS last_ns, (max(s.ns) - min(s.ns))::BIGINT AS duration_ns,
    max(coalesce(s.bytes_acked, 0)) - min(coalesce(s.bytes_acked, 0)) AS acked_bytes,
    -- ss leaves it out while it is 0.
    max(coalesce(s.total_retrans, 0)) FILTER (s.source <> 'kernel_log')
      - min(coalesce(s.total_retrans, 0)) FILTER (s.source <> 'kernel_log') AS retrans_packets,
    max(s.lost) - min(s.lost) AS lost_packets,
    arg_max(s.min_rtt_us, s.ns) AS min_rtt_us, avg(s.srtt_us) AS srtt_mean_us,
    max(s.bw) / 1e6 AS bw_max_mbps, avg(s.snd_cwnd) AS cwnd_mean,
    arg_max({MODE}, s.ns) AS last_mode
  FROM samples s WHERE s.ns IS NOT NULL GROUP BY s.run_id, s.flow
)
SELECT s.run_id, r.run, s.flow, f.local_address || ':' || f.local_port AS local,
  f.remote_address || ':' || f.remote_port AS remote, s.samples, s.first_ns, s.last_ns,
  s.duration_ns,
  s.acked_bytes, s.acked_bytes * 8e3 / nullif(s.duration_ns, 0) AS goodput_mbps,
  s.retrans_packets, s.lost_packets, s.min_rtt_us, s.srtt_mean_us, s.bw_max_mbps, s.cwnd_mean,
  s.last_mode
FROM sums s JOIN runs r USING (run_id) JOIN flows f USING (run_id, flow)
ORDER BY s.run_id, s.flow
""",
)

VIEWS = (SAMPLED_MODES, SAMPLED_FLOWS)
