"""What a report shows, read from the store: one flow at a time, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....analyze.compare.run_metrics import scoped
from ....analyze.story.clock import flows_with_data, run_zero
from ....analyze.views.result_tables import LACKS_EVENTS
from ....collect.bundle.rungs import CAPTURE, SAMPLED
from ....collect.store.query import Row, one, rows
from ..panels.captured_panels import CAPTURED_PANELS
from ..panels.flow_panels import FLOW_PANELS
from ..panels.path_panels import QUEUE
from ..panels.sampled_panels import SAMPLED_PANELS
from ..panels.signals import Panel, Signal
from ..panels.sources import SOURCES
from .narrowed_views import narrow_views
from .spans import Spans, coarse, spans
from .thin import Points, outline, spaced, tallest, thin

if TYPE_CHECKING:
    import duckdb

Array = np.ndarray[Any, Any]

# Each of this many spans of a run keeps its extremes, shared out among the flows that are drawn; a
# chart is seldom wider than the least.
COLUMNS, LEAST_COLUMNS = 5000, 1500
# enum tcp_ca_state; set_state is called before the state changes. The last: none of them.
_CA_NAMES = np.array(["Open", "Disorder", "CWR", "Recovery", "Loss", "unknown"])
_CA = """coalesce(least(CASE WHEN kind = 'set_state' THEN new_state ELSE icsk_ca_state END, 5),
 5)::UTINYINT"""
# For a signal whose condition fails, e.g. a bound that is unset; no signal is negative.
UNSET = -1
# Lengths of the bins in which rates are counted; the first that makes at most MOST_BINS is taken.
BINS_NS: tuple[int, ...] = tuple(n * 10**k for k in range(7, 12) for n in (1, 2, 5))
MOST_BINS = 1000


# The first byte that a flow sends, as far as is known: what sequence numbers are counted from.
_ORIGINS = """
SELECT flow, arg_min(tp_snd_una, seq) FROM events JOIN flows USING (run_id, flow)
WHERE run_id = ? AND seq >= pre_init GROUP BY flow
"""


_ORIGINS_OF_PACKETS = """
SELECT flow, arg_min(seq_raw, packet) FROM packets
WHERE run_id = ? AND len > 0 AND flow IS NOT NULL GROUP BY flow
"""
# The columns that rows of flow_summary have, of flows that were sampled by ss only.
_SAMPLED = """(
  SELECT * EXCLUDE (first_ns, last_ns), 0 AS events, false AS has_init,
    acked_bytes AS delivered_bytes, last_mode AS final_phase
  FROM sampled_flows)"""
# The same of flows of which only packets are known.
_CAPTURED = """(
  SELECT *, (duration_s * 1e9)::BIGINT AS duration_ns, 0 AS events, false AS has_init,
    coalesce(pkt_acked_bytes, pkt_wire_bytes) AS delivered_bytes, NULL AS final_phase
  FROM metrics_by_flow WHERE flow IS NOT NULL)"""


@dataclass
class ReportFlow:
    """A flow: its row of `flows` and, if it is drawn, its signals and lanes."""

    row: Row
    main: bool
    signals: dict[str, Points] = field(default_factory=dict)
    lanes: dict[str, Spans] = field(default_factory=dict)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Its number in the run, as column `flow` of every table has it."""
        return int(self.row["flow"])


