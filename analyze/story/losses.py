"""Losses as episodes, and times in which nothing came back: what, how long, at what cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...collect.store.query import Row, rows
from ...collect.store.schema.recorded_tables import SAMPLE
from ..bbr.kernel_units import U32_MAX
from ..bbr.records import CA_EVENT_TX_START, TCP_CA_LOSS, TCP_CA_RECOVERY
from ..views.view_parts import growth_by_event
from .changes import Change
from .event_flows import EventFlow
from .facts import LossEpisode, Span, Stall

if TYPE_CHECKING:
    import duckdb

# Losses less than so long apart, or than so many min_rtt, are one episode.
QUIET_NS, QUIET_RTTS = 1_000_000_000, 3
# A time without ACKs is a stall if it is longer than this and than so many smoothed RTTs.
STALL_NS, STALL_RTTS = 500_000_000, 4
TIMEOUTS = ("CORE_RTO_COLLAPSE", "TIMEOUT", "TIMEOUT_AGAIN")

_BAD = f"({TCP_CA_RECOVERY}, {TCP_CA_LOSS})"
_EPISODES = f"""
WITH e AS (
  SELECT seq, ns::BIGINT AS ns, kind, icsk_ca_state AS state, tp_mss_cache AS mss,
    -- A sample is taken before its ACK may change it.
    CASE kind WHEN 'set_state' THEN new_state
      WHEN '{SAMPLE}' THEN nullif(lead(icsk_ca_state) OVER w, icsk_ca_state) END AS next_state,
    coalesce({growth_by_event("tp_lost")}, 0) AS lost,
    coalesce({growth_by_event("tp_delivered")}, 0) AS delivered,
    -- TCP stays in its state until the next event.
    CASE WHEN coalesce(next_state, state) IN {_BAD} THEN coalesce(lead(ns) OVER w, ns)
      ELSE ns END::BIGINT AS until_ns
  FROM events WHERE run_id = $run_id AND flow = $flow AND seq >= $pre_init
  WINDOW w AS (ORDER BY seq)
), bad AS (
  SELECT *, coalesce((ns - lag(until_ns) OVER (ORDER BY seq) > $quiet_ns)::INTEGER, 1)
      AS begins FROM e
  WHERE lost > 0 OR state IN {_BAD} OR next_state IN {_BAD}
), numbered AS (SELECT *, sum(begins) OVER (ORDER BY seq) AS episode FROM bad),
episodes AS (
  SELECT episode, min(ns) AS start_ns, max(until_ns) AS end_ns,
    count(*) FILTER (next_state = {TCP_CA_RECOVERY} AND state <> {TCP_CA_RECOVERY}) AS recoveries,
    count(*) FILTER (kind = 'undo_cwnd') AS undone
  FROM numbered GROUP BY episode
), carried AS (
  SELECT episode, sum(lost) AS lost, sum(delivered) AS delivered, sum(delivered * mss) AS bytes
  FROM e JOIN episodes ON e.ns BETWEEN start_ns AND end_ns GROUP BY episode
), held AS (
  SELECT episode, sum(least(b.ns + duration_ns, end_ns) - b.ns) AS held_ns
  FROM episodes JOIN binding b ON b.ns BETWEEN start_ns AND end_ns
  WHERE b.run = $run AND b.run_id = $run_id AND b.flow = $flow
    AND binding IN ('recovery', 'inflight_lo', 'pacing_bw_lo') GROUP BY episode
)
SELECT * FROM episodes JOIN carried USING (episode) LEFT JOIN held USING (episode) ORDER BY start_ns
"""


def episodes_of(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, changes: Sequence[Change]
) -> tuple[LossEpisode, ...]:
    """Return the episodes in which packets were lost."""
    min_rtt_us = flow.summary["min_rtt_us"] or 0
    records = rows(
        con,
        _EPISODES,
        run=flow.run,
        run_id=flow.run_id,
        flow=flow.flow,
        pre_init=flow.summary["pre_init"],
        quiet_ns=max(QUIET_NS, QUIET_RTTS * 1000 * min_rtt_us),
    )
    return tuple(_episode(row, changes) for row in records if row["lost"])


def _episode(row: Row, changes: Sequence[Change]) -> LossEpisode:
    span = Span(row["start_ns"], row["end_ns"])
    inside = [change for change in changes if span.start_ns <= change.ns <= span.end_ns]
    lows = [c for c in inside if c.about == "bw_lo" and c.new not in (None, U32_MAX)]
    bits = 8 * int(row["bytes"] or 0)
    return LossEpisode(
        span,
        int(row["lost"]),
        int(row["delivered"] or 0),
        row["recoveries"],
        count_timeouts(inside),
        row["undone"],
        sum(change.name == "TLP_REPAIRED" for change in inside),
        bits * 1e9 / span.duration_ns if span.duration_ns else 0.0,
        int(row["held_ns"] or 0),
        min(lows, key=lambda change: int(change.new or 0), default=None),
    )


def count_timeouts(changes: Sequence[Change]) -> int:
    """Return how often the retransmission timer expired."""
    return len({change.seq for change in changes if change.name in TIMEOUTS})


# Between two ACKs, and after the last one: whether data was outstanding, and since when.
_SILENCES = f"""
WITH e AS (
  SELECT seq, ns::BIGINT AS ns, kind, event, tp_packets_out AS outstanding,
    (tp_srtt_us >> 3)::BIGINT * 1000 AS srtt_ns FROM events
  WHERE run_id = $run_id AND flow = $flow AND seq >= $pre_init
), acks AS (
  SELECT *, lead(seq) OVER (ORDER BY seq) AS next_seq, lead(ns) OVER (ORDER BY seq) AS next_ns
  FROM e WHERE kind IN ('init', 'main')
), silences AS (
  SELECT *, coalesce(next_seq, (SELECT max(seq) FROM e)) AS end_seq,
    coalesce(next_ns, (SELECT max(ns) FROM e)) AS end_ns FROM acks
)
SELECT s.seq, s.ns AS ack_ns, s.outstanding AS left_out, s.end_ns, s.end_seq, s.srtt_ns,
  s.kind = 'init' AS at_start, s.next_seq IS NULL AS at_end,
  min(e.ns) FILTER (e.kind = 'cwnd_event' AND e.event = {CA_EVENT_TX_START}) AS sent_ns,
  max(e.outstanding) AS outstanding
