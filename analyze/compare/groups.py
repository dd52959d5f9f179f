"""Two groups of runs against each other: metrics, phases, limits and decisions that differ.

Each run is brought down to one number per quantity; repetitions make up a group. A quantity differs
by its mean, relative to that of the first group; shares of time differ in points. Whether that is
noise is for noise.py to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..views.runs.sender_views import SAME_SENDER
from .blocks import RunBlock
from .noise import ALPHA, Block, holm, interval, least_p, p_value
from .run_metrics import scoped

if TYPE_CHECKING:
    import duckdb

    from .run_windows import RunWindows

KINDS = ("metric", "phase", "limit", "decision")


@dataclass(frozen=True)
class Quantity:
    """A number that each run has.

    Attributes:
        better: 1 if more is better, -1 if less, 0 if neither.
        floor: changes are relative to this where the first group's mean is smaller, so that a
            change from next to nothing to hardly anything is not reported as a large one.
        points: a share, whose change is a difference of shares.
        share: it reads best as a percentage.
    """

    kind: str
    name: str
    unit: str
    about: str
    better: int = 0
    floor: float = 0.0
    points: bool = False
    share: bool = False


METRICS = (
    Quantity("metric", "goodput_mbps", "Mbit/s", "acknowledged in order, all flows", 1, 0.01),
    Quantity(
        "metric", "utilisation", "", "of the link, by the queue's counters", 1, 0.01, share=True
    ),
    Quantity("metric", "delivery_rate_mbps", "Mbit/s", "median rate sample", 1, 0.01),
    Quantity("metric", "loss_rate", "", "lost, of lost and delivered", -1, 0.001, share=True),
    Quantity("metric", "ce_rate", "", "delivered with CE marks, of delivered", 0, 0.01, share=True),
    Quantity("metric", "pkt_retransmission_rate", "", "of segments", -1, 0.001, share=True),
    Quantity("metric", "rtt_p50_us", "us", "median RTT", -1, 100),
    Quantity("metric", "rtt_p95_us", "us", "95th percentile of the RTT", -1, 100),
    Quantity("metric", "queue_delay_us", "us", "mean RTT above the path's own", -1, 500),
    Quantity("metric", "dropped_packets", "packets", "by the bottleneck's queue", -1, 10),
    Quantity("metric", "inflight_packets", "packets", "mean in flight of a flow", 0, 4),
    Quantity("metric", "app_limited_share", "", "of the time", 0, points=True, share=True),
    Quantity("metric", "rwnd_limited_share", "", "of the time", 0, points=True, share=True),
    Quantity("metric", "jain", "", "Jain's index of competing flows", 1, 0.1),
    Quantity("metric", "converged_s", "s", "when competing flows had equal shares", -1, 1),
)

_COUNTED = f"""
counted AS (SELECT m.* FROM metrics_by_flow m JOIN senders c ON c.counts AND {SAME_SENDER})
"""
_METRICS = f"""
WITH {_COUNTED}, flows_of AS (
  SELECT run_id, avg(delivery_rate_mbps) AS delivery_rate_mbps,
    sum(lost_packets) / nullif(sum(lost_packets + delivered_packets), 0) AS loss_rate,
    sum(ce_rate * delivered_packets) / nullif(sum(delivered_packets), 0) AS ce_rate,
    sum(pkt_retransmissions) / nullif(sum(pkt_segments), 0) AS pkt_retransmission_rate,
    avg(coalesce(rtt_p50_us, pkt_rtt_p50_us)) AS rtt_p50_us,
    avg(coalesce(rtt_p95_us, pkt_rtt_p95_us)) AS rtt_p95_us,
    avg(queue_delay_us) AS queue_delay_us, avg(inflight_packets) AS inflight_packets,
    avg(app_limited_share) AS app_limited_share, avg(rwnd_limited_share) AS rwnd_limited_share
  FROM counted GROUP BY run_id
)
SELECT run_id, {", ".join(f"{quantity.name}::DOUBLE AS {quantity.name}" for quantity in METRICS)}
FROM metrics_by_run LEFT JOIN flows_of USING (run_id)
"""
# Each flow that counts: run_id, flow (NULL: packets alone tell of it), stream, goodput, RTT.
FLOWS = f"""
WITH {_COUNTED}
SELECT run_id, flow, stream, coalesce(goodput_mbps, pkt_goodput_mbps) AS goodput_mbps,
  coalesce(rtt_p50_us, pkt_rtt_p50_us) AS rtt_p50_us
