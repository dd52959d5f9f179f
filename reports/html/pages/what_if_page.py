"""The page of a what-if: the verdict, how far it holds, and three courses on one time axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ....analyze.simulate.closed_loop import typical
from ....analyze.simulate.course import UNSET
from ....analyze.simulate.course_steps import Band, OverTime, band
from ....analyze.simulate.recorded_world import METRICS
from ....analyze.views.phase_names import PHASES
from ...text.what_if_words import QUANTITY_WORDS, path_words
from ..data import document
from ..data.document import Document, PlacedChart
from ..data.spans import Spans, spans
from ..data.thin import Points
from ..panels.signals import Panel
from ..panels.what_if_panels import (
    AREA,
    BOUNDS,
    INFLIGHT,
    TOGETHER,
    WINDOW,
    CourseQuantity,
    bounds_panel,
    with_bands,
)
from . import frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ....analyze.simulate.closed_loop import ClosedLoopAnswer
    from ..data.select import Array

# More flows than this are not drawn one by one.
MOST_DRAWN = 6
_NO_VALUE = -1
_LANES_TITLE = "Phase; simulated: of the seed with the median goodput"
# What fits in front of a lane.
_LANE_LETTERS = 9
# What a legend repeats without filling the page.
_CHIP_LETTERS = 20


def build(answer: ClosedLoopAnswer, recorded: OverTime, rules: str, names: str = "kernel") -> str:
    """Return the page of a what-if, which needs no network.

    Args:
        recorded: the recording in the steps of time that the answer's runs have.
        rules: what the other rules are called.
        names: "draft" shows the names of draft-ietf-ccwg-bbr instead of the kernel's.
    """
    drawn = min(len(recorded.flows), MOST_DRAWN)
    charts = _document(answer, recorded, rules, drawn)
    runs = (recorded, *(run.over_time for run in (*answer.own_runs, *answer.other_runs)))
    present = {int(each) for run in runs for phases in run.phases for each in phases}
    values: dict[str, object] = {
        "run": answer.world.run,
        "version": answer.world.rules,
        "rules": rules,
        "seeds": len(answer.own_runs),
        "path": path_words(answer.world.fitted),
        "headline": answer.verdicts["goodput_mbps"],
        "holds": answer.holds,
        "outside": answer.is_outside,
        "metrics": [_row(answer, name) for name in METRICS],
        "step_ms": recorded.step_us / 1000,
        "not_drawn": len(recorded.flows) - drawn,
        "phases": [name for place, name in enumerate(PHASES) if place in present],
    }
    return frame.render("what_if.html.j2", charts, names, values)


def _row(answer: ClosedLoopAnswer, name: str) -> dict[str, object]:
    digits = 0 if name == "lost_packets" else 2
    own, other, for_kernel = (
        [f"{value:.{digits}f}" for value in interval[name]]
        for interval in (answer.own, answer.other, answer.other_for_kernel)
    )
    return {
        "name": QUANTITY_WORDS[name],
        "recorded": f"{answer.world.recorded[name]:.{digits}f}",
        "own": own,
        "other": other,
        "for_kernel": for_kernel,
        "verdict": answer.verdicts[name],
    }


def _document(answer: ClosedLoopAnswer, recorded: OverTime, rules: str, drawn: int) -> Document:
    """The charts of all flows together, and of each flow."""
    end = answer.world.setup.duration_us / 1e6
    data: dict[str, object] = {"t0": 0.0, "t1": end, "window": [0.0, end]}
    page = Document(data | {"flows": [], "panels": [], "specs": {}})
    lane = rules if len(rules) <= _LANE_LETTERS else "other"
    rules = rules if len(rules) <= _CHIP_LETTERS else "other rules"
    courses = _Courses(
        recorded,
        [run.over_time for run in answer.own_runs],
        [run.over_time for run in answer.other_runs],
    )
    panels = [with_bands(quantity, rules) for quantity in TOGETHER]
    page.strip = _placed(page, panels, courses.points(TOGETHER, None), {}, end)
    own, other = typical(answer.own_runs).over_time, typical(answer.other_runs).over_time
    for flow in range(drawn):
        points = courses.points((INFLIGHT, *BOUNDS, WINDOW), flow)
        runs = {"recorded": recorded, "own rules": own, lane: other}
        lanes = _lanes({name: run.phases[flow] for name, run in runs.items()}, recorded.step_us)
        panels = [with_bands(INFLIGHT, rules), bounds_panel(rules), with_bands(WINDOW, rules)]
        page.shown.append(_placed(page, panels, points, lanes, end))
    return page


@dataclass(frozen=True)
class _Courses:
    """The recording, and the seeds of both rules."""

    recorded: OverTime
    own: list[OverTime]
    other: list[OverTime]

    def points(self, quantities: Sequence[CourseQuantity], flow: int | None) -> dict[str, Points]:
        """Points of each quantity's signals, of one flow; None: of all together."""
        by_signal: dict[str, Points] = {}
        for quantity in quantities:
            recorded, *own = (
                _values(run, flow, quantity.name) for run in (self.recorded, *self.own)
            )
            other = [_values(run, flow, quantity.name) for run in self.other]
            by_signal |= _points(quantity, self.recorded.step_us, recorded, band(own), band(other))
        return by_signal


