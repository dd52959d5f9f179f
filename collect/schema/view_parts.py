"""What the views share: the flow's events in order, their phase, the state after an event."""

from __future__ import annotations

from .model import Column

RUN = Column("run", "VARCHAR", "", "the run's name, see runs")
SEQ = Column("seq", "INTEGER", "", "the event, see events")
NS = Column("ns", "UBIGINT", "ns", "CLOCK_MONOTONIC")
T_NS = Column("t_ns", "BIGINT", "ns", "time since the flow's first event")

BW_UNITS = "packets/us << 24"
UNSET = "4294967295"

# bbr.mode and bbr.cycle_idx by name; bbr_pacing_gain[] of v1 has 1.25, 0.75 and six times 1.0, and
# with the policer's rate in use the gain is 1.0 throughout (tcp_bbr.c bbr_update_gains()).
PHASE = (
    "CASE e.bbr_mode WHEN 0 THEN 'STARTUP' WHEN 1 THEN 'DRAIN' WHEN 3 THEN 'PROBE_RTT'"
    " WHEN 2 THEN CASE WHEN r.version <> 'v1' THEN CASE e.bbr_cycle_idx WHEN 0 THEN 'PROBE_BW_UP'"
    " WHEN 1 THEN 'PROBE_BW_DOWN' WHEN 2 THEN 'PROBE_BW_CRUISE' ELSE 'PROBE_BW_REFILL' END"
    " WHEN e.bbr_lt_use_bw = 1 THEN 'PROBE_BW_LT' WHEN e.bbr_cycle_idx = 0 THEN 'PROBE_BW_1.25'"
    " WHEN e.bbr_cycle_idx = 1 THEN 'PROBE_BW_0.75' ELSE 'PROBE_BW_1.0' END END"
)

# Events of a flow from its init on (or its first event), and whether the recording lacks events
# after them. The run's name is part of the window's partition so that a filter on it reaches the
# scan of events. EXISTS, not a LEFT JOIN: with one below a window, DuckDB 2.0 forgets the LIMIT of
# "WHERE t_ns <= 1 ORDER BY seq LIMIT 1" (tests/collect/test_views.py).
SOURCE = (
    "FROM (SELECT *, EXISTS (SELECT 1 FROM gaps g WHERE g.run_id = events.run_id"
    " AND g.flow = events.flow AND g.seq = events.seq) AS gap FROM events) e"
    " JOIN runs r USING (run_id)"
    " JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init"
)
FLOW_WINDOW = "WINDOW w AS (PARTITION BY e.run_id, r.run, e.flow ORDER BY e.seq)"

NAMED = "c.name, c.about, c.change"


def lead(expression: str) -> str:
    """What the flow's next event found."""
    return f"lead({expression}) OVER w"


def after(expression: str) -> str:
    """State after the event: init recorded its own; unknown where events are missing."""
    return f"CASE WHEN e.kind = 'init' THEN {expression} WHEN NOT e.gap THEN {lead(expression)} END"