FROM counted ORDER BY run_id, flow NULLS LAST
"""
# Without a window, all of each run.
_WHOLE = (
    "chosen_windows AS (SELECT run_id, 0::BIGINT AS from_ns, 1::BIGINT << 62 AS until_ns FROM runs)"
)
_PARTS = """
main_phases AS (
  SELECT p.run_id, p.flow, p.phase, w.from_ns, w.until_ns,
    greatest(least(p.end_ns::BIGINT, w.until_ns) - greatest(p.start_ns::BIGINT, w.from_ns), 0) AS ns
  FROM phases p JOIN chosen_windows w USING (run_id)
  JOIN senders c ON c.run_id = p.run_id AND c.flow = p.flow AND c.counts
), main_flows AS (
  SELECT run_id, flow, any_value(from_ns) AS from_ns, any_value(until_ns) AS until_ns, sum(ns) AS ns
  FROM main_phases GROUP BY run_id, flow
), totals AS (SELECT run_id, sum(ns) AS ns FROM main_flows GROUP BY run_id)
"""
# kind, name, value; what a run never did has no row.
_REST = {
    "phase": """
SELECT run_id, phase, sum(p.ns) / nullif(any_value(t.ns), 0)
FROM main_phases p JOIN totals t USING (run_id) GROUP BY run_id, phase HAVING sum(p.ns) > 0
""",
    "limit": """
SELECT run_id, binding, sum(lasted) / nullif(any_value(t.ns), 0)
FROM (
  SELECT b.run_id, b.binding, greatest(least(b.ns::BIGINT + b.duration_ns, f.until_ns)
    - greatest(b.ns::BIGINT, f.from_ns), 0) AS lasted
  FROM binding b JOIN main_flows f USING (run_id, flow)
) JOIN totals t USING (run_id) GROUP BY run_id, binding HAVING sum(lasted) > 0
""",
    "decision": """
SELECT run_id, c.name, count(*) * 6e10 / nullif(any_value(t.ns), 0)
FROM decisions d JOIN main_flows f USING (run_id, flow) JOIN decision_codes c USING (code)
JOIN totals t USING (run_id)
WHERE c.change AND d.ns >= f.from_ns AND d.ns < f.until_ns GROUP BY run_id, c.name
""",
}
_ABOUT = {
    "phase": ("", "share of the time in this phase", True, 0.0),
    "limit": ("", "share of the time in which this limited sending", True, 0.0),
    "decision": ("1/min", "decisions to change, per minute of a flow", False, 5.0),
}

Measured = dict[Quantity, dict[int, float]]


@dataclass(frozen=True)
class Difference:
    """A quantity in both groups.

    Attributes:
        a, b: values per run, of the runs that are compared.
        a_mean, b_mean: their means, each block of runs (see blocks.py) with the same weight.
        change: of the means, relative or in points (see Quantity).
        interval: between which changes b_mean - a_mean lies (95 %, bootstrap); None: too few runs.
        p: p value of the permutation test; None: too few runs for it to say anything.
        p_adjusted: the same, for how many quantities were tested (Holm).
        noise: "real" if p_adjusted says so, "noise" if not even p does, or else "unknown".
        verdict: worse, better, differs (neither is better), or same: within the threshold, noise.
    """

    quantity: Quantity
    a: list[float]
    b: list[float]
    a_mean: float
    b_mean: float
    change: float
    interval: tuple[float, float] | None
    p: float | None
    p_adjusted: float | None
    noise: str
    verdict: str

    @property
    def from_nothing(self) -> bool:
        """A's mean is next to nothing: a change relative to it says nothing."""
        return not self.quantity.points and abs(self.a_mean) <= self.quantity.floor


