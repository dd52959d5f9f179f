"""The charts of a study: one builder per kind of figure, each from the figure's rows.

Colours are CSS variables, so that a page can change its theme; `picture` puts the values of the
light theme in their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import altair as alt
from altair.typing import ChartType

from ....analyze.study import figures
from ....collect.store.query import Row
from ..panels.palette import variable
from . import vega
from .study_style import (
    PALE,
    WIDTH,
    Channels,
    channels,
    configured,
    finished,
    hue,
    series_legend,
)
from .tree_chart import tree_chart

if TYPE_CHECKING:
    from ....analyze.study.figures import Figure
    from ....analyze.study.study import Drawn

Shape = Literal["linear", "step-after"]
# Height of one panel of several, and of a series of ticks [pixels].
PANEL, RASTER = 130, 16
# A chart with more points than this slows a page down; every k-th is left out then, and said so.
MOST_POINTS = 4000
# Numbers from here on are written with an SI prefix.
LARGE = 10_000


def panels(drawn: Drawn) -> list[tuple[str, ChartType]]:
    """Return the charts of a figure with the name of each: one per `facet`, or one without name."""
    if drawn.tree is not None:
        return [("", tree_chart(drawn.tree))]
    build = BUILDERS.get(drawn.figure.kind)
    if build is None:
        return []
    rows = figures.rows(drawn.figure, drawn.rows)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("facet") or ""), []).append(row)
    # The same colours, dashes and scale of values in all.
    return [(name, build(drawn.figure, group, rows)) for name, group in groups.items()]


def _lines(figure: Figure, rows: list[Row], every: list[Row]) -> ChartType:
    """Lines through points, and a bar from `lo` to `hi` at each where these differ."""
    rows = _finite(rows, figure.scale)
    base = alt.Chart(alt.InlineData(values=rows))
    x = alt.X("x:Q", title=figure.x, scale=_scale(figure), axis=_axis(figure, rows))
    y = alt.Y("y:Q", title=figure.y, scale=alt.Scale(zero=figure.zero, nice=True))
    style = channels(every, rows)
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, **style)
    dots = base.mark_point(filled=True, size=42, opacity=1).encode(
        x=x, y=y, color=style["color"], tooltip=_tips(figure.x)
    )
    return finished(alt.layer(*_spread(rows, x, style["color"]), line, dots))


def _spread(rows: list[Row], x: alt.X, colour: alt.Color) -> list[alt.Chart]:
    """Bars from `lo` to `hi`; none where no row has two that differ."""
    spread = [row for row in rows if _is_number(row.get("lo")) and row["lo"] != row.get("hi")]
    if not spread:
        return []
    bars = alt.Chart(alt.InlineData(values=spread)).mark_rule(strokeWidth=1.2)
    return [bars.encode(x=x, y=alt.Y("lo:Q"), y2="hi:Q", color=colour)]


def _tips(x_title: str) -> list[alt.Tooltip]:
    return [alt.Tooltip("series:N"), alt.Tooltip("x:Q", title=x_title), alt.Tooltip("y:Q")]


def _time(figure: Figure, rows: list[Row], every: list[Row], shape: Shape = "linear") -> ChartType:
    """Lines over time."""
    rows = _fewer([{**row, "x": row["t"]} for row in rows])
    x = alt.X("x:Q", title="time, s", scale=alt.Scale(nice=False))
    y = alt.Y("y:Q", title=figure.y, scale=alt.Scale(zero=figure.zero))
    line = alt.Chart(alt.InlineData(values=rows)).mark_line(strokeWidth=1.6, interpolate=shape)
    return finished(line.encode(x=x, y=y, tooltip=_tips("time, s"), **channels(every, rows)))


def _steps(figure: Figure, rows: list[Row], every: list[Row]) -> ChartType:
    """A count that grows: it stays until it changes."""
    return _time(figure, rows, every, "step-after")


def _area(figure: Figure, rows: list[Row], every: list[Row]) -> ChartType:
    """What each series adds to the sum, one upon the other."""
    rows = _fewer([{**row, "x": row["t"]} for row in rows])
    names = sorted({str(row["series"]) for row in every})
    hues = [hue(name) for name in names]
    # What shares a colour is the paler, the later it comes.
    shades = [0.85 / (1 + 1.2 * hues[:at].count(name)) for at, name in enumerate(hues)]
    here = {row["series"] for row in rows}
    legend = series_legend([name for name in names if name in here], "square")
    colours = alt.Scale(domain=names, range=[variable(name) for name in hues])
    opacities = alt.Scale(domain=names, range=shades)
    area = alt.Chart(alt.InlineData(values=rows)).mark_area(stroke=variable("paper"))
    return finished(
        area.encode(
            x=alt.X("x:Q", title="time, s", scale=alt.Scale(nice=False)),
            y=alt.Y("y:Q", title=figure.y, stack="zero"),
            fill=alt.Fill("series:N", legend=legend, scale=colours),
            fillOpacity=alt.FillOpacity("series:N", legend=legend, scale=opacities),
        )
    )


def _stack(figure: Figure, rows: list[Row], every: list[Row]) -> ChartType:
    """Panels above each other, each with its own values, all over the same time."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row["panel"]), []).append({**row, "x": row["t"]})
    begin, end = min(row["t"] for row in rows), max(row["t"] for row in rows)
    scale = alt.Scale(domain=[begin, end], nice=False)
    charts = []
    for number, (name, group) in enumerate(groups.items(), 1):
        last = number == len(groups)
        axis = alt.Axis(title="time, s") if last else alt.Axis(title=None, labels=False)
        x = alt.X("x:Q", scale=scale, axis=axis)
        # One legend is enough.
        charts.append(_panel(name, group, x, channels(every, rows, with_legend=number == 1)))
    return configured(alt.vconcat(*charts, spacing=8).properties(background="transparent"))


