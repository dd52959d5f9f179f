"""One chart alone, for a paper: the page's own, with its data in it, a legend and plain colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ....probes.base.errors import BbrscopeError
from ...text.run_notes import simulated
from ..data import convergence, select, shares
from ..data.document import LANE_NAMES, SHORT
from ..data.legible import legible
from ..data.narrowed_views import run_views
from ..data.thin import Points
from ..panels.flow_panels import FLOW_PANELS
from ..panels.palette import COLOURS
from ..panels.path_panels import QUEUE
from ..panels.signals import Panel, Signal
from . import panel_charts as charts
from . import still_figures, vega

if TYPE_CHECKING:
    import duckdb

Array = np.ndarray[Any, Any]
Row = dict[str, Any]

_OF_FLOWS = {panel.key: panel for panel in FLOW_PANELS}
_OF_RUNS = {
    panel.key: panel for panel in (QUEUE, shares.SHARES, shares.JAIN, convergence.CONVERGENCE)
}
# Name -> what it shows.
NAMES: dict[str, str] = (
    {"lanes": "Phase, congestion state and what limited sending, of a flow"}
    | {key: f"{panel.title} of a flow [{panel.unit}]" for key, panel in _OF_FLOWS.items()}
    | {key: f"{panel.title} of a run [{panel.unit}]" for key, panel in _OF_RUNS.items()}
    | still_figures.NAMES
)
# Charts share their points among as many runs as this many would on a page: few enough for a
# figure of this width [pixels], more than it can show.
_BESIDE, WIDTH = 100, still_figures.WIDTH
_LANE_LABEL = 7


@dataclass(frozen=True)
class PlottedChart:
    """A chart as a Vega-Lite specification, and the rows behind it."""

    spec: dict[str, Any]
    rows: list[Row]


def figure(
    con: duckdb.DuckDBPyConnection,
    name: str,
    run_ids: Sequence[int],
    number: int | None = None,
    between: tuple[float, float] | None = None,
    dark: bool = False,
) -> PlottedChart:
    """Return the chart `name` of `NAMES`, of several runs one above the other.

    Args:
        con: a store that is open.
        number: the flow; None: the first that counts, or in a chart of all flows, every one.
        between: window in seconds on each run's clock, with every point in it.
        dark: for a dark background.

    Raises:
        BbrscopeError: a run has no such flow, or nothing to draw.
    """
    notes = list(simulated(con, run_ids))
    if name in still_figures.NAMES:
        spec, rows = still_figures.still_figure(con, name, run_ids, number, between)
        return PlottedChart(_finished(spec, notes, dark), rows)
    parts = [_part(con, name, run_id, number, between) for run_id in run_ids]
    spec = parts[0].spec if len(parts) == 1 else {"vconcat": [part.spec for part in parts]}
    if len(parts) > 1:
        spec |= {key: parts[0].spec[key] for key in ("$schema", "config")}
        spec["datasets"] = {}
        for place, part in enumerate(parts):
            _prefix(part.spec, spec["datasets"], f"run{place}-")
    return PlottedChart(_finished(spec, notes, dark), [row for part in parts for row in part.rows])


def _part(
    con: duckdb.DuckDBPyConnection,
    name: str,
    run_id: int,
    number: int | None,
    between: tuple[float, float] | None,
) -> PlottedChart:
    run = select.load_run(con, run_id)
    run.beside = _BESIDE
    window = None if between is None else (round(between[0] * 1e6), round(between[1] * 1e6))
    flow = None if name in _OF_RUNS else _flow(run, number)
    if flow is not None:
        panels = [panel for panel in run.panels if panel.key == name]
        with run_views(con, run.row):
            select.load_flow(con, run, flow, window, panels)
    ends = [run.us(one.row["last_ns"]) for one in run.main or run.flows]
    end = run.us(flow.row["last_ns"]) if flow else max(ends, default=0)
    t0, t1 = between or (0.0, end / 1e6)
    if name == "lanes":
        assert flow is not None
        if not flow.lanes:
            raise BbrscopeError(
                f"{run.row['run']} has no phases: packets do not show them",
                "`bbrscope plot --list` names the other charts",
            )
        chart = _lanes(flow, t0, t1)
    else:
        panel, points = _panel(con, name, run, flow, end)
        chart = _drawn(panel, points, flow, t0, t1)
    title = str(run.row["run"]) + (f", flow {flow.number}" if flow else "")
    title += f": {panel.title}" if name == convergence.KEY else ""
    chart.spec["title"] = still_figures.heading(title)
    for row in chart.rows:
        row |= {"run": run.row["run"], "flow": flow.number if flow else None}
    for parameter in chart.spec["params"]:
        parameter["value"] = {"t0": t0, "t1": t1}[parameter["name"]]
    return chart


def _flow(run: select.Run, number: int | None) -> select.ReportFlow:
    flows = [flow for flow in run.flows if number in (None, flow.number)]
    if not flows:
        there = ", ".join(str(flow.number) for flow in run.flows) or "none"
        wanted = "flow with events" if number is None else f"flow {number}"
        raise BbrscopeError(f"{run.row['run']} has no {wanted}", f"it has {there}: --flow N")
    return flows[0]


def _panel(
    con: duckdb.DuckDBPyConnection,
    name: str,
    run: select.Run,
    flow: select.ReportFlow | None,
    end: int,
) -> tuple[Panel, dict[str, Points]]:
    """The chart and its signals; one of several flows if they shared the link."""
    if flow is not None:
        panel = next(panel for panel in run.panels if panel.key == name)
        points = flow.signals
    elif name == QUEUE.key:
        select.load_queue(con, run, end)
        panel, points = QUEUE, run.queue
    elif name == convergence.KEY:
        drawn = convergence.load(con, run)
        panel, points = (drawn.panel, drawn.points) if drawn else (convergence.CONVERGENCE, {})
    else:
        shared = shares.load(con, run, least=1)
        points = shared.points(run) if shared else {}
        panel = _OF_RUNS[name]
        panel = panel.of(shared.signals()) if shared and name == shares.SHARES.key else panel
    if not select.drawn(panel, points):
        raise BbrscopeError(
            f"{run.row['run']} has nothing to draw for {name}", "`bbrscope plot --list` says more"
        )
    return panel, points


def _drawn(
    panel: Panel, points: dict[str, Points], flow: select.ReportFlow | None, t0: float, t1: float
) -> PlottedChart:
    signals = select.drawn(panel, points)
    data: dict[str, list[Row]] = {"bands": [], "gaps": []}
    if flow is not None:
        data["bands"] = _spans(flow, "phase", t0, t1)
        data["gaps"] = [
            {"a": a / 1e6, "b": b / 1e6} for a, b in flow.gaps if b / 1e6 >= t0 and a / 1e6 <= t1
        ]
    rows: list[Row] = []
    for signal in signals:
        drawn_rows = _rows(signal, points[signal.key], flow.gaps if flow else [], t0, t1)
        data.setdefault(f"{signal.shape}s", []).extend(drawn_rows)
        rows += [
            {"t_s": row["t"], "signal": signal.key, "value": row["v"], "from": row.get("b")}
            | {"unit": panel.unit}
            for row in drawn_rows
        ]
    spec = charts.panel_chart(panel, signals).to_dict()
    spec["datasets"] = data
    _legends(spec, {signal.key: signal.label for signal in signals}, data["bands"])
    return PlottedChart(spec, rows)


def _rows(
    signal: Signal, points: Points, gaps: list[tuple[int, int]], t0: float, t1: float
) -> list[Row]:
    """Points of a window, and the one before it; lines end where the recording lacks events."""
    t = points.t / 1e6
    first = max(int(np.searchsorted(t, t0, side="right")) - 1, 0)
    last = int(np.searchsorted(t, t1, side="right"))
    rows: list[Row] = []
    gap_times = iter([a / 1e6 for a, b in gaps if b / 1e6 >= t0])
    gap_time = next(gap_times, None)
    for index in range(first, last):
        while gap_time is not None and gap_time < t[index]:
            if signal.shape in ("line", "step"):
                rows.append({"t": gap_time, "v": None, "s": signal.key})
            gap_time = next(gap_times, None)
        value = int(points.v[index])
        # What a step holds when the window begins, it took on before.
        at = max(float(t[index]), t0) if signal.shape == "step" else float(t[index])
        row: Row = {"t": at, "s": signal.key}
        row["v"] = None if value < 0 else value * signal.scale
        if points.down is not None:
            row["b"] = row["v"] - int(points.down[index]) * signal.scale
        rows.append(row)
    if signal.shape == "step" and rows and rows[-1]["t"] < t1:
        rows.append(rows[-1] | {"t": t1})
    return rows


def _spans(flow: select.ReportFlow, lane: str, t0: float, t1: float) -> list[Row]:
    spans = flow.lanes.get(lane)
    if spans is None:
        return []
    return [
        {"a": max(a / 1e6, t0), "b": min(b / 1e6, t1), "c": category}
        for a, b, category in zip(spans.a.tolist(), spans.b.tolist(), spans.category, strict=True)
        if b / 1e6 >= t0 and a / 1e6 <= t1
    ]


def _lanes(flow: select.ReportFlow, t0: float, t1: float) -> PlottedChart:
    data: dict[str, list[Row]] = {"lanes": [], "labels": []}
    rows: list[Row] = []
    pixels = WIDTH / max(t1 - t0, 1e-9)
    for lane in flow.lanes:
        name = LANE_NAMES[lane]
        for span in _spans(flow, lane, t0, t1):
            data["lanes"].append({"lane": name} | span)
            rows.append({"t_s": span["a"], "until_s": span["b"], "lane": name, "value": span["c"]})
            label = str(SHORT.get(span["c"], span["c"]))
            if (span["b"] - span["a"]) * pixels > _LANE_LABEL * len(label) + 6:
                middle = (span["a"] + span["b"]) / 2
                data["labels"].append({"lane": name, "m": middle, "label": label})
    categories = list(dict.fromkeys(row["c"] for row in data["lanes"]))
    spec = charts.lanes_chart([LANE_NAMES[lane] for lane in flow.lanes], categories).to_dict()
    spec["datasets"] = data
    _legends(spec, {}, data["lanes"])
    return PlottedChart(spec, rows)


def _legends(spec: dict[str, Any], labels: dict[str, str], spans: list[Row]) -> None:
    """Give a chart what the page writes around it: legends, and a name for the axis of time."""
    there = {row["c"] for row in spans}
    names = (
        "{" + ", ".join(f"{_quoted(key)}: {_quoted(text)}" for key, text in labels.items()) + "}"
    )
    for layer in spec["layer"]:
        encoding = layer["encoding"]
        if "axis" in encoding["x"]:
            encoding["x"]["axis"]["title"] = "time, s"
        for channel in ("stroke", "strokeDash", "strokeWidth"):
            if "field" in encoding.get(channel, {}):
                legend = {"title": None, "orient": "top", "labelExpr": f"{names}[datum.label]"}
                encoding[channel]["legend"] = legend | {"symbolType": "stroke", "labelLimit": 300}
        if "scale" in encoding.get("fill", {}):
            scale = encoding["fill"]["scale"]
            known = zip(scale["domain"], scale["range"], strict=True)
            kept = [(name, colour) for name, colour in known if name in there]
            scale["domain"] = [name for name, _ in kept]
            scale["range"] = [colour for _, colour in kept]
            if kept:
                encoding["fill"]["legend"] = {"title": None, "orient": "bottom", "columns": 6}
                encoding["fill"]["legend"] |= {"symbolType": "square", "symbolStrokeWidth": 0}


def _quoted(text: str) -> str:
    """A string of Vega's expression language."""
    return "'" + re.sub(r"[\\'\n]", lambda found: f"\\x{ord(found[0]):02x}", legible(text)) + "'"


