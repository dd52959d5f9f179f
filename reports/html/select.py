"""What a report shows, read from the store: one flow at a time, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .signals import FLOW_PANELS, QUEUE, Panel, Signal
from .spans import Spans, coarse, spans
from .thin import Points, tallest, thin

if TYPE_CHECKING:
    import duckdb

Array = np.ndarray[Any, Any]
Row = dict[str, Any]

# A flow that delivered less than this share of the largest is not what the run is about (iperf3's
# control connection, a receiver's own acknowledgements).
MAIN_SHARE = 0.01
# Each of this many spans of a run keeps its extremes, shared out among the flows that are drawn; a
# chart is seldom wider than the least.
COLUMNS, LEAST_COLUMNS = 5000, 1500
# enum tcp_ca_state; set_state is called before the state changes.
_CA = """['Open', 'Disorder', 'CWR', 'Recovery', 'Loss'][
 CASE WHEN kind = 'set_state' THEN new_state ELSE icsk_ca_state END + 1]"""
# For a signal whose condition fails, e.g. a bound that is unset; no signal is negative.
UNSET = -1


@dataclass
class Flow:
    """A flow: its row of `flows` and, if it is drawn, its signals and lanes."""

    row: Row
    main: bool
    signals: dict[str, Points] = field(default_factory=dict)
    lanes: dict[str, Spans] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def number(self) -> int:
        return int(self.row["flow"])


@dataclass
class Run:
    """A run: its row of `runs`, its flows (those that matter first) and its queue."""

    row: Row
    flows: list[Flow]
    zero_ns: int
    queue: dict[str, Points] = field(default_factory=dict)

    @property
    def main(self) -> list[Flow]:
        return [flow for flow in self.flows if flow.main]

    @property
    def columns(self) -> int:
        """Spans of time of which a flow's signals keep the extremes."""
        return max(LEAST_COLUMNS, COLUMNS // max(1, len(self.main)))

    def us(self, ns: int) -> int:
        """Time on the page's axis, in us."""
        return (int(ns) - self.zero_ns) // 1000


def rows(con: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[Row]:
    """Return a query's rows as dictionaries."""
    result = con.execute(query, values)
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def one(con: duckdb.DuckDBPyConnection, query: str, *values: Any) -> Row:
    """Return a query's only row."""
    (row,) = rows(con, query, *values)
    return row


def load_run(con: duckdb.DuckDBPyConnection, run_id: int) -> Run:
    """Return a run with the list of its flows, nothing drawn yet."""
    found = rows(
        con,
        "SELECT f.*, s.* EXCLUDE (run_id, run, flow, events, has_init) FROM flows f"
        " LEFT JOIN flow_summary s USING (run_id, flow) WHERE f.run_id = ? AND s.run = ("
        "SELECT run FROM runs WHERE run_id = ?) ORDER BY flow",
        run_id,
        run_id,
    )
    most = max((row["delivered_bytes"] or 0 for row in found), default=0)
    flows = [
        Flow(row, most > 0 and (row["delivered_bytes"] or 0) >= MAIN_SHARE * most) for row in found
    ]
    run = one(con, "SELECT * FROM runs WHERE run_id = ?", run_id)
    first = min((flow.row["first_ns"] for flow in flows if flow.main), default=run["first_ns"])
    return Run(run, sorted(flows, key=lambda flow: not flow.main), int(first or 0))


def load_flow(
    con: duckdb.DuckDBPyConnection, run: Run, flow: Flow, window: tuple[int, int] | None
) -> None:
    """Read a flow's signals, lanes and gaps; `window` (us) keeps every point."""
    _keep_views(con, run, flow)
    signals = [signal for panel in FLOW_PANELS for signal in panel.signals]
    columns = _signal_columns(con, run, flow, signals)
    states, events = columns["held_ns"], columns["ns"]
    for signal in signals:
        times = _axis(states if signal.state else events, run)
        points = _points(signal, times, columns[signal.key], run.columns, window)
        if points is not None:
            flow.signals[signal.key] = points
    end = run.us(flow.row["last_ns"])
    flow.lanes["phase"] = spans(*_timed(con, run, "start_ns, phase", "flow_phases"), end)
    flow.lanes["ca"] = spans(_axis(events, run), _strings(columns["ca"]), end)
    binding = spans(*_timed(con, run, "ns, binding", "flow_binding"), end)
    flow.lanes["binding"] = coarse(binding, 4 * run.columns, window)
    flow.gaps = [
        (run.us(gap["ns"]), run.us(gap["next_ns"]))
        for gap in rows(
            con,
            "SELECT ns, next_ns FROM gaps WHERE run_id = ? AND flow = ? ORDER BY seq",
            run.row["run_id"],
            flow.number,
        )
    ]


def load_queue(con: duckdb.DuckDBPyConnection, run: Run, end_us: int) -> None:
    """Read the bottleneck's queue over the time of the flows; stays empty if it was not sampled."""
    picked = ", ".join(_column(signal) for signal in QUEUE.signals)
    result = con.execute(
        f"SELECT * FROM (SELECT ns, {picked} FROM queue_samples"
        " WHERE run_id = ? AND ns IS NOT NULL) WHERE ns >= ? ORDER BY ns",
        [run.row["run_id"], run.zero_ns],
    ).fetchnumpy()
    times = _axis(result["ns"], run)
    inside = times <= end_us
    for signal in QUEUE.signals:
        points = _points(signal, times[inside], result[signal.key][inside], COLUMNS, None)
        if points is not None:
            run.queue[signal.key] = points


def drawn(panel: Panel, points: dict[str, Points]) -> list[Signal]:
    """Signals of a panel that have something to draw."""
    return [signal for signal in panel.signals if signal.key in points]


def _column(signal: Signal) -> str:
    value = f"round({signal.sql})::BIGINT"
    if "OVER (" in signal.sql:
        # Differences reach across rows, so they may not be restricted first.
        return f"{value} AS {signal.key}"
    return f"CASE WHEN {signal.where} THEN {value} END AS {signal.key}"


def _signal_columns(
    con: duckdb.DuckDBPyConnection, run: Run, flow: Flow, signals: list[Signal]
) -> dict[str, Array]:
    """Each signal over a flow's events (masked where it has no value), and two clocks.

    Events before init, on a zeroed state, are left out.

    held_ns is when the state that a row shows began to hold: at the event before, or for init,
    whose state is the one after it, at once.
    """
    picked = ", ".join(map(_column, signals))
    result: dict[str, Array] = con.execute(
        "SELECT ns, CASE WHEN kind = 'init' THEN ns ELSE"
        " coalesce(lag(ns) OVER (ORDER BY seq), ns) END AS held_ns, "
        f"{picked}, {_CA} AS ca FROM events"
        " WHERE run_id = ? AND flow = ? AND seq >= ? ORDER BY seq",
        [run.row["run_id"], flow.number, flow.row["pre_init"]],
    ).fetchnumpy()
    return result


def _axis(ns: Array, run: Run) -> Array:
    return (np.ma.getdata(ns).astype(np.int64) - run.zero_ns) // 1000


def _points(
    signal: Signal, t: Array, values: Array, columns: int, window: tuple[int, int] | None
) -> Points | None:
    """Thin a signal; None if it never has a value, or never anything but zero as a stem."""
    masked = np.ma.getmaskarray(values)
    data = np.ma.getdata(values).astype(np.int64)
    if masked.all():
        return None
    if signal.shape == "step":
        return thin(t, np.where(masked, UNSET, data), columns, window, signal.keep)
    chosen = ~masked & (data > 0) if signal.shape == "stem" else ~masked
    if not chosen.any():
        return None
    if signal.shape == "stem":
        return tallest(t[chosen], data[chosen], columns, window)
    return thin(t[chosen], data[chosen], columns, window, signal.keep)


# Views that several parts of a flow's report ask: worked out once, then held in temporary tables.
_KEPT = {"phases": "flow_phases", "binding": "flow_binding"}


def _keep_views(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow) -> None:
    """Make temporary tables flow_phases and flow_binding of the flow that is being told."""
    for view, table in _KEPT.items():
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS FROM {view}"
            " WHERE run = ? AND run_id = ? AND flow = ?",
            [run.row["run"], run.row["run_id"], flow.number],
        )


def _timed(
    con: duckdb.DuckDBPyConnection, run: Run, columns: str, table: str
) -> tuple[Array, Array]:
    """A time, on the page's axis, and a name, out of one of the tables of `_keep_views`."""
    result = con.execute(f"SELECT {columns} FROM {table} ORDER BY seq").fetchnumpy()
    ns, names = result.values()
    return _axis(ns, run), _strings(names)


def _strings(column: Array) -> Array:
    return np.ma.filled(column, "").astype(str)
