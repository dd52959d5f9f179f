"""What limits sending between one event of a flow and the next, and for how long.

The question is asked at the end of each interval, when the next event arrives and before the ACK
that it brings is accounted for: what would have kept one more packet from leaving right then? The
first rule that holds answers, in the order in which the kernel would stop (``tcp_write_xmit()`` in
net/ipv4/tcp_output.c, apart from the window coming before pacing: a full window stays full when the
pacing timer fires):

1. ``unknown``: the recording lacks events in the interval, or the flow ends with the event.
2. The window: as many packets are in flight as snd_cwnd allows (``tcp_cwnd_test()``). In flight is
   ``rs.prior_in_flight`` of the ACK that ends the interval (a sample is taken before that ACK is
   looked at, and shows it itself), or what was in flight after the event plus what ``tp.snd_nxt``
   and ``tp.retrans_out`` say was sent since (at least the packet whose sending
   ``cwnd_event(TX_START)`` announces). Which bound made the window:

   - ``probe_rtt``: PROBE_RTT caps it (``bbr_set_cwnd()``, ``bbr_probe_rtt_cwnd()``);
   - ``recovery``: v1's packet conservation (``bbr_set_cwnd_to_recover_or_restore()``), or the
     window is below the one saved before Recovery (v1) or Loss, which ends the cut
     (``bbr_save_cwnd()``, ``tcp_enter_loss()``);
   - ``inflight_lo``, ``inflight_hi``, ``inflight_hi_headroom``: it equals that bound where
     ``bbr2_bound_cwnd_for_inflight_model()`` applies it, the smaller one of two;
   - ``cwnd_target``: none of these. It is at gain x BDP + extra_acked, or still growing there.

3. ``receive_window``: less than one segment of it was left (``tcp_snd_wnd_test()``), or less than a
   TSO burst, a third of the window and what snd_cwnd leaves: then the kernel waits for more of it
   (``tcp_tso_should_defer()``, tcp_tso_win_divisor).
4. ``application``: TCP marked the flow application-limited during the interval, or its mark covers
   everything sent (``tcp_rate_check_app_limited()`` in net/ipv4/tcp_rate.c), or nothing was in
   flight and nothing else held it back; never while a lost packet waits to be sent again. The mark
   that BBR itself sets in PROBE_RTT does not count. A small send buffer makes the same mark.
   The mark is made when the application writes again, and says that all written before was sent:
   so the intervals before it in which nothing was sent are its, too, where no other rule holds.
5. Pacing: the next packet's departure (``tp.tcp_wstamp_ns``) lies ahead (``tcp_pacing_check()``).
   CA_EVENT_TX_START comes when that wait is over. Where it ends an interval in which nothing was
   sent, pacing held the sender if the wait took half of the interval or more.
   ``max_pacing_rate`` if the application's cap is the rate, ``policer`` if v1 uses its long-term
   rate, ``pacing_bw_lo`` if bw_lo is below max_bw, else ``pacing_max_bw``.
6. The window again, within the TSO burst that the kernel would not split
   (``tcp_tso_should_defer()``), if v2's or v3's ``tp.is_cwnd_limited`` agrees. Events of v1 do not
   have it; there nothing else of tcp_write_xmit() is left, and in recordings of v2 and v3 it is
   set wherever it comes to this.
7. ``unknown``: nothing recorded held the sender. It had nothing to send, or its send buffer or the
   small-queue limit stopped it; no signal recorded tells which, so ``send_buffer`` is never said.
"""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, RUN_ID, SAMPLE, SEQ
from ....collect.store.schema.table import Column
from ..phase_names import PHASES
from ..view import View
from ..view_parts import FLOW_WINDOW, IN_FLIGHT, MAX_BW, NS, PHASE, RUN, SOURCE, lead

PACED = ("pacing_bw_lo", "pacing_max_bw", "max_pacing_rate", "policer")
BINDINGS = (
    "cwnd_target",
    "inflight_hi",
    "inflight_hi_headroom",
    "inflight_lo",
    "probe_rtt",
    "recovery",
    *PACED,
    "receive_window",
    "application",
    "unknown",
)