def _panel(name: str, rows: list[Row], x: alt.X, style: Channels) -> alt.Chart:
    """One panel of several: lines, or a row of ticks per series if the rows are a raster."""
    if rows[0]["mark"] == "raster":
        return _raster(name, rows, x, style["color"])
    y = alt.Y("y:Q", title=name, axis=alt.Axis(tickCount=4))
    line = alt.Chart(alt.InlineData(values=_fewer(rows))).mark_line(strokeWidth=1.4)
    chart: alt.Chart = line.encode(x=x, y=y, **style).properties(width=WIDTH, height=PANEL)
    return chart


def _raster(name: str, rows: list[Row], x: alt.X, colour: alt.Color) -> alt.Chart:
    """A tick at each time, the series below each other."""
    y = alt.Y("series:N", title=None, axis=alt.Axis(labels=False, ticks=False, grid=False))
    ticks = alt.Chart(alt.InlineData(values=_fewer(rows))).mark_tick(thickness=1, height=12)
    title = alt.Title(name, anchor="start", fontSize=12, fontWeight="normal", color=variable("ink"))
    height = RASTER * len({row["series"] for row in rows})
    chart: alt.Chart = ticks.encode(x=x, y=y, color=colour).properties(
        width=WIDTH, height=height, title=title
    )
    return chart


def _heatmap(figure: Figure, rows: list[Row], every: list[Row]) -> ChartType:
    """Cells in two hues, for and against, the stronger the further from 0, and their numbers."""
    rows = [{**row, "strength": _strength(row["value"], every)} for row in rows]
    base = alt.Chart(alt.InlineData(values=rows))
    x = alt.X("x:O", title=figure.x, axis=alt.Axis(labelAngle=0, grid=False))
    y = alt.Y("y:O", title=figure.y, sort="descending", axis=alt.Axis(grid=False))
    ahead, behind = alt.value(variable("ahead")), alt.value(variable("behind"))
    cells = base.mark_rect(stroke=variable("paper")).encode(
        x=x,
        y=y,
        fill=alt.condition("datum.value >= 0", ahead, behind),
        fillOpacity=alt.FillOpacity("strength:Q", scale=None, legend=None),
        tooltip=[alt.Tooltip("value:Q", format=",.1f", title=figure.value or "value")],
    )
    text = base.mark_text(fontSize=10, color=variable("ink")).encode(
        x=x, y=y, text=alt.Text("value:Q", format=",.3~s" if _has_large(every) else ",.0f")
    )
    return finished(alt.layer(cells, text))


def _has_large(rows: Sequence[Row]) -> bool:
    return any(abs(row["value"]) >= LARGE for row in rows)


def _strength(value: float, every: Sequence[Row]) -> float:
    """How opaque a cell is: nearly clear at 0, three quarters at the largest of all."""
    most = max((abs(row["value"]) for row in every), default=0) or 1
    return PALE + (0.75 - PALE) * math.sqrt(abs(value) / most)


BUILDERS: dict[str, Callable[[Figure, list[Row], list[Row]], ChartType]] = {
    "lines": _lines,
    "time": _time,
    "steps": _steps,
    "area": _area,
    "stack": _stack,
    "heatmap": _heatmap,
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _finite(rows: list[Row], scale: str) -> list[Row]:
    """Return what can be drawn: numbers, and, on a logarithmic axis, those above 0."""
    return [
        row
        for row in rows
        if _is_number(row["x"]) and _is_number(row["y"]) and (scale != "log" or row["x"] > 0)
    ]


def _fewer(rows: list[Row]) -> list[Row]:
    """Return every k-th row, so that there are no more than `MOST_POINTS`."""
    step = -(-len(rows) // MOST_POINTS)
    return rows[::step] if step > 1 else rows


def _scale(figure: Figure) -> alt.Scale:
    if figure.scale == "log":
        return alt.Scale(type="log", base=2, nice=False)
    if figure.scale == "symlog":
        return alt.Scale(type="symlog", constant=0.001)
    return alt.Scale(zero=False, nice=True)


def _axis(figure: Figure, rows: list[Row]) -> alt.Axis:
    """Mark the sweep's own points on axes that are not linear."""
    if figure.scale == "linear":
        return alt.Axis(grid=False)
    return alt.Axis(
        grid=False, values=sorted({row["x"] for row in rows}), format=".3~g", labelOverlap="greedy"
    )


def picture(chart: ChartType, kind: str, notes: Sequence[str] = ()) -> bytes:
    """Return a chart as a file of its own, svg or png, in the colours of the light theme.

    Args:
        notes: what is said below its title.
    """
    import vl_convert

    spec = vega.on_paper(vega.with_notes(chart.to_dict(), notes, WIDTH))
    if kind == "svg":
        svg: str = vl_convert.vegalite_to_svg(spec)
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(spec, scale=2)
    return png
