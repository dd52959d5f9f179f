"""What each event brought since the one before it, and what held from it until the next."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SAMPLE
from ....collect.store.schema.table import Column
from ..view import View
from ..view_parts import IN_FLIGHT, PHASE, growth_by_event, lead


def _increase(column: str) -> str:
    """By how much a counter grew since the flow's sample before; 0 if it fell; NULL: unknown."""
    return (
        f"CASE WHEN {column} IS NOT NULL"
        f" THEN greatest(coalesce({column} - lag({column}) OVER w, 0), 0) END"
    )


def _until_next(column: str) -> str:
    """By how much a counter grows until the flow's next sample; 0 if it falls; NULL: unknown."""
    return (
        f"CASE WHEN {column} IS NOT NULL"
        f" THEN greatest(coalesce(lead({column}) OVER w - {column}, 0), 0) END"
    )


def _printed(column: str) -> str:
    """A counter that ss leaves out while it is 0; tcp-info has it in every sample."""
    return f"CASE s.source WHEN 'ss' THEN coalesce(s.{column}, 0) ELSE s.{column} END"


def _next_sample(column: str) -> str:
    """What a sample's ACK left, which the next one finds; NULL: no sample."""
    return f"CASE WHEN e.kind = '{SAMPLE}' THEN {lead(column)} END"


# A callback is called with what happened before it: packets were acknowledged and marked lost, and
# only then may it change the phase. So that belongs to the phase that the event found.
FLOW_STEPS = View(
    "flow_steps",
    "What each event (of flows without any: each sample) brought since the one before it (of kind "
    "sample: what its ACK brought, as the next one finds it), in the phase that it found, and what "
    "held from it until the next. Events before init are left out.",
    (
        RUN_ID,
        FLOW,
        Column("seq", "INTEGER", "", "the event, see events; or samples.poll"),
        Column("ns", "BIGINT", "ns", "see events or samples"),
        Column("is_ack", "BOOLEAN", "", "an event of kind main"),
        Column("phase", "VARCHAR", "", "phase that it found, see phases; NULL: a sample"),
        Column("mss", "BIGINT", "bytes", "segment size"),
        Column("frame", "BIGINT", "bytes", "the same with all headers, see macro frame_bytes"),
        Column("acked_bytes", "BIGINT", "bytes", "growth of tp.snd_una"),
        Column("delivered", "BIGINT", "packets", "growth of tp.delivered"),
        Column("lost", "BIGINT", "packets", "growth of tp.lost: marked lost"),
        Column("ce", "BIGINT", "packets", "growth of tp.delivered_ce; NULL: not recorded"),
        Column(
            "rtt_us",
            "BIGINT",
            "us",
            "RTT sample (of a sample: rtt_given), or smoothed RTT (ss); NULL: none",
        ),
        Column("rate_mbps", "DOUBLE", "Mbit/s", "rate sample; NULL: none"),
        Column("held_ns", "DOUBLE", "ns", "until the next; NULL: the last"),
        Column("in_flight", "BIGINT", "packets", "in flight"),
        Column("cwnd", "DOUBLE", "packets", "snd_cwnd after it"),
        Column("pacing", "DOUBLE", "bytes/s", "sk_pacing_rate after it"),
        Column("app_limited_ns", "DOUBLE", "ns", "limited so (samples); NULL: see binding"),
        Column("rwnd_limited_ns", "DOUBLE", "ns", "the same for the receive window"),
        Column("sndbuf_limited_ns", "DOUBLE", "ns", "the same for the send buffer"),
        Column("sampled_ns", "DOUBLE", "ns", "held_ns of a sample; NULL: an event"),
    ),
    f"""
SELECT e.run_id, e.flow, e.seq, e.ns::BIGINT AS ns, e.kind = 'main' AS is_ack, {PHASE} AS phase,
  e.tp_mss_cache::BIGINT AS mss, frame_bytes(e.tp_mss_cache::BIGINT, f.remote_address) AS frame,
  {growth_by_event("e.tp_snd_una", "e.kind")} AS acked_bytes,
  {growth_by_event("e.tp_delivered", "e.kind")} AS delivered,
  {growth_by_event("e.tp_lost", "e.kind")} AS lost,
  {growth_by_event("e.tp_delivered_ce", "e.kind")} AS ce,
  CASE WHEN e.kind = 'main' AND e.rs_rtt_us > 0 THEN e.rs_rtt_us
    WHEN e.kind = '{SAMPLE}' THEN rtt_given({lead("e.tp_srtt_us")}, e.tp_srtt_us) END::BIGINT
    AS rtt_us,
  CASE WHEN e.kind = 'main' AND e.rs_delivered > 0 AND e.rs_interval_us > 0
    THEN e.rs_delivered::DOUBLE * e.tp_mss_cache * 8 / e.rs_interval_us END AS rate_mbps,
  (lead(e.ns) OVER w - e.ns)::DOUBLE AS held_ns, {IN_FLIGHT} AS in_flight,
  coalesce(e.exit_snd_cwnd, {_next_sample("e.tp_snd_cwnd")}, e.tp_snd_cwnd)::DOUBLE AS cwnd,
  coalesce(e.exit_sk_pacing_rate, {_next_sample("e.sk_pacing_rate")}, e.sk_pacing_rate)::DOUBLE
    AS pacing, NULL::DOUBLE AS app_limited_ns, NULL::DOUBLE AS rwnd_limited_ns,
  NULL::DOUBLE AS sndbuf_limited_ns, NULL::DOUBLE AS sampled_ns
FROM events e JOIN runs r USING (run_id)
JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init
WINDOW w AS (PARTITION BY e.run_id, e.flow ORDER BY e.seq)
UNION ALL
SELECT s.run_id, s.flow, s.poll, s.ns::BIGINT, false, NULL, s.mss,
  frame_bytes(s.mss::BIGINT, f.remote_address), {_increase("s.bytes_acked")},
  {_increase("s.delivered")}, {_increase(f"coalesce(s.lost, {_printed('total_retrans')})")},
  {_increase("s.delivered_ce")}, coalesce(s.rtt_us, s.srtt_us),
  coalesce(s.delivery_rate, s.sample_bw) / 1e6, (lead(s.ns) OVER w - s.ns)::DOUBLE AS held,
  s.in_flight, s.snd_cwnd::DOUBLE, s.sk_pacing_rate / 8e0, s.app_limited::INTEGER * held,
  {_until_next(_printed("rwnd_limited_ms"))} * 1e6,
  {_until_next(_printed("sndbuf_limited_ms"))} * 1e6,
  held
FROM samples s JOIN flows f ON f.run_id = s.run_id AND f.flow = s.flow AND f.events = 0
WHERE s.ns IS NOT NULL
WINDOW w AS (PARTITION BY s.run_id, s.flow ORDER BY s.ns, s.poll)
""",
    shared=True,
)

VIEWS = (FLOW_STEPS,)