def _prefix(spec: dict[str, Any], datasets: dict[str, Any], prefix: str) -> None:
    """Make a chart part of a larger one: its data and parameters under names of their own."""
    for name, rows in spec.pop("datasets").items():
        datasets[prefix + name] = rows
    for key in ("$schema", "config", "autosize", "padding", "background"):
        spec.pop(key, None)
    ends = {parameter["name"]: parameter["value"] for parameter in spec.pop("params")}
    for layer in spec["layer"]:
        layer["data"]["name"] = prefix + layer["data"]["name"]
        scale = layer["encoding"]["x"].get("scale", {})
        scale |= {"domainMin": ends["t0"], "domainMax": ends["t1"]}


def _finished(spec: dict[str, Any], notes: Sequence[str], dark: bool) -> dict[str, Any]:
    """Colours by value, a margin, room for legends, and what is said of simulated runs."""
    chart = vega.on_paper(vega.with_notes(spec, notes, WIDTH), dark)
    chart |= {"padding": 8, "autosize": {"type": "pad"}}
    for kind in ("axis", "axisX", "legend", "title", "text"):
        config = chart["config"].setdefault(kind, {})
        config |= {key: "sans-serif" for key in ("labelFont", "titleFont", "font") if key in config}
    ink, soft = COLOURS["ink"][dark], COLOURS["soft"][dark]
    chart["config"]["legend"] |= {"labelColor": ink, "symbolOpacity": 1}
    chart["config"]["title"] |= {"color": ink, "subtitleColor": soft, "subtitleFont": "sans-serif"}
    chart["config"]["axis"] |= {"labelColor": soft, "titleColor": soft}
    for part in chart.get("vconcat", [chart]):
        part["width"] = WIDTH
        for layer in part.get("layer", []):
            axis = layer["encoding"].get("y", {}).get("axis") or {}
            axis.pop("titleX", None)
    return chart
