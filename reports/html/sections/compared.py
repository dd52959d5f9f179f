"""Several runs side by side: their numbers, and charts of all of them on one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....analyze.compare import groups as compare
from ....analyze.story.completeness import simulated_of_many
from ....analyze.views.phase_names import PHASES
from ....collect.bundle.rungs import RUNGS
from ....collect.store import query
from ....collect.store.schema.recorded_tables import ROWS_LOST
from ....probes.base.plurals import plural
from ...text.column_headings import words_and_unit
from ...text.quantities import number_of, seconds
from ..data import document, select
from ..data.document import Document, PlacedChart
from ..data.narrowed_views import run_views
from ..data.shares import SHARES, Shares, load, one_of, swatch
from ..data.spans import Spans
from ..data.thin import Points
from ..pages import frame
from ..panels.flow_panels import RTT, VOLUMES
from ..panels.signals import Panel, Signal
from . import compared_stills
from .setup_line import setup_line

if TYPE_CHECKING:
    import duckdb

# More runs than this are in the tables, but not drawn; and so many flows of each are.
MOST_DRAWN, MOST_FLOWS = compared_stills.MOST_DRAWN, 6
# Bins of goodput in a run: coarse, so that runs laid over each other can be distinguished.
MOST_BINS = 200
# So many runs stand side by side in the table of numbers; more stand one below the other.
MOST_BESIDE = 7
# A change of less than this is not coloured, and what never changes by more is not listed.
WORTH_TELLING = 0.1

_SRTT = Panel("srtts", "Smoothed RTT", "ms", (), height=110)
_INFLIGHT = Panel("inflights", "Data in flight", "packets", (), height=110)
_GOODPUT = replace(SHARES, height=110)
_TOGETHER = Panel("together", "Goodput of all flows together", "Mbit/s", ())
_SRTTS = Panel("first-srtt", "Smoothed RTT of each run's first flow", "ms", ())
_JAINS = Panel("jains", "Fairness: Jain's index per second", "Jain's index", (), height=110)


@dataclass
class DrawnRun:
    """A run that is drawn: its place on the page, its signals by panel, the lanes of its flows."""

    run: select.Run
    place: int
    shares: Shares | None
    panels: list[Panel]
    points: dict[str, Points]
    lanes: dict[str, Spans]

    @property
    def name(self) -> str:
        """What the store calls the run."""
        return str(self.run.row["run"])

    @property
    def phases(self) -> set[str]:
        """Every phase that any of its flows was in."""
        return {phase for spans in self.lanes.values() for phase in spans.category}

    @property
    def end(self) -> float:
        """The last moment of its flows, in seconds on the axis."""
        ends = [self.run.us(flow.row["last_ns"]) for flow in self.run.main]
        if self.shares:
            ends += [self.run.us(flow.last_ns) for flow in self.shares.flows]
        return max(ends, default=0) / 1e6


@dataclass(frozen=True)
class Cell:
    """A number of a run, its change from the first run's, and whether that is better or worse."""

    text: str
    change: str = ""
    state: str = ""


def build(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    advance: Callable[[int], None] = lambda done: None,
    names: str = "kernel",
) -> str:
    """Return the comparison of runs as one HTML page; the first is what others are compared with.

    Args:
        con: a store that is open.
        run_ids: two or more; replayed, if their decisions are to be compared.
        advance: called with the number of events of each run that is done.
        names: "draft" shows the names of draft-ietf-ccwg-bbr instead of the kernel's.
    """
    drawn = []
    for place, run_id in enumerate(run_ids[:MOST_DRAWN]):
        drawn.append(_load(con, run_id, place, min(len(run_ids), MOST_DRAWN)))
        advance(drawn[-1].run.row["events"] or 0)
    charts, overlays = _document(drawn)
    values = _values(con, run_ids, drawn) | {"overlays": overlays}
    stills, charts.data["stills"] = compared_stills.stills(con, run_ids, _names(con, run_ids))
    return frame.render("compare.html.j2", charts, names, values | {"stills": stills})


def _names(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[str]:
    """The names of runs, in the order of their ids."""
    names = query.run_names(con)
    return [names[run_id] for run_id in run_ids]


def _values(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], drawn: list[DrawnRun]
) -> dict[str, object]:
    """What the template shows beside the charts: facts, numbers and changes of every run."""
    measured = compare.measure(con, run_ids)
    holds = simulated_of_many(con, run_ids)
    runs = [
        query.one(con, f"SELECT *, {ROWS_LOST} AS rows_lost FROM runs WHERE run_id = ?", run_id)
        | _agreement(con, run_id)
        for run_id in run_ids
    ]
    return {
        "runs": [
            _about(row, place, holds.get(row["run_id"], "")) for place, row in enumerate(runs)
        ],
        "drawn": drawn,
        "has_decisions": any(row["compared"] for row in runs),
        "phases": [phase for phase in PHASES if any(phase in one.phases for one in drawn)],
        "metrics": _metrics(measured, run_ids),
        "most_beside": MOST_BESIDE,
        "heading": heading,
        "changes": _changes(measured, run_ids[:MOST_DRAWN]),
        "swatch": swatch,
        "reduced": any(not points.exact for one in drawn for points in one.points.values()),
    }


