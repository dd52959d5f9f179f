"""What the views share: the flow's events in order, their phase, the state after an event.

Two rules hold for all of them. The state after an event is the state that the next event found
(``kind = 'init'`` recorded its own); where the recording lacks events (table ``gaps``, known once
the run was replayed) nothing is concluded across the gap. And every view names the run and can be
filtered by it cheaply: windows are partitioned by run, so that DuckDB reads that run alone.
"""

from __future__ import annotations

import re

from ...collect.store.schema.recorded_tables import SAMPLE
from ...collect.store.schema.table import Column

RUN = Column("run", "VARCHAR", "", "the run's name, see runs")
NS = Column("ns", "UBIGINT", "ns", "CLOCK_MONOTONIC")
T_NS = Column("t_ns", "BIGINT", "ns", "time on the run's clock, see run_clocks")
FLOW_T_NS = Column("flow_t_ns", "BIGINT", "ns", "time since the flow's own first event or sample")

BW_UNITS = "packets/us << 24"
CODE = Column("code", "USMALLINT", "", "the decision, see decision_codes; NULL: unknown")
EVIDENCE = tuple(
    Column(f"e{i}", "BIGINT", "", f"evidence, named in decision_codes.evidence[{i + 1}]")
    for i in range(4)
)


def grown(now: str, before: str) -> str:
    """By how much a counter grew: of a queue that was made anew meanwhile, all that it has.

    Counters have no sign, so that their difference must not be taken as they are.
    """
    return (
        f"CASE WHEN {now} < {before} THEN {now}::BIGINT ELSE {now}::BIGINT - {before}::BIGINT END"
    )


def growth_by_event(column: str, kind: str = "kind") -> str:
    """SQL of how much an event's ACK made a 32-bit counter grow, over the flow's events as `w`.

    A callback finds what its ACK did; a sample is taken before, and the next one finds it. 0 where
    the counter fell back; NULL where the recording does not have it: nothing is known then, which
    is not none.
    """
    return (
        f"CASE WHEN {column} IS NULL THEN NULL"
        f" WHEN {kind} = '{SAMPLE}' THEN growth32(lead({column}) OVER w, {column})"
        f" ELSE growth32({column}, lag({column}) OVER w) END"
    )


def stated_changes(what: str) -> str:
    """SQL of a path's changes that a run's lab or simulation states: run_id, start_ns, value.

    `what` is one of those that a scenario names (`lab_points.CHANGES`), with the unit of its value.
    """
    value = "json_extract_string({0}, '$.{1}')"

    def of(change: str) -> str:
        number = f"TRY_CAST({value.format(change, 'value')} AS DOUBLE) AS value"
        at_s = f"TRY_CAST({value.format(change, 'at_s')} AS DOUBLE)"
        return f"(r.traffic_start_ns + 1e9 * {at_s})::BIGINT AS start_ns, {number}"

    return f"""
  SELECT l.run_id, {of("c")} FROM lab_runs l JOIN runs r USING (run_id),
    unnest(TRY_CAST(l.changes AS JSON[])) AS t(c)
  WHERE {value.format("c", "what")} = '{what}'
  UNION ALL
  SELECT h.run_id, {of("h.value")} FROM host_facts h JOIN runs r USING (run_id)
  WHERE h.scope = 'changes' AND json_valid(h.value) AND {value.format("h.value", "what")} = '{what}'
    AND h.run_id NOT IN (SELECT run_id FROM lab_runs)"""


# How columns of 32 bits say that the kernel has no value: macro unset().
UNSET = "4294967295"

PHASE = "phase_name(r.version, e.bbr_mode, e.bbr_cycle_idx, e.bbr_lt_use_bw, e.bbr_pacing_gain)"
IN_FLIGHT = "packets_in_flight(e.tp_packets_out, e.tp_sacked_out, e.tp_lost_out, e.tp_retrans_out)"
MAX_BW = "max_bw(e.bbr_bw_hi_0, e.bbr_bw_hi_1, e.bbr_bw_s_0_v)"

# Events of a flow from its init on (or its first event), and whether the recording lacks events
# after them. The run's name is part of the window's partition so that a filter on it reaches the
# scan of events. EXISTS, not a LEFT JOIN: with one below a window, DuckDB 2.0 forgets the LIMIT of
# "WHERE t_ns <= 1 ORDER BY seq LIMIT 1" (tests/analyze/views/events/test_event_views.py).
SOURCE = (
    "FROM (SELECT *, EXISTS (SELECT 1 FROM gaps g WHERE g.run_id = events.run_id"
    " AND g.flow = events.flow AND g.seq = events.seq) AS gap FROM events) e"
    " JOIN runs r USING (run_id)"
    " JOIN flows f ON f.run_id = e.run_id AND f.flow = e.flow AND e.seq >= f.pre_init"
)
FLOW_WINDOW = "WINDOW w AS (PARTITION BY e.run_id, r.run, e.flow ORDER BY e.seq)"

NAMED = "c.name, c.about, c.change"


def times(ns: str, first_ns: str = "f.first_ns") -> str:
    """SQL of the columns t_ns and flow_t_ns; the query joins the run's clock as `k`."""
    return f"{ns}::BIGINT - k.zero_ns AS t_ns, ({ns} - {first_ns})::BIGINT AS flow_t_ns"


# Each text that `lead` has returned, and what replaces it where the next event is joined as `n`.
_OF_NEXT: dict[str, str] = {}
_NEXT_EVENT = " LEFT JOIN events n ON n.run_id = e.run_id AND n.flow = e.flow AND n.seq = e.seq + 1"


def lead(expression: str) -> str:
    """SQL of what the flow's next event found, over the window FLOW_WINDOW."""
    of_next = re.sub(r"\be\.", "n.", expression)
    if not re.fullmatch(r"n\.\w+", of_next):
        of_next = f"CASE WHEN n.seq IS NOT NULL THEN {of_next} END"
    found = f"lead({expression}) OVER w"
    _OF_NEXT[found] = of_next
    return found


def with_next(query: str) -> str:
    """Return a query with a join of each flow's next event in place of FLOW_WINDOW.

    It finds the same rows, since a flow's events are numbered from 0 without holes, and takes less
    time: two thirds for `binding`, which asks for many values of the next event. It is for queries
    of chosen runs: a filter on the run's name does not reach the events that are joined. A query
    that asks the window for more than `lead` is returned as it is.
    """
    joined = query
    for found, of_next in _OF_NEXT.items():
        joined = joined.replace(found, of_next)
    if FLOW_WINDOW not in query or "OVER w" in joined:
        return query
    return joined.replace(SOURCE, SOURCE + _NEXT_EVENT).replace(FLOW_WINDOW, "")


def after(expression: str) -> str:
    """SQL of the state after the event: init recorded its own; NULL where events are missing."""
    return f"CASE WHEN e.kind = 'init' THEN {expression} WHEN NOT e.gap THEN {lead(expression)} END"
