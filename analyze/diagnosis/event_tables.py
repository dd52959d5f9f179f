"""What rules ask of events: what each brought, and the state after it, in the units of rules.

Of a recording without callbacks (rung tcp_probe) they are samples of the state before an ACK is
looked at. A table as those of `tables`, of which it is a part.
"""

from __future__ import annotations

from ...collect.store.schema.recorded_tables import SAMPLE
from ..views.packets.link_views import bits
from ..views.view_parts import growth_by_event

# The second since zero_ns in which a time of run `r` lies. Tables have it as a column: DuckDB joins
# by the hash of a column, but compares all rows with each other where it needs two tables to work
# a second out.
SECOND = "(({}::BIGINT - r.zero_ns) // 1000000000)::INTEGER"


def _after(column: str) -> str:
    """State after an event is what the next one found; init recorded its own."""
    return (
        f"CASE WHEN kind = 'init' THEN {column} ELSE coalesce(lead({column}) OVER w, {column}) END"
    )


def _growth(column: str) -> str:
    """By how much it grew; 0 where nothing is known, too: rules need what they ask of."""
    return f"coalesce({growth_by_event(column)}, 0)"


# The senders' own links, where the set-up states their rate (`host`, collect/lab/README.md): flows
# of one extra delay share one. A lab's set-up may name another parameter (`$rate`).
_HOST = "json_extract_string(setup, '$.host')"
OWN_LINKS = f"""
SELECT c.run_id, c.flow, r.bits_per_s, coalesce(f.extra_rtt_us, 0) AS extra_rtt_us
FROM these_chosen c JOIN (
  SELECT run_id, coalesce({bits(_HOST)},
    {bits(f"json_extract_string(setup, '$.' || ltrim({_HOST}, '$'))")}) AS bits_per_s
  FROM runs WHERE run_id IN {{chosen}}
) r USING (run_id) LEFT JOIN lab_flows f USING (run_id, flow) WHERE r.bits_per_s > 0
"""

# link_rate is what the bottleneck's rate leaves for payload, NULL where link_rates has none;
# capacity the same, and no more than the sender's own link passes; silent_ns how long nothing was
# heard before.
EVENTS = f"""
WITH counted AS (
  SELECT run_id, flow, seq, ns::BIGINT AS ns, {SECOND.format("events.ns")} AS second,
    kind::VARCHAR AS kind, kind IN ('main', '{SAMPLE}') AS main,
    coalesce(lead(ns) OVER w - ns, 0)::BIGINT AS held_ns,
    coalesce(ns - lag(ns) OVER w, 0)::BIGINT AS silent_ns,
    mode_name({_after("bbr_mode")}) AS mode, tp_mss_cache::BIGINT AS mss,
    tp_mss_cache::BIGINT + headers AS frame,
    CASE WHEN kind = 'main' AND rs_rtt_us > 0 THEN rs_rtt_us
      WHEN kind = '{SAMPLE}' THEN rtt_given(lead(tp_srtt_us) OVER w, tp_srtt_us) END AS rtt_us,
    if_set({_after("bbr_min_rtt_us")}) AS min_rtt_us,
    coalesce({_after("tp_snd_cwnd")}, tp_snd_cwnd)::BIGINT AS cwnd,
    coalesce(exit_sk_pacing_rate, CASE WHEN kind = '{SAMPLE}' THEN lead(sk_pacing_rate) OVER w END,
      sk_pacing_rate)::DOUBLE AS pacing,
    tp_packets_out::BIGINT AS packets_out,
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
    CASE WHEN kind = '{SAMPLE}' THEN delivered ELSE coalesce(rs_acked_sacked, 0) END::BIGINT
      AS acked_sacked,
    {_after("greatest(bbr_extra_acked_0, bbr_extra_acked_1)")}::BIGINT AS extra_acked,
    icsk_ca_state AS ca_state, tp_snd_wnd::BIGINT AS snd_wnd, tp_srtt_us / 8.0 AS srtt_us,
    CASE WHEN kind = '{SAMPLE}' THEN nullif(lead(icsk_ca_state) OVER w, icsk_ca_state)
      ELSE new_state END AS new_state, event,
    nullif(sk_max_pacing_rate, 18446744073709551615)::DOUBLE AS max_pacing,
    tp_ecn_flags & 1 = 1 AS ecn_ok, tp_ecn_flags & 16 = 16 AS ecn_low,
    bbr_ecn_eligible = 1 AS ecn_eligible,
    kind = 'main' AND {_after("bbr_round_start")} = 1 AS round_start
  FROM events JOIN (SELECT *, frame_bytes(0, remote_address) AS headers FROM flows)
    USING (run_id, flow) SEMI JOIN these_chosen USING (run_id, flow)
    JOIN (SELECT run_id, zero_ns FROM these_run) r USING (run_id)
  WHERE run_id IN {{chosen}} AND seq >= pre_init
  WINDOW w AS (PARTITION BY run_id, flow ORDER BY seq)
), linked AS (
  SELECT run_id, start_ns, bits_per_s, measured,
    coalesce(lead(start_ns) OVER (PARTITION BY run_id ORDER BY start_ns), 9223372036854775807)
      AS end_ns
  FROM link_rates WHERE run_id IN {{chosen}} AND run_id NOT IN (SELECT run_id FROM these_policed)
), believed AS (
  SELECT run_id, flow, max(max_bw) AS most FROM counted GROUP BY run_id, flow
)
-- A range, not ASOF: the few rates are looked through for each event, and nothing is sorted.
SELECT e.* EXCLUDE (frame), CASE WHEN NOT l.measured OR p.flow IS NOT NULL
    THEN l.bits_per_s / 8 * e.mss / e.frame END AS link_rate,
  CASE WHEN link_rate IS NOT NULL THEN least(link_rate, o.bits_per_s / 8 * e.mss / e.frame) END
    AS capacity,
  coalesce(capacity, b.most) AS full_rate
FROM counted e JOIN believed b USING (run_id, flow)
LEFT JOIN these_passers p USING (run_id, flow)
LEFT JOIN these_own_links o USING (run_id, flow)
LEFT JOIN linked l ON e.run_id = l.run_id AND e.ns >= l.start_ns AND e.ns < l.end_ns
"""
