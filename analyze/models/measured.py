"""What collected runs measured, in the terms of `ware`: the link, and BBR's share of the goodput.

The paper divides by the link's capacity; here all flows' goodput is the whole. While the queue
never runs empty, as the model assumes, these are the same, and no layer's headers come between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..compare.run_metrics import scoped
from ..views.runs.sender_views import SAME_SENDER
from . import ware
from .cliff import Point

if TYPE_CHECKING:
    import duckdb

# Of the time in which all flows were there, this share is left out at the beginning: the model is
# about the state after convergence, and nothing tells when that was.
SKIPPED = 0.5


@dataclass(frozen=True)
class Measured:
    """BBR's share of a run's goodput.

    Attributes:
        run: its name.
        version: v1, v2 or v3; None: not recorded. The model is about v1.
        flows, others: how many BBR and other flows.
        seconds: length of the part over which the share was taken: all flows run in it.
        share: BBR's part of all goodput; None: BBR and another flow were never there together.
    """

    run: str
    version: str | None
    flows: int
    others: int
    seconds: float
    share: float | None


@dataclass(frozen=True)
class _Interval:
    """Goodput of one flow: its number within the run, when (s), how long (s), bytes."""

    flow: int
    bbr: bool
    t: float
    seconds: float
    bytes: float


_LAB = """
SELECT i.run_id, i.flow_no, f.flow IS NOT NULL OR f.cc LIKE '%bbr%', i.t_s, i.seconds,
  i.goodput_bps * i.seconds / 8
FROM lab_intervals i JOIN lab_flows f USING (run_id, flow_no)
"""
# Flows with events are BBR's; what packets alone tell of is not.
_METRICS = f"""
SELECT m.run_id, dense_rank() OVER (PARTITION BY m.run_id ORDER BY m.flow, m.stream) AS number,
  m.flow IS NOT NULL AS bbr, m.t_s::DOUBLE AS t_s, m.duration_s,
  coalesce(m.pkt_acked_bytes, m.acked_bytes, 0)::DOUBLE AS bytes
FROM metrics_by_second m JOIN senders c ON c.counts AND {SAME_SENDER}
WHERE m.run_id NOT IN (SELECT run_id FROM lab_intervals)
"""

# A run whose link is stated: bit/s, ms, packets and bytes.
_STATED = """
WITH said AS (
  SELECT run_id, TRY_CAST(json_extract_string(setup, '$.delay') AS DOUBLE) AS rtt_ms,
    coalesce(TRY_CAST(json_extract_string(setup, '$.limit') AS DOUBLE), 0) AS packets,
    coalesce(TRY_CAST(json_extract_string(setup, '$.limit_bytes') AS DOUBLE), 0) AS size,
  FROM runs WHERE json_extract_string(setup, '$.policer') IS NULL
)
SELECT run_id, any_value(bits_per_s), any_value(rtt_ms), any_value(packets), any_value(size)
FROM said JOIN link_rates USING (run_id)
WHERE rtt_ms > 0 AND greatest(packets, size) > 0 AND run_id NOT IN (SELECT run_id FROM lab_runs)
GROUP BY run_id HAVING count(*) = 1
"""


def measure(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], skipped: float = SKIPPED
) -> list[Measured]:
    """Return what each run measured, in their order.

    From the receivers' intervals of a lab run, otherwise from `metrics_by_second`: from captured
    packets, or from kernel events where there are none. `skipped` is the share of the common time
    that is left out at its start.
    """
    intervals: dict[int, list[_Interval]] = defaultdict(list)
    for query in (_LAB, _METRICS):
        for run_id, *values in con.execute(scoped(con, query, run_ids)).fetchall():
            intervals[run_id].append(_Interval(*values))
    rows = con.execute("SELECT run_id, run, version FROM runs").fetchall()
    names = {run_id: (run, version) for run_id, run, version in rows}
    return [_measured(*names[run_id], intervals[run_id], skipped) for run_id in run_ids]


def _measured(
    run: str, version: str | None, intervals: Sequence[_Interval], skipped: float
) -> Measured:
    flows = {each.flow: each.bbr for each in intervals}
    bbr = sum(flows.values())
    begins = {flow: min(i.t for i in intervals if i.flow == flow) for flow in flows}
    ends = {flow: max(i.t + i.seconds for i in intervals if i.flow == flow) for flow in flows}
    begin, end = max(begins.values(), default=0.0), min(ends.values(), default=0.0)
    begin += skipped * (end - begin)
    inside = [i for i in intervals if begin <= i.t and i.t + i.seconds <= end + 1e-6]
    total = sum(i.bytes for i in inside)
    share = sum(i.bytes for i in inside if i.bbr) / total if total else None
    if not 0 < bbr < len(flows):
        share = None
    return Measured(run, version, bbr, len(flows) - bbr, max(end - begin, 0.0), share)


def known_links(
    con: duckdb.DuckDBPyConnection, packet_bytes: int = ware.PACKET_BYTES
) -> dict[int, ware.Link]:
    """Return the bottleneck of each run whose lab or set-up states it, by run_id.

    A set-up has to say the base RTT (`delay` [ms]) and the queue's size (`limit` [packets] or
    `limit_bytes`); of a link whose rate changed, or of a policer, the model tells nothing.
    """
    found = {
        run_id: ware.Link(rate / 8 / packet_bytes, rtt_ms / 1e3, packets or size / packet_bytes)
        for run_id, rate, rtt_ms, packets, size in con.execute(_STATED).fetchall()
    }
    rows = con.execute("SELECT run_id, rate_bps, rtt_us, buffer_bytes FROM lab_runs").fetchall()
    return found | {
        run_id: ware.Link(rate / 8 / packet_bytes, rtt / 1e6, buffer / packet_bytes)
        for run_id, rate, rtt, buffer in rows
    }


def runs_of(con: duckdb.DuckDBPyConnection, scenario: str) -> list[int]:
    """Return run_id of the valid runs of a scenario of the lab."""
    rows = con.execute("SELECT run_id FROM lab_runs WHERE scenario = ? AND valid", [scenario])
    return [int(run_id) for (run_id,) in rows.fetchall()]


def loss_sweep(con: duckdb.DuckDBPyConnection, scenario: str) -> dict[str, list[Point]]:
    """Return the points of a scenario's sweep over random loss, by congestion control.

    Means over the valid runs of each rate of loss; v1, v2, v3 where the version is known.
    """
    rows = con.execute(
        "SELECT coalesce(f.bbr_version, f.cc) AS cc, r.loss, avg(f.goodput_bps),"
        " avg(f.retransmits) FROM lab_runs r JOIN lab_flows f USING (run_id)"
        " WHERE r.scenario = ? AND r.valid AND f.goodput_bps IS NOT NULL"
        " GROUP BY ALL ORDER BY cc, r.loss",
        [scenario],
    ).fetchall()
    points: dict[str, list[Point]] = defaultdict(list)
    for cc, loss, goodput, retransmits in rows:
        points[cc].append(Point(loss, goodput, retransmits or 0))
    return dict(points)