@dataclass
class Run:
    """A run: its row of `runs`, its flows (those that count first) and its queue.

    `beside` is the number of runs on the page, which share the room there is.
    """

    row: Row
    flows: list[ReportFlow]
    zero_ns: int
    queue: dict[str, Points] = field(default_factory=dict)
    beside: int = 1

    @property
    def main(self) -> list[ReportFlow]:
        """The flows that are drawn: those that count."""
        return [flow for flow in self.flows if flow.main]

    @property
    def sampled(self) -> bool:
        """Nothing but samples was recorded."""
        return bool(self.row["rung"] in SAMPLED)

    @property
    def captured(self) -> bool:
        """Nothing but packets was recorded."""
        return bool(self.row["rung"] == CAPTURE.name)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The charts of a flow."""
        if self.captured:
            return CAPTURED_PANELS
        return SAMPLED_PANELS if self.sampled else FLOW_PANELS

    @property
    def columns(self) -> int:
        """Spans of time of which a flow's signals keep the extremes."""
        return max(LEAST_COLUMNS, COLUMNS // max(1, len(self.main) * self.beside))

    def us(self, ns: int) -> int:
        """Time on the page's axis, in us."""
        return (int(ns) - self.zero_ns) // 1000


def load_run(con: duckdb.DuckDBPyConnection, run_id: int) -> Run:
    """Return a run with the list of its flows, nothing drawn yet."""
    run = one(con, "SELECT * FROM runs WHERE run_id = ?", run_id)
    summaries = _flow_summaries(con, run)
    drawn = flows_with_data(con, run_id)
    flows = [ReportFlow(row, row["flow"] in drawn) for row in summaries]
    zero_ns = run_zero(con, run_id) or 0
    return Run(run, sorted(flows, key=lambda flow: not flow.main), zero_ns)


def _flow_summaries(con: duckdb.DuckDBPyConnection, run: Row) -> list[Row]:
    """A row per flow, by number: of `flows`, its summary, and `origin`, its first byte."""
    captured = run["rung"] == CAPTURE.name
    without_events = captured or run["rung"] in SAMPLED
    view = _CAPTURED if captured else _SAMPLED if without_events else "flow_summary"
    summaries = rows(
        con,
        f"SELECT f.*, s.* EXCLUDE (run_id, run, flow) FROM flows f JOIN (SELECT * EXCLUDE ("
        f"events, has_init) FROM {view}) s USING (run_id, flow)"
        " WHERE f.run_id = ? AND s.run = ? ORDER BY flow",
        run["run_id"],
        run["run"],
    )
    query = _ORIGINS_OF_PACKETS if without_events else _ORIGINS
    origins = dict(con.execute(query, [run["run_id"]]).fetchall())
    for row in summaries:
        row["origin"] = origins.get(row["flow"]) or 0
    return summaries


def load_flow(
    con: duckdb.DuckDBPyConnection,
    run: Run,
    flow: ReportFlow,
    window: tuple[int, int] | None,
    panels: Sequence[Panel] | None = None,
) -> None:
    """Read a flow's signals, lanes and gaps into `flow`; only inside ``with run_views``.

    Args:
        window: from and to in us on the axis; in it every point is kept.
        panels: whose signals; None: all of `run.panels`.
    """
    narrow_views(con, flow.number)
    clocks = _clocks(con, run, flow)
    for panel in run.panels if panels is None else panels:
        for source in dict.fromkeys(signal.source for signal in panel.signals):
            signals = [signal for signal in panel.signals if signal.source == source]
            columns, times = _values(con, run, flow, signals, clocks)
            for signal in signals:
                points = _points(signal, times[signal.key], columns, run, flow, window)
                if points is not None:
                    flow.signals[signal.key] = points
    if run.sampled:
        flow.lanes["phase"] = _sampled_modes(con, run, flow)
    elif not run.captured:
        flow.lanes |= _lanes(con, run, flow, clocks, window)
        flow.gaps = _gaps(con, run, flow)


def _values(
    con: duckdb.DuckDBPyConnection,
    run: Run,
    flow: ReportFlow,
    signals: list[Signal],
    clocks: dict[str, Array],
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Values of signals of one source, and the times [us] of each signal's."""
    if signals[0].source != "events":
        columns = _over(con, run, flow, signals)
        return columns, dict.fromkeys(columns, _axis(columns["ns"], run))
    events, held = _axis(clocks["ns"], run), _axis(clocks["held_ns"], run)
    times = {signal.key: held if signal.state else events for signal in signals}
    return _over_events(con, run, flow, signals), times


def _sampled_modes(con: duckdb.DuckDBPyConnection, run: Run, flow: ReportFlow) -> Spans:
    """The modes that a flow was seen in when it was sampled."""
    modes = con.execute(
        "SELECT first_ns AS ns, mode FROM sampled_modes WHERE run_id = ? AND flow = ?"
        " ORDER BY first_ns",
        [run.row["run_id"], flow.number],
    ).fetchnumpy()
    end = run.us(flow.row["last_ns"])
    return spans(_axis(modes["ns"], run), _strings(modes["mode"]), end)


def _lanes(
    con: duckdb.DuckDBPyConnection,
    run: Run,
    flow: ReportFlow,
    clocks: dict[str, Array],
    window: tuple[int, int] | None,
) -> dict[str, Spans]:
    """A flow's phases, congestion states, and what limited sending."""
    end = run.us(flow.row["last_ns"])
    states = _CA_NAMES[np.ma.getdata(clocks["ca"])]
    binding = spans(*_timed(con, run, "ns, binding", "flow_binding"), end)
    return {
        "phase": spans(*_timed(con, run, "start_ns, phase", "flow_phases"), end),
        "ca": spans(_axis(clocks["ns"], run), states, end),
        "binding": coarse(binding, 4 * run.columns, window),
    }


def _gaps(con: duckdb.DuckDBPyConnection, run: Run, flow: ReportFlow) -> list[tuple[int, int]]:
    """From when to when the recording lacks events of a flow, in us on the axis."""
    gaps = rows(
        con,
        "SELECT ns, next_ns FROM gaps WHERE run_id = ? AND flow = ?"
        f" AND {LACKS_EVENTS} ORDER BY seq",
        run.row["run_id"],
        flow.number,
    )
    return [(run.us(gap["ns"]), run.us(gap["next_ns"])) for gap in gaps]


def load_queue(con: duckdb.DuckDBPyConnection, run: Run, end_us: int) -> None:
    """Read the bottleneck's queue over the time of the flows; stays empty if it was not sampled."""
    columns = _over(con, run, None, list(QUEUE.signals))
    times = _axis(columns.pop("ns"), run)
    inside = (times >= 0) & (times <= end_us)
    columns = {key: values[inside] for key, values in columns.items()}
    for signal in QUEUE.signals:
        points = _points(signal, times[inside], columns, run, None, None)
        if points is not None:
            run.queue[signal.key] = points


def drawn(panel: Panel, points: dict[str, Points]) -> list[Signal]:
    """Signals of a panel that have something to draw; none if all there is stays at zero."""
    signals = [signal for signal in panel.signals if signal.key in points]
    return signals if any((points[signal.key].v > 0).any() for signal in signals) else []


def _clocks(con: duckdb.DuckDBPyConnection, run: Run, flow: ReportFlow) -> dict[str, Array]:
    """Two clocks of a flow's events, and TCP's congestion state.

    held_ns is when the state that a row shows began to hold: at the event before, or for init,
    whose state is the one after it, at once.
    """
    result: dict[str, Array] = con.execute(
        "SELECT ns, CASE WHEN kind = 'init' THEN ns ELSE"
        f" coalesce(lag(ns) OVER (ORDER BY seq), ns) END AS held_ns, {_CA} AS ca FROM events"
        " WHERE run_id = ? AND flow = ? AND seq >= ? ORDER BY seq",
        [run.row["run_id"], flow.number, flow.row["pre_init"]],
    ).fetchnumpy()
    return result


def _over_events(
    con: duckdb.DuckDBPyConnection, run: Run, flow: ReportFlow, signals: list[Signal]
) -> dict[str, Array]:
    """Signals over a flow's events, masked where one has no value.

    Events before init, on a zeroed state, are left out.
    """
    result: dict[str, Array] = con.execute(
        f"SELECT {', '.join(signal.column for signal in signals)} FROM events"
        " WHERE run_id = ? AND flow = ? AND seq >= ? ORDER BY seq",
        [run.row["run_id"], flow.number, flow.row["pre_init"]],
    ).fetchnumpy()
    return result


def _over(
    con: duckdb.DuckDBPyConnection, run: Run, flow: ReportFlow | None, signals: list[Signal]
) -> dict[str, Array]:
    """Signals over the rows of another source, and their clock `ns`."""
    query = SOURCES[signals[0].source]
    values = {"run_id": run.row["run_id"]}
    if flow is not None:
        values["flow"] = flow.number
        if "$bin_ns" in query:
            values["bin_ns"] = bin_ns(int(flow.row["last_ns"]) - int(flow.row["first_ns"]))
    columns = ", ".join(signal.column for signal in signals)
    chosen = scoped(con, f"SELECT ns, {columns} FROM ({query}) ORDER BY seq", [run.row["run_id"]])
    result: dict[str, Array] = con.execute(chosen, values).fetchnumpy()
    return result


def bin_ns(duration_ns: int, most: int = MOST_BINS) -> int:
    """Return the length of the bins for rates over such a time.

    >>> bin_ns(25_000_000_000)
    50000000
    """
    fitting = [size for size in BINS_NS if duration_ns <= most * size]
    return fitting[0] if fitting else BINS_NS[-1]


def _axis(ns: Array, run: Run) -> Array:
    return (np.ma.getdata(ns).astype(np.int64) - run.zero_ns) // 1000


def _points(
    signal: Signal,
    t: Array,
    columns: dict[str, Array],
    run: Run,
    flow: ReportFlow | None,
    window: tuple[int, int] | None,
) -> Points | None:
    """Thin a signal; None if it never has a value, or never anything but zero as a stem."""
    values = columns[signal.key]
    masked = np.ma.getmaskarray(values)
    data = np.ma.getdata(values).astype(np.int64, copy=False)
    if signal.shape != "step":
        chosen = ~masked & (data > 0) if signal.shape == "stem" else ~masked
        t, data, masked = t[chosen], data[chosen], masked[chosen]
    if masked.all():
        return None
    if signal.wraps and flow is not None:
        data = _unwrapped(data, masked, flow.row["origin"])
    if signal.shape == "stem":
        return tallest(t, data, run.columns, window)
    if signal.shape == "range":
        down = np.ma.getdata(columns[f"{signal.key}_down"]).astype(np.int64)[chosen]
        return outline(t, data, down, run.columns, window)
    if signal.round_trip:
        rtt_us = np.ma.getdata(columns[f"{signal.key}_rtt"]).astype(np.int64)[chosen]
        return thin(*spaced(t, data, rtt_us, UNSET), run.columns, window, signal.keep)
    return thin(t, np.where(masked, UNSET, data), run.columns, window, signal.keep)


def _unwrapped(numbers: Array, masked: Array, origin: int) -> Array:
    """Sequence numbers of 32 bits as bytes since `origin`, never negative."""
    out = numbers.copy()
    known = numbers[~masked]
    steps = np.diff(known, prepend=origin)
    out[~masked] = np.maximum(np.cumsum((steps + 2**31) % 2**32 - 2**31), 0)
    return out


def _timed(
    con: duckdb.DuckDBPyConnection, run: Run, columns: str, table: str
) -> tuple[Array, Array]:
    """A time, on the page's axis, and a name, out of one of the views of `narrow_views`."""
    # A row a change: a run has some, but events by the million.
    name = columns.rpartition(", ")[2]
    result = con.execute(
        f"SELECT {columns} FROM {table}"
        f" QUALIFY lag({name}) OVER (ORDER BY seq) IS DISTINCT FROM {name} ORDER BY seq"
    ).fetchnumpy()
    ns, names = result.values()
    return _axis(ns, run), _strings(names)


def _strings(column: Array) -> Array:
    return np.ma.filled(column, "").astype(str)