# Each event with what the next one found, one name per kernel quantity.
_INTERVALS = f"""
intervals AS (
  SELECT e.run_id, r.run, r.version, e.flow, e.seq, e.ns, {lead("e.ns")} AS next_ns,
    e.gap, {PHASE} AS phase, {lead(PHASE)} AS next_phase,
    CASE WHEN e.kind IN ('main', 'init') THEN coalesce(e.exit_snd_cwnd, {lead("e.tp_snd_cwnd")})
      ELSE {lead("e.tp_snd_cwnd")} END::BIGINT AS cwnd,
    CASE {lead("e.kind")} WHEN 'main' THEN {lead("e.rs_prior_in_flight")}
      WHEN '{SAMPLE}' THEN {lead(IN_FLIGHT)}
      ELSE greatest((e.kind = 'cwnd_event' AND e.event = 0)::BIGINT,
        {IN_FLIGHT} + greatest({lead("e.tp_retrans_out")}::BIGINT - e.tp_retrans_out, 0)
        + CASE WHEN e.tp_mss_cache > 0 THEN
          (increase32({lead("e.tp_snd_nxt")}, e.tp_snd_nxt) + e.tp_mss_cache - 1)
            // e.tp_mss_cache ELSE 0 END)
      END::BIGINT AS in_flight,
    {lead("e.tp_lost_out")} > {lead("e.tp_retrans_out")} AS must_retransmit,
    distance32(CASE WHEN {lead("e.kind")} = '{SAMPLE}'
      THEN {lead("e.tp_snd_una")}::BIGINT + {lead("e.tp_snd_wnd")}
      ELSE e.tp_snd_una::BIGINT + e.tp_snd_wnd END, {lead("e.tp_snd_nxt")}) AS window_left,
    e.tp_mss_cache::BIGINT AS mss, e.tp_snd_wnd::BIGINT AS window_size,
    {lead("e.tp_snd_nxt")} = e.tp_snd_nxt AND {lead("e.tp_retrans_out")} <= e.tp_retrans_out
      AS sent_nothing,
    {lead("e.tp_app_limited")} AS app_limited,
    CASE WHEN e.kind IN ('main', 'init') THEN coalesce(e.exit_app_limited, e.tp_app_limited)
      ELSE e.tp_app_limited END AS old_app_limited,
    increase32({lead("e.tp_delivered")}::BIGINT + {lead(IN_FLIGHT)}, 0) AS sent,
    {lead("e.tp_tcp_wstamp_ns")} > CASE WHEN {lead("e.kind")} = '{SAMPLE}' THEN {lead("e.ns")}
      ELSE {lead("e.tp_tcp_clock_cache")} END
      OR {lead("e.kind")} = 'cwnd_event' AND {lead("e.event")} = 0 AND sent_nothing
      AND 2 * (e.tp_tcp_wstamp_ns::BIGINT - e.tp_tcp_clock_cache::BIGINT)
        >= {lead("e.ns")}::BIGINT - e.ns::BIGINT AS pacing_waits,
    coalesce({lead("e.tp_is_cwnd_limited")} = 1,
      r.version = 'v1' AND {lead("e.kind")} <> '{SAMPLE}') AS is_cwnd_limited,
    {lead("e.sk_pacing_rate")} AS pacing_rate, {lead("e.sk_max_pacing_rate")} AS max_pacing_rate,
    {lead("e.sk_pacing_shift")} AS pacing_shift,
    {lead("e.bbr_min_rtt_us")} AS min_rtt_us,
    least({lead("e.sk_gso_max_size")}::BIGINT, 65536) AS gso_max_size,
    {lead("e.icsk_ca_state")} AS ca_state, {lead("e.bbr_prior_cwnd")} AS prior_cwnd,
    {lead("e.bbr_packet_conservation")} = 1 AS conserves,
    {lead("e.bbr_lt_use_bw")} = 1 AS policed,
    {lead("e.bbr_inflight_hi")}::BIGINT AS hi, {lead("e.bbr_inflight_lo")}::BIGINT AS lo,
    {lead("e.bbr_bw_lo")} < {lead(MAX_BW)} AS slowed
  {SOURCE} {FLOW_WINDOW}
),
limits AS (
  SELECT *,
    CASE WHEN next_phase NOT LIKE 'PROBE_BW%' OR hi = unset() THEN unset()
      WHEN next_phase = 'PROBE_BW_CRUISE' THEN hi - greatest(hi * headroom >> 8, 1)
      ELSE hi END AS hi_cap,
    greatest(((pacing_rate >> pacing_shift) + CASE WHEN version <> 'v1' AND min_rtt_us >> 9 < 32
      THEN gso_max_size >> (min_rtt_us >> 9) ELSE 0 END) // nullif(mss, 0), 2) AS burst
  FROM (
    SELECT i.*, coalesce(p.inflight_headroom, 38) AS headroom FROM intervals i
    LEFT JOIN (SELECT run_id, flow, min(inflight_headroom) AS inflight_headroom FROM params
      GROUP BY run_id, flow) p USING (run_id, flow)
  )
)
"""

_WINDOW = """
CASE WHEN next_phase = 'PROBE_RTT' THEN 'probe_rtt'
  WHEN version = 'v1' AND conserves THEN 'recovery'
  WHEN lo <> unset() AND lo < hi_cap AND cwnd = greatest(lo, 4) THEN 'inflight_lo'
  WHEN hi_cap <> unset() AND cwnd = greatest(hi_cap, 4)
    THEN CASE WHEN next_phase = 'PROBE_BW_CRUISE' THEN 'inflight_hi_headroom' ELSE 'inflight_hi' END
  WHEN (ca_state = 4 OR version = 'v1' AND ca_state = 3) AND cwnd < prior_cwnd THEN 'recovery'
  ELSE 'cwnd_target' END
"""