def _load(con: duckdb.DuckDBPyConnection, run_id: int, place: int, beside: int) -> DrawnRun:
    run = select.load_run(con, run_id)
    run.beside = beside
    for flow in run.main[MOST_FLOWS:]:
        flow.main = False
    panels = None if run.sampled or run.captured else (VOLUMES, RTT)
    with run_views(con, run.row):
        for flow in run.main:
            select.load_flow(con, run, flow, None, panels)
    shared = load(con, run, least=1, most_bins=MOST_BINS)
    one = DrawnRun(run, place, shared, [], {}, {})
    if shared:
        one.panels.append(_GOODPUT.of(shared.signals()))
        last = run.us(max(flow.last_ns for flow in shared.flows))
        one.points |= {key: _ended(points, last) for key, points in shared.points(run).items()}
    for panel, key in ((_SRTT, "srtt"), (_INFLIGHT, "inflight")):
        signals = []
        for number, flow in enumerate(run.main):
            if key in flow.signals:
                signals.append(_flow_signal(panel, key, number, flow.number))
                one.points[signals[-1].key] = _ended(flow.signals[key], run.us(flow.row["last_ns"]))
        one.panels.append(panel.of(tuple(signals)))
    if len(run.main) == 1:
        one.lanes |= {name: lane for name, lane in run.main[0].lanes.items() if name == "phase"}
    else:
        one.lanes |= document.together(run.main)
    return one


def _ended(points: Points, end: int) -> Points:
    """Let a signal end with its flow [us], before others of the run, or other runs, do."""
    end = max(end, int(points.t[-1])) + 1
    t, v = np.append(points.t, end), np.append(points.v, select.UNSET)
    return replace(points, t=t, v=v)


def _flow_signal(panel: Panel, key: str, number: int, flow: int) -> Signal:
    model = next(
        signal for panel in (RTT, VOLUMES) for signal in panel.signals if signal.key == key
    )
    own = one_of(number, f"{key}{number + 1}", f"flow {flow}", model.about)
    return replace(own, shape=model.shape, scale=model.scale, width=model.width)


def _document(drawn: list[DrawnRun]) -> tuple[Document, list[PlacedChart]]:
    """The data and charts of the page; runs have the same axes, so that they can be compared."""
    last = max((one.end for one in drawn), default=0) or 1e-3
    page = Document(
        {"t0": 0, "t1": last, "window": [0, last], "flows": [], "panels": [], "specs": {}}
    )
    tops = _domains(drawn)
    for one in drawn:
        page.data["flows"].append(_entry(one))
        shown = document.lanes_shown(page, one.lanes, one.place) if one.lanes else []
        for panel in one.panels:
            common = replace(panel, domain=tops.get(panel.key))
            shown += document.panel_shown(page, common, one.points, one.place, one.place)
        page.shown.append(shown)
    over = _over(drawn)
    points = {key: points for _, signals in over for key, points in signals.items()}
    panels = [panel for panel, _ in over]
    page.data["flows"].append(
        {
            "flow": None,
            "end": last,
            "signals": document.packed_signals(panels, points),
            "lanes": {},
            "gaps": document.packed_gaps([]),
        }
    )
    overlays = []
    for panel in panels:
        overlays += document.panel_shown(page, panel, points, len(drawn), len(drawn))
    return page, overlays


def _entry(one: DrawnRun) -> dict[str, Any]:
    gaps = one.run.main[0].gaps if len(one.run.main) == 1 else []
    return {
        "flow": one.place,
        "end": one.end,
        "signals": document.packed_signals(one.panels, one.points),
        "lanes": {lane: document.packed_spans(spans) for lane, spans in one.lanes.items()},
        "gaps": document.packed_gaps(gaps),
    }


def _domains(drawn: list[DrawnRun]) -> dict[str, tuple[float, float]]:
    """The range of each panel's values over all runs."""
    tops_by_panel: dict[str, list[float]] = {}
    for one in drawn:
        for panel in one.panels:
            for signal in select.drawn(panel, one.points):
                top = float(one.points[signal.key].v.max()) * signal.scale
                tops_by_panel.setdefault(panel.key, []).append(top)
    return {key: (0.0, max(tops)) for key, tops in tops_by_panel.items() if max(tops) > 0}


