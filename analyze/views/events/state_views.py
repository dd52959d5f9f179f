"""The state after each event."""

from __future__ import annotations

from ....collect.store.schema.recorded_tables import FLOW, KINDS, RUN_ID, SEQ
from ....collect.store.schema.table import Column
from ..phase_names import PHASES
from ..view import View
from ..view_parts import (
    BW_UNITS,
    FLOW_T_NS,
    FLOW_WINDOW,
    IN_FLIGHT,
    MAX_BW,
    NS,
    PHASE,
    RUN,
    SOURCE,
    T_NS,
    UNSET,
    after,
    lead,
    times,
)

# Each event with the state after it; what stays unknown is NULL.
_STATES_SQL = f"""
SELECT e.run_id, r.run, r.version, e.flow, e.seq, e.ns,
  {times("e.ns")}, e.kind,
  {lead("e.ns")} AS next_ns,
  ({lead("e.ns")} - e.ns)::BIGINT AS duration_ns,
  e.gap,
  {PHASE} AS phase_before,
  {after(PHASE)} AS phase,
  {after("e.bbr_inflight_hi")} AS inflight_hi,
  {after("e.bbr_inflight_lo")} AS inflight_lo,
  {after("e.bbr_bw_lo")} AS bw_lo,
  {after(MAX_BW)} AS max_bw,
  {after("e.bbr_min_rtt_us")} AS min_rtt_us,
  CASE WHEN e.kind IN ('main', 'init') THEN e.exit_snd_cwnd ELSE e.tp_snd_cwnd END AS snd_cwnd,
  CASE WHEN e.kind IN ('main', 'init') THEN e.exit_sk_pacing_rate
    ELSE e.sk_pacing_rate END AS sk_pacing_rate,
  {IN_FLIGHT} AS inflight,
  {after("e.bbr_round_start")} AS round_start,
  {after("e.bbr_full_bw_reached")} AS full_bw_reached
{SOURCE} JOIN run_clocks k ON k.run_id = e.run_id AND k.run = r.run {FLOW_WINDOW}
"""

STATES = View(
    "states",
    "One row per event with the state after it; events before init are left out. NULL: unknown, "
    "because the flow or the recording ends or lacks events there, or this BBR version lacks it.",
    (
        RUN_ID,
        RUN,
        Column("version", "VARCHAR", "", "v1, v2 or v3"),
        FLOW,
        SEQ,
        NS,
        T_NS,
        FLOW_T_NS,
        Column("kind", "VARCHAR", "", "the callback that the kernel called"),
        Column("next_ns", "UBIGINT", "ns", "time of the flow's next event"),
        Column("duration_ns", "BIGINT", "ns", "until the next event"),
        Column("gap", "BOOLEAN", "", "the recording lacks events between this one and the next"),
        Column("phase_before", "VARCHAR", "", "phase that the event found, see phases"),
        Column("phase", "VARCHAR", "", "phase after it"),
        Column("inflight_hi", "UINTEGER", "packets", f"after it; {UNSET}: unset"),
        Column("inflight_lo", "UINTEGER", "packets", f"after it; {UNSET}: unset"),
        Column("bw_lo", "UINTEGER", BW_UNITS, f"after it; {UNSET}: unset"),
        Column("max_bw", "UINTEGER", BW_UNITS, "largest bandwidth in the filter, after it"),
        Column("min_rtt_us", "UINTEGER", "us", f"after it; {UNSET}: none yet"),
        Column("snd_cwnd", "UINTEGER", "packets", "at exit (main, init) or entry"),
        Column("sk_pacing_rate", "UBIGINT", "bytes/s", "at exit (main, init) or entry"),
        Column("inflight", "BIGINT", "packets", "in flight at entry"),
        Column("round_start", "UTINYINT", "flag", "after it: this event began a round"),
        Column("full_bw_reached", "UTINYINT", "flag", "after it: the pipe was found full"),
    ),
    _STATES_SQL.replace("e.kind,\n", "e.kind::VARCHAR AS kind,\n", 1),
    materialized=True,
    words=(("kind", KINDS), ("phase_before", PHASES), ("phase", PHASES)),
)

VIEWS = (STATES,)