_BINDING = f"""
CASE WHEN gap OR next_ns IS NULL THEN 'unknown'
  WHEN in_flight >= cwnd THEN {_WINDOW}
  WHEN window_left < mss OR window_left <= (cwnd - in_flight) * mss
    AND window_left < least(burst * mss, window_size // 3, cwnd * mss // 3) THEN 'receive_window'
  WHEN NOT must_retransmit AND app_limited <> 0
    AND (next_phase <> 'PROBE_RTT' OR app_limited <> old_app_limited)
    AND (app_limited <> old_app_limited OR app_limited = sent) THEN 'application'
  WHEN pacing_waits THEN CASE WHEN pacing_rate = max_pacing_rate THEN 'max_pacing_rate'
    WHEN policed THEN 'policer' WHEN slowed THEN 'pacing_bw_lo' ELSE 'pacing_max_bw' END
  WHEN in_flight <= 0 AND NOT must_retransmit THEN 'application'
  WHEN is_cwnd_limited AND cwnd - in_flight < burst THEN {_WINDOW}
  ELSE 'unknown' END
"""

_PHASE_COLUMN = Column("phase", "VARCHAR", "", "phase after the event, as in phases")
_BINDING_COLUMN = Column("binding", "VARCHAR", "", f"one of {', '.join(BINDINGS)}")

BINDING = View(
    "binding",
    "What limits sending after each event, until the next. Asked when the next event arrives; the "
    "first that holds: unknown (a gap of the recording, or the flow's end); the window is full "
    "(probe_rtt, recovery, inflight_lo, inflight_hi, inflight_hi_headroom, or else cwnd_target: "
    "gain x BDP + extra_acked, or on the way there); receive_window (less left than the kernel "
    "waits for); application (TCP's app_limited mark and the pause that it ends, or nothing in "
    "flight; a small send buffer makes the same mark); pacing holds the next packet, or "
    "held it for at least half of a time that CA_EVENT_TX_START ends (max_pacing_rate, policer, "
    "pacing_bw_lo or pacing_max_bw); the window is full but for a TSO burst; else unknown: no "
    "data, send buffer or small-queue limit, which the recording does not tell apart. The "
    "durations of a flow add up to its time since init.",
    (
        RUN_ID,
        RUN,
        FLOW,
        SEQ,
        NS,
        Column("duration_ns", "BIGINT", "ns", "until the next event; 0 for the last one"),
        _PHASE_COLUMN,
        _BINDING_COLUMN,
    ),
    f"""
WITH {_INTERVALS}, judged AS (
  SELECT *, {_BINDING} AS held_by FROM limits
), idle AS (
  -- Of intervals without any sending: does the mark come that says that all had been sent?
  SELECT *, held_by = 'unknown' AND sent_nothing AND NOT gap AND next_ns IS NOT NULL
      AND NOT must_retransmit AS is_idle,
    CASE WHEN NOT coalesce(is_idle, false) THEN held_by = 'application' AND app_limited <> 0
      AND app_limited <> old_app_limited END AS is_marked
  FROM judged
)
SELECT run_id, run, flow, seq, ns, coalesce(next_ns - ns, 0)::BIGINT AS duration_ns,
  CASE WHEN gap THEN phase ELSE coalesce(next_phase, phase) END AS phase,
  CASE WHEN is_idle AND first_value(is_marked IGNORE NULLS) OVER (PARTITION BY run_id, flow
    ORDER BY seq ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) THEN 'application'
    ELSE held_by END AS binding
FROM idle
""",
    materialized=True,
    words=(("phase", PHASES), ("binding", BINDINGS)),
)

BINDING_SUMMARY = View(
    "binding_summary",
    "What limited each flow, as shares of time that add up to 1: per phase, and over the whole "
    "flow (phase ALL).",
    (
        RUN_ID,
        RUN,
        FLOW,
        Column("phase", "VARCHAR", "", "phase, or ALL"),
        Column("binding", "VARCHAR", "", "see the view binding"),
        Column("duration_ns", "BIGINT", "ns", "time under this limit"),
        Column("share", "DOUBLE", "", "of the phase's time, or of the flow's"),
    ),
    """
WITH sums AS (
  SELECT run_id, run, flow, phase, binding, sum(duration_ns)::BIGINT AS duration_ns
  FROM binding GROUP BY run_id, run, flow, phase, binding
), all_phases AS (
  FROM sums UNION ALL
  SELECT run_id, run, flow, 'ALL', binding, sum(duration_ns)::BIGINT FROM sums
  GROUP BY run_id, run, flow, binding
)
SELECT run_id, run, flow, phase, binding, duration_ns,
  duration_ns / sum(duration_ns) OVER (PARTITION BY run_id, run, flow, phase) AS share
FROM all_phases WHERE duration_ns > 0
ORDER BY run_id, flow, phase <> 'ALL', phase, duration_ns DESC, binding
""",
    materialized=True,
)

VIEWS = (BINDING, BINDING_SUMMARY)