def _over(drawn: list[DrawnRun]) -> list[tuple[Panel, dict[str, Points]]]:
    """Charts that lay all runs over each other: goodput, RTT, fairness."""
    charts = []
    for panel, key, shape, scale in (
        (_TOGETHER, "together", "step", 1e-3),
        (_SRTTS, "srtt1", "step", 1e-3),
        (_JAINS, "jain", "step", 1e-4),
    ):
        signals, points = [], {}
        for one in drawn:
            if key in one.points:
                signal = one_of(one.place, f"{key}-run{one.place}", one.name, panel.title)
                signals.append(replace(signal, shape=shape, scale=scale))
                points[signal.key] = one.points[key]
        if signals:
            charts.append((panel.of(tuple(signals)), points))
    return charts


def _agreement(con: duckdb.DuckDBPyConnection, run_id: int) -> query.Row:
    return query.one(
        con,
        "SELECT sum(events)::BIGINT AS compared, sum(exact)::BIGINT AS agreed FROM replays"
        " WHERE run_id = ? AND mode = 'step'",
        run_id,
    )


def _about(row: query.Row, place: int, holds: str) -> dict[str, Any]:
    """What the table of runs says of one; `holds`: for what a simulated one does, else empty."""
    wrong = [plural(row["rows_lost"], "row") + " lost"] if row["rows_lost"] else []
    wrong += [plural(row["half_events"], "half event")] if row["half_events"] else []
    if row["compared"] and row["agreed"] < row["compared"]:
        differing = plural(row["compared"] - row["agreed"], "event")
        wrong.append(f"the replay differs on {differing}")
    known = RUNGS.get(row["rung"] or "")
    if known is not None and not known.replays:
        whole = f"{known.name}: no decisions"
    else:
        whole = "complete and exact" if row["compared"] else "complete, not replayed"
    trust = ", ".join(wrong) or whole
    return {
        "place": place,
        "name": row["run"],
        "version": row["version"],
        "kernel": row["kernel"] or "not recorded",
        "setup": setup_line(row["setup"]),
        "lasted": seconds((row["duration_ns"] or 0) / 1e9),
        "events": row["events"] or 0,
        "trust": f"{trust}; simulated, fidelity: {holds}" if holds else trust,
        "good": not wrong,
    }


def heading(quantity: compare.Quantity) -> str:
    """Return a quantity's name without its stored unit: each cell is shown with its own.

    >>> heading(compare.Quantity("metric", "rtt_p50_us", "us", "median RTT"))
    'RTT p50'
    """
    return words_and_unit(quantity.name)[0]


def _metrics(
    measured: compare.Measured, run_ids: Sequence[int]
) -> tuple[list[compare.Quantity], list[list[Cell]]]:
    """The metrics that any run has, and a row of cells per run."""
    columns = [quantity for quantity in compare.METRICS if quantity in measured]
    return columns, [
        [_cell(quantity, measured[quantity], run_ids[0], run_id) for quantity in columns]
        for run_id in run_ids
    ]


def _changes(
    measured: compare.Measured, run_ids: Sequence[int]
) -> list[tuple[str, list[tuple[compare.Quantity, list[Cell]]]]]:
    """Phases, limits and decisions of which a run has another share than the first run."""
    tables = []
    for kind in compare.KINDS[1:]:
        rows = []
        for quantity, values in measured.items():
            if quantity.kind != kind or run_ids[0] not in values:
                continue
            first = values[run_ids[0]]
            changes = [abs(compare.relative(quantity, first, value)) for value in values.values()]
            if max(changes) > WORTH_TELLING:
                cells = [_cell(quantity, values, run_ids[0], run_id) for run_id in run_ids]
                rows.append((max(changes), quantity, cells))
        rows.sort(key=lambda row: -row[0])
        tables.append((kind, [(quantity, cells) for _, quantity, cells in rows]))
    return tables


def _change(quantity: compare.Quantity, first: float, value: float) -> str:
    """The change in % or points; from next to nothing, which has no percentage, as it is.

    >>> _change(compare.METRICS[0], 10.0, 9.0), _change(compare.METRICS[0], 0.0, 9.0)
    ('-10 %', '+9 Mbit/s')
    """
    if not quantity.points and abs(first) <= quantity.floor:
        apart = number_of(abs(value - first), quantity.unit, quantity.share)
        return f"{'-' if value < first else '+'}{apart}" if value != first else apart
    unit = "points" if quantity.points else "%"
    percent = 100 * compare.relative(quantity, first, value)
    return f"{round(percent):+} {unit}".replace("+0 ", "0 ")


def _cell(quantity: compare.Quantity, values: dict[int, float], first: int, run_id: int) -> Cell:
    if run_id not in values:
        return Cell("\u2013")
    text = number_of(values[run_id], quantity.unit, quantity.share)
    if run_id == first or first not in values:
        return Cell(text)
    change = compare.relative(quantity, values[first], values[run_id])
    change_text = _change(quantity, values[first], values[run_id])
    if abs(change) <= WORTH_TELLING or quantity.better == 0:
        return Cell(text, change_text)
    return Cell(text, change_text, "good" if change * quantity.better > 0 else "bad")