def _values(run: OverTime, flow: int | None, name: str) -> Array:
    return run.together[name] if flow is None else run.flows[flow][name]


def _placed(
    page: Document,
    panels: Sequence[Panel],
    points: dict[str, Points],
    lanes: dict[str, Spans],
    end: float,
) -> list[PlacedChart]:
    index = len(page.data["flows"])
    page.data["flows"].append(
        {
            "flow": index or None,
            "end": end,
            "signals": document.packed_signals(panels, points),
            "lanes": {name: document.packed_spans(one) for name, one in lanes.items()},
            "gaps": document.packed_gaps([]),
        }
    )
    shown = document.lanes_shown(page, lanes, index, _LANES_TITLE)
    for panel in panels:
        shown += document.panel_shown(page, panel, points, index, index)
    return shown


def _points(
    quantity: CourseQuantity, step_us: int, recorded: Array, own: Band, other: Band
) -> dict[str, Points]:
    """Whole numbers of the quantity's scale, by signal; rates, RTTs and means lie mid-step."""
    t = step_us * np.arange(len(recorded), dtype=np.int64)
    t = t + (step_us // 2 if quantity.mid_step else step_us)
    by_signal = {}
    lines = {"recorded": recorded, "own": own.middle, "other": other.middle}
    for source, values in lines.items():
        if np.isfinite(values).any():
            whole = _whole(values, quantity.per_value)
            by_signal[f"{quantity.name}-{source}"] = Points(t, whole, len(t), True)
    for source, one in (("own", own), ("other", other)):
        if np.isfinite(one.high).any() and quantity.alone:
            high, low = (_whole(edge, quantity.per_value) for edge in (one.high, one.low))
            key = f"{quantity.name}-{source}-{AREA}"
            by_signal[key] = Points(t, high, len(t), True, np.where(high < 0, 0, high - low))
    return by_signal


def _whole(values: Array, per_value: int) -> Array:
    there = np.isfinite(values)
    return np.where(there, np.rint(np.where(there, values, 0.0) * per_value), _NO_VALUE).astype(
        np.int64
    )


def _lanes(phases: dict[str, Array], step_us: int) -> dict[str, Spans]:
    """Spans per lane, from where the flow had begun to where it ended."""
    lanes = {}
    for name, places in phases.items():
        begun = np.flatnonzero(places != UNSET)
        words = np.array([*PHASES, "unknown"])[places]
        starts = step_us * begun.astype(np.int64)
        lanes[name] = spans(starts, words[begun], int(starts[-1]) + step_us if len(starts) else 0)
    return lanes
