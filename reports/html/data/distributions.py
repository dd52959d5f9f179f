"""How RTT, goodput and data in flight of flows are distributed: quantiles, for CDFs and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....analyze.compare.run_metrics import scoped
from ....collect.store.query import rows
from . import shares
from .select import BINS_NS, bin_ns, load_run
from .sender_name import sender_name

if TYPE_CHECKING:
    import duckdb

Array = np.ndarray[Any, Any]

# Shares of the samples, or of the time, at which a distribution's quantiles are given.
PROBABILITIES = np.round(np.arange(0, 1.0001, 0.0025), 4)
# Goodput is a mean over bins: the shortest of which the longest run has at most so many. Shorter
# ones show how segments clump rather than what the flow carried.
_MOST_BINS = 150
_BOTH = "$a <= ns - zero_ns AND ns - zero_ns < $b"


@dataclass(frozen=True)
class Distributed:
    """What is distributed; `about` says over what each share is counted."""

    key: str
    title: str
    unit: str
    about: str


QUANTITIES = {
    "rtt": Distributed("rtt", "RTT", "ms", "of the RTT samples"),
    "goodput": Distributed("goodput", "Goodput", "Mbit/s", "of the time"),
    "inflight": Distributed("inflight", "Data in flight", "packets", "of the time"),
}


@dataclass(frozen=True)
class Distribution:
    """The quantiles at `PROBABILITIES` of a flow; `flow` None: only the capture knows it."""

    run_id: int
    flow: int | None
    name: str
    values: Array


@dataclass(frozen=True)
class Distributions:
    """The flows' distributions of a quantity; of goodput, `bin_ns` is what each mean is over."""

    quantity: Distributed
    flows: list[Distribution]
    bin_ns: int | None = None

    @property
    def title(self) -> str:
        """What the axis of values says."""
        over = f", mean over {self.bin_ns / 1e9:g} s" if self.bin_ns else ""
        return f"{self.quantity.title}{over}, {self.quantity.unit}"

    @property
    def from_zero(self) -> bool:
        """The axis begins at zero; an RTT has the path's own below it, which says nothing."""
        return self.quantity.key != "rtt"


def load(
    con: duckdb.DuckDBPyConnection,
    key: str,
    run_ids: Sequence[int],
    between: tuple[float, float] | None = None,
) -> Distributions:
    """Return the distributions of a quantity of `QUANTITIES`, of every flow that counts.

    Args:
        between: seconds of each run's clock, from the first up to the second.
    """
    window = (0.0, 1e9) if between is None else between
    if key == "goodput":
        return _goodput(con, run_ids, window)
    found = (_rtts if key == "rtt" else _inflights)(con, run_ids, window)
    return Distributions(QUANTITIES[key], found)


_RTTS = f"""
SELECT c.run_id, c.flow, NULL AS stream, quantile_cont(m.rtt_us, $at) AS us
FROM senders c JOIN flow_steps m ON m.run_id = c.run_id AND m.flow = c.flow
WHERE c.counts AND m.rtt_us IS NOT NULL AND {_BOTH} GROUP BY ALL
"""
_CAPTURED_RTTS = f"""
SELECT c.run_id, c.flow, c.stream, quantile_cont(m.rtt_us, $at) AS us
FROM senders c JOIN captured_acks m ON m.run_id = c.run_id AND m.stream = c.stream
  AND m.direction = c.direction
WHERE c.counts AND m.rtt_us IS NOT NULL AND {_BOTH} GROUP BY ALL
"""


def _rtts(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], window: tuple[float, float]
) -> list[Distribution]:
    """Samples of the kernel; of flows without any, what the capture tells."""
    kernel, wire = (
        rows(con, scoped(con, query, run_ids), at=PROBABILITIES.tolist(), **_ends(window))
        for query in (_RTTS, _CAPTURED_RTTS)
    )
    known = {(row["run_id"], row["flow"]) for row in kernel}
    wire = [row for row in wire if (row["run_id"], row["flow"]) not in known]
    return _ordered(
        run_ids,
        [
            Distribution(row["run_id"], row["flow"], _name(row), np.array(row["us"]) / 1e3)
            for row in (*kernel, *wire)
        ],
    )


def _name(row: dict[str, Any]) -> str:
    # Of a flow with events, a stream is given where packets told its values.
    captured = row["flow"] is not None and row["stream"] is not None
    return sender_name(row["flow"], row["stream"]) + (" (capture)" if captured else "")


_INFLIGHTS = f"""
SELECT c.run_id, c.flow, NULL AS stream, m.in_flight AS value, sum(m.held_ns) AS held
FROM senders c JOIN flow_steps m ON m.run_id = c.run_id AND m.flow = c.flow
WHERE c.counts AND m.in_flight IS NOT NULL AND m.held_ns > 0 AND {_BOTH}
GROUP BY ALL ORDER BY c.run_id, c.flow, value
"""


def _inflights(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], window: tuple[float, float]
) -> list[Distribution]:
    by_flow: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows(con, scoped(con, _INFLIGHTS, run_ids), **_ends(window)):
        by_flow.setdefault((row["run_id"], row["flow"]), []).append(row)
    return _ordered(
        run_ids,
        [
            Distribution(*key, _name(samples[0]), _weighted(samples, PROBABILITIES))
            for key, samples in by_flow.items()
        ],
    )


def _weighted(rows: Sequence[dict[str, Any]], at: Array) -> Array:
    """Return the least values that hold for at least these shares of the time.

    >>> held = [{"value": 3, "held": 1.0}, {"value": 5, "held": 3.0}]
    >>> _weighted(held, np.array([0, 0.25, 0.26, 1])).tolist()
    [3, 3, 5, 5]
    """
    reached = np.cumsum([row["held"] for row in rows])
    values = np.array([row["value"] for row in rows])
    places = np.searchsorted(reached / reached[-1], at - 1e-12)
    return values[np.minimum(places, len(values) - 1)]


def _goodput(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], window: tuple[float, float]
) -> Distributions:
    runs = [load_run(con, run_id) for run_id in run_ids]
    longest = max((int(run.row["duration_ns"] or 0) for run in runs), default=0)
    size = min(max(bin_ns(longest, _MOST_BINS), BINS_NS[3]), shares.SECOND_NS)
    flows = []
    for run in runs:
        shared = shares.load(con, run, least=1, size_ns=size)
        for share in shared.flows if shared else []:
            values = shared.whole_bins(share, window) if shared else np.array([])
            if len(values):
                rates = np.quantile(values * 8e3 / size, PROBABILITIES)
                flows.append(Distribution(int(run.row["run_id"]), share.flow, share.name, rates))
    return Distributions(QUANTITIES["goodput"], flows, size)


def _ordered(run_ids: Sequence[int], unordered: list[Distribution]) -> list[Distribution]:
    """In the order of the runs; flows by number, those without one last."""
    place = {run_id: number for number, run_id in enumerate(run_ids)}
    return sorted(unordered, key=lambda one: (place[one.run_id], one.flow is None, one.flow or 0))


def _ends(window: tuple[float, float]) -> dict[str, int]:
    return {"a": round(window[0] * 1e9), "b": round(window[1] * 1e9)}
