"""The data of the page as one JSON object: signals, lanes, charts and which goes where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....analyze.views.events.binding_views import BINDINGS
from ....analyze.views.phase_names import PHASES
from ..charts import panel_charts as charts
from ..charts import vega
from ..panels.palette import CA_STATES
from ..panels.path_panels import QUEUE
from ..panels.signals import Panel, Signal
from .convergence import Convergence
from .legible import legible_texts
from .pack import pack
from .select import ReportFlow, Run, drawn
from .shares import JAIN, SHARES, Shares
from .spans import Spans
from .thin import Points

LANE_NAMES = {"phase": "phase", "ca": "CA state", "binding": "limited by"}
# What a lane writes where the full name is too long.
SHORT = {name: name.removeprefix("PROBE_BW_") for name in PHASES} | {
    "PROBE_BW_1.25": "1.25x",
    "PROBE_BW_0.75": "0.75x",
    "PROBE_BW_1.0": "1.0x",
}


@dataclass(frozen=True)
class PlacedChart:
    """A chart on the page: its place in the data, heading, and what its legend lists."""

    index: int
    key: str
    title: str
    unit: str
    height: int
    legend: Sequence[tuple[str, str, str, Signal | None]]


@dataclass
class Document:
    """Everything that ``static/page.js`` reads, and the charts of each flow for the template.

    `strip` holds the charts of all flows together; a run of one flow has them among its own.
    """

    data: dict[str, Any]
    shown: list[list[PlacedChart]] = field(default_factory=list)
    strip: list[PlacedChart] = field(default_factory=list)

    def json(self) -> str:
        """Return the data as JSON that may stand inside a script element."""
        return embedded(self.data)


def embedded(data: object) -> str:
    """Return data as JSON that may stand inside a script element."""
    text = json.dumps(legible_texts(data), separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def build(
    run: Run,
    window: tuple[float, float] | None,
    shares: Shares | None,
    converged: Convergence | None = None,
) -> Document:
    """Return the document of a loaded run; `window` is what the page opens with, in seconds."""
    flows = run.main or run.flows
    first = min(run.us(flow.row["first_ns"]) for flow in flows) / 1e6
    last = max(run.us(flow.row["last_ns"]) for flow in flows) / 1e6
    last = max(last, first + 1e-3)
    panels, points = [QUEUE], run.queue
    if converged is not None:
        panels, points = [converged.panel, *panels], points | converged.points
    if shares is not None:
        panels = [SHARES.of(shares.signals()), JAIN, *panels]
        points = points | shares.points(run)
    document = Document(
        {
            "t0": first,
            "t1": last,
            "window": list(window or (first, last)),
            "flows": [*(_flow(run, flow) for flow in flows), _all(run, panels, points, last)],
            "panels": [],
            "specs": {},
        }
    )
    for index, flow in enumerate(flows):
        document.shown.append(_flow_charts(document, run, flow, index))
    # Whose phases stand behind the charts of all flows? Those of the only one.
    phases_of = 0 if len(flows) == 1 else len(flows)
    strip = lanes_shown(document, together(flows), len(flows)) if len(flows) > 1 else []
    for panel in panels:
        strip += panel_shown(document, panel, points, len(flows), phases_of)
    if shares is None and len(flows) == 1:
        document.shown[0] += strip
    else:
        document.strip = strip
    return document


def _flow(run: Run, flow: ReportFlow) -> dict[str, Any]:
    return {
        "flow": flow.number,
        "end": run.us(flow.row["last_ns"]) / 1e6,
        "signals": packed_signals(run.panels, flow.signals),
        "lanes": {lane: packed_spans(spans) for lane, spans in flow.lanes.items()},
        "gaps": packed_gaps(flow.gaps),
    }


def _all(
    run: Run, panels: Sequence[Panel], points: dict[str, Points], last: float
) -> dict[str, Any]:
    """What belongs to all flows together; gaps of one flow's events are none of it."""
    lanes = together(run.main) if len(run.main) > 1 else {}
    return {
        "flow": None,
        "end": last,
        "signals": packed_signals(panels, points),
        "lanes": {name: packed_spans(spans) for name, spans in lanes.items()},
        "gaps": packed_gaps([]),
    }