def measure(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], windows: RunWindows | None = None
) -> Measured:
    """Return every quantity of every run that has it; shares and counts of nothing are 0.

    Of the whole runs, or of a window of each.
    """
    measured: Measured = {quantity: {} for quantity in METRICS}
    for run_id, *values in con.execute(scoped(con, _METRICS, run_ids, windows)).fetchall():
        for quantity, value in zip(METRICS, values, strict=True):
            if value is not None:
                measured[quantity][int(run_id)] = float(value)
    replayed = _replayed(con, run_ids)
    chosen = windows.table() if windows else _WHOLE
    for kind, rest in _REST.items():
        query = f"WITH {chosen}, {_PARTS} {rest}"
        unit, about, points, floor = _ABOUT[kind]
        counted_runs = replayed if kind == "decision" else _with_events(con, run_ids)
        for run_id, name, value in con.execute(scoped(con, query, run_ids)).fetchall():
            quantity = Quantity(kind, name or "unknown", unit, about, 0, floor, points, points)
            of_runs = measured.setdefault(quantity, dict.fromkeys(counted_runs, 0.0))
            if value is None:  # a run that lasted no time has no shares of it
                of_runs.pop(int(run_id), None)
            elif run_id in of_runs:
                of_runs[int(run_id)] = float(value)
    return {quantity: values for quantity, values in measured.items() if values}


def _with_events(con: duckdb.DuckDBPyConnection, run_ids: Iterable[int]) -> list[int]:
    query = "SELECT run_id FROM runs WHERE events > 0 AND list_contains(?, run_id)"
    return [row[0] for row in con.execute(query, [list(run_ids)]).fetchall()]


def _replayed(con: duckdb.DuckDBPyConnection, run_ids: Iterable[int]) -> list[int]:
    query = "SELECT DISTINCT run_id FROM replays WHERE list_contains(?, run_id)"
    return [row[0] for row in con.execute(query, [list(run_ids)]).fetchall()]


def differences(
    measured: Measured, compared: Sequence[RunBlock], threshold: float
) -> list[Difference]:
    """Return every quantity that both have: by kind, the largest changes first, then by name."""
    values_of = {}
    for quantity, values in measured.items():
        in_blocks = [
            (
                [values[run] for run in block.a if run in values],
                [values[run] for run in block.b if run in values],
            )
            for block in compared
        ]
        if whole := [(a, b) for a, b in in_blocks if a and b]:
            values_of[quantity] = whole
    tests = {quantity: _tested(blocks) for quantity, blocks in values_of.items()}
    known = {quantity: p for quantity, p in tests.items() if p is not None}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True))
    compared_quantities = [
        _difference(quantity, blocks, tests[quantity], adjusted.get(quantity), threshold)
        for quantity, blocks in values_of.items()
    ]
    return sorted(
        compared_quantities,
        key=lambda d: (KINDS.index(d.quantity.kind), -abs(d.change), d.quantity.name),
    )


def _tested(blocks: Sequence[Block]) -> float | None:
    """Return the p value; None: too few runs for it to fall below ALPHA."""
    if least_p([(len(a), len(b)) for a, b in blocks]) > ALPHA:
        return None
    return p_value(blocks)


def _difference(
    quantity: Quantity,
    blocks: Sequence[Block],
    p: float | None,
    p_adjusted: float | None,
    threshold: float,
) -> Difference:
    a_mean, b_mean = (float(np.mean([np.mean(block[side]) for block in blocks])) for side in (0, 1))
    change = relative(quantity, a_mean, b_mean)
    noise = _noise(p, p_adjusted)
    return Difference(
        quantity,
        [value for a, _ in blocks for value in a],
        [value for _, b in blocks for value in b],
        a_mean,
        b_mean,
        change,
        interval(blocks),
        p,
        p_adjusted,
        noise,
        _verdict(quantity, change, noise, threshold),
    )


def _noise(p: float | None, p_adjusted: float | None) -> str:
    """Say whether the tests call it noise; too few runs to survive so many tests leave it open."""
    if p is None or p_adjusted is None:
        return "unknown"
    if p_adjusted <= ALPHA:
        return "real"
    return "noise" if p > ALPHA else "unknown"


def _verdict(quantity: Quantity, change: float, noise: str, threshold: float) -> str:
    if noise == "noise" or abs(change) <= threshold:
        return "same"
    if quantity.better == 0:
        return "differs"
    return "better" if change * quantity.better > 0 else "worse"


def relative(quantity: Quantity, a: float, b: float) -> float:
    """Return the change from `a` to `b`: a share of `a`, or a difference of shares.

    >>> round(relative(METRICS[0], 10.0, 9.0), 3)
    -0.1
    """
    if quantity.points:
        return b - a
    base = max(abs(a), quantity.floor)
    return (b - a) / base if base else 0.0