FROM silences s JOIN e ON e.seq > s.seq AND e.seq <= s.end_seq
WHERE s.end_ns - s.ns > {STALL_NS} GROUP BY ALL ORDER BY s.seq
"""


def stalls_of(
    con: duckdb.DuckDBPyConnection, flow: EventFlow, changes: Sequence[Change]
) -> tuple[Stall, ...]:
    """Return the times in which data was outstanding and nothing was acknowledged."""
    gaps = {gap.seq for gap in flow.gaps}
    records = rows(
        con,
        _SILENCES,
        run_id=flow.run_id,
        flow=flow.flow,
        pre_init=flow.summary["pre_init"],
    )
    timeouts = [change for change in changes if change.name in TIMEOUTS]
    stalls = [
        _stall(row, timeouts)
        for row in records
        if not any(row["seq"] <= seq < row["end_seq"] for seq in gaps)
    ]
    return tuple(stall for stall in stalls if stall is not None)


def _stall(row: Row, timeouts: Sequence[Change]) -> Stall | None:
    """Return the stall of a silence; None: the flow was idle, or it was short."""
    start_ns = row["ack_ns"] if row["left_out"] else row["sent_ns"]
    expired = count_timeouts([c for c in timeouts if row["seq"] < c.seq <= row["end_seq"]])
    if start_ns is None or (row["at_end"] and not expired):
        return None
    span = Span(start_ns, row["end_ns"])
    # Where no RTT was recorded, the least time has to do.
    if span.duration_ns <= max(STALL_NS, STALL_RTTS * (row["srtt_ns"] or 0)):
        return None
    outstanding = int(row["outstanding"] or row["left_out"] or 0)
    return Stall(span, outstanding, expired, bool(row["at_start"]))