def together(flows: Sequence[ReportFlow]) -> dict[str, Spans]:
    """The phases of every flow, by its name: synchronised ones are seen at once."""
    return {f"flow {f.number}": f.lanes["phase"] for f in flows if "phase" in f.lanes}


def packed_signals(panels: Sequence[Panel], points: dict[str, Points]) -> list[dict[str, Any]]:
    """The points of every signal that the panels draw, packed as ``static/data.js`` reads them."""
    return [
        _signal(signal, points[signal.key]) for panel in panels for signal in drawn(panel, points)
    ]


def _signal(signal: Signal, points: Points) -> dict[str, Any]:
    packed = {
        "key": signal.key,
        "shape": signal.shape,
        "scale": signal.scale,
        "t": pack(points.t),
        "v": pack(points.v),
    }
    return packed if points.down is None else packed | {"d": pack(points.down)}


def packed_gaps(gaps: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Where the recording lacks events, in us on the axis."""
    ends = np.array(gaps, np.int64).reshape(-1, 2)
    return {"a": pack(ends[:, 0]), "b": pack(ends[:, 1])}


def packed_spans(spans: Spans) -> dict[str, Any]:
    """A lane: ends of its spans, in us on the axis, and which of `names` each span is."""
    names = sorted(set(spans.category))
    numbers = np.array([names.index(name) for name in spans.category], np.int64)
    return {"a": pack(spans.a), "b": pack(spans.b), "c": pack(numbers), "names": names}


def _flow_charts(document: Document, run: Run, flow: ReportFlow, index: int) -> list[PlacedChart]:
    shown = lanes_shown(document, flow.lanes, index)
    for panel in run.panels:
        shown += panel_shown(document, panel, flow.signals, index, index)
    return shown


def lanes_shown(
    document: Document, lanes: dict[str, Spans], index: int, title: str = ""
) -> list[PlacedChart]:
    """The lanes of a flow, or the phases of several; nothing if there are none.

    `index` is its place among the document's flows; the last place is that of all flows together.
    """
    if not lanes:
        return []
    names = {lane: LANE_NAMES.get(lane, lane) for lane in lanes}
    spec = "lanes-" + "-".join(names)
    if spec not in document.data["specs"]:
        categories = [*PHASES, *CA_STATES, *BINDINGS]
        chart = charts.lanes_chart(list(names.values()), categories)
        document.data["specs"][spec] = vega.compiled(chart)
    number = _place(document, {"flow": index, "spec": spec, "lanes": names, "labels": SHORT})
    legend = [(lane, name, "", None) for lane, name in names.items()]
    height = charts.LANE_HEIGHT * len(names)
    phases_of = "Phases" if "phase" in lanes else "Phases of every flow"
    title = title or ("What the flow was doing" if "ca" in lanes else phases_of)
    return [PlacedChart(number, "lanes", title, "", height, legend)]


def panel_shown(
    document: Document, panel: Panel, points: dict[str, Points], index: int, bands: int
) -> list[PlacedChart]:
    """A chart of a flow's signals, in front of phases; nothing if there is nothing to draw.

    `index` is the flow's place as in `lanes_shown`, `bands` that of the flow whose phases they are.
    """
    signals = drawn(panel, points)
    if not signals:
        return []
    spec = "-".join([panel.key, *(signal.key for signal in signals)])
    if spec not in document.data["specs"]:
        chart = charts.panel_chart(panel, signals)
        document.data["specs"][spec] = vega.compiled(chart)
    about = {
        "flow": index,
        "bands": bands,
        "spec": spec,
        "keys": [signal.key for signal in signals],
        "against": {signal.key: signal.against for signal in signals if signal.against},
        "shapes": sorted({signal.shape for signal in signals}),
    }
    legend = [(s.key, s.label, s.about, s) for s in signals]
    number = _place(document, about)
    return [PlacedChart(number, panel.key, panel.title, panel.unit, panel.height, legend)]


def _place(document: Document, about: dict[str, Any]) -> int:
    document.data["panels"].append(about)
    return len(document.data["panels"]) - 1
