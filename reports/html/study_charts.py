"""The charts of a study: one builder per kind of figure, each from the figure's rows.

Colours are CSS variables, so that a page can change its theme; `picture` puts the values of the
light theme in their place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import altair as alt

from . import palette
from .palette import AXIS, variable

if TYPE_CHECKING:
    from ...analyze.study.figures import Figure
    from ...analyze.study.study import Drawn
    from ...analyze.study.tree import Tree

Row = dict[str, Any]
Shape = Literal["linear", "step-after"]
WIDTH, HEIGHT, PANEL = 430, 250, 130
# A chart with more points than this slows a page down; every k-th is left out then, and said so.
MOST_POINTS = 4000
MOST_SERIES = 24
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 3], [4, 2, 1, 2])
# What is no flow's: dashed, dotted.
LINES = {"capacity": [5, 3], "fair share": [1, 3]}
PALE = 0.06
QUANTITIES = ("inflight", "cwnd", "inflight_hi", "inflight_lo")
HUES = ("v1", "v2", "v3", "bbr", "cubic", "reno", "vegas", "model", "capacity", "backlog")


def panels(drawn: Drawn) -> list[tuple[str, Any]]:
    """Return the charts of a figure with the name of each: one per `facet`, or one without name."""
    if drawn.tree is not None:
        return [("", tree_chart(drawn.tree))]
    build = BUILDERS.get(drawn.figure.kind)
    if build is None:
        return []
    rows = drawn.rows.to_pylist()
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row.get("facet") or ""), []).append(row)
    # The same colours, dashes and scale of values in all.
    return [(name, build(drawn.figure, group, rows)) for name, group in groups.items()]


def _lines(figure: Figure, rows: list[Row], every: list[Row]) -> Any:
    rows = _finite(rows, figure.scale)
    base = alt.Chart(alt.InlineData(values=rows))
    x = alt.X("x:Q", title=figure.x, scale=_scale(figure), axis=_axis(figure, rows))
    y = alt.Y("y:Q", title=figure.y, scale=alt.Scale(zero=figure.zero, nice=True))
    style = _style(every, rows)
    tips = [alt.Tooltip("series:N"), alt.Tooltip("x:Q", title=figure.x), alt.Tooltip("y:Q")]
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, **style)
    dots = base.mark_point(filled=True, size=42, opacity=1).encode(
        x=x, y=y, color=style["color"], tooltip=tips
    )
    spread = [row for row in rows if _number(row.get("lo")) and row["lo"] != row.get("hi")]
    layers = [line, dots]
    if spread:
        bars = alt.Chart(alt.InlineData(values=spread)).mark_rule(strokeWidth=1.2)
        layers.insert(0, bars.encode(x=x, y=alt.Y("lo:Q"), y2="hi:Q", color=style["color"]))
    return _finish(alt.layer(*layers))


def _time(figure: Figure, rows: list[Row], every: list[Row], shape: Shape = "linear") -> Any:
    rows = _fewer([{**row, "x": row["t"]} for row in rows])
    x = alt.X("x:Q", title="time, s", scale=alt.Scale(nice=False))
    y = alt.Y("y:Q", title=figure.y, scale=alt.Scale(zero=figure.zero))
    style = _style(every, rows)
    base = alt.Chart(alt.InlineData(values=rows))
    tips = [alt.Tooltip("series:N"), alt.Tooltip("x:Q", title="time, s"), alt.Tooltip("y:Q")]
    line = base.mark_line(strokeWidth=1.6, interpolate=shape)
    return _finish(line.encode(x=x, y=y, tooltip=tips, **style))


def _steps(figure: Figure, rows: list[Row], every: list[Row]) -> Any:
    """A count that grows: it stays until it changes."""
    return _time(figure, rows, every, "step-after")


def _area(figure: Figure, rows: list[Row], every: list[Row]) -> Any:
    """What each series adds to the sum, one upon the other."""
    rows = _fewer([{**row, "x": row["t"]} for row in rows])
    names = sorted({str(row["series"]) for row in every})
    hues = [_hue(name) for name in names]
    # What shares a colour is the paler, the later it comes.
    shades = [0.85 / (1 + 1.2 * hues[:at].count(hue)) for at, hue in enumerate(hues)]
    here = [name for name in names if any(row["series"] == name for row in rows)]
    legend = alt.Legend(
        title=None, orient="top", columns=3, labelLimit=190, symbolType="square", values=here
    )
    colours = alt.Scale(domain=names, range=[variable(hue) for hue in hues])
    area = alt.Chart(alt.InlineData(values=rows)).mark_area(stroke=variable("paper"))
    return _finish(
        area.encode(
            x=alt.X("x:Q", title="time, s", scale=alt.Scale(nice=False)),
            y=alt.Y("y:Q", title=figure.y, stack="zero"),
            fill=alt.Fill("series:N", legend=legend, scale=colours),
            fillOpacity=alt.FillOpacity(
                "series:N", legend=legend, scale=alt.Scale(domain=names, range=shades)
            ),
        )
    )


def _stack(figure: Figure, rows: list[Row], every: list[Row]) -> Any:
    """Panels above each other, each with its own values, all over the same time."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(str(row["panel"]), []).append({**row, "x": row["t"]})
    begin, end = min(row["t"] for row in rows), max(row["t"] for row in rows)
    scale = alt.Scale(domain=[begin, end], nice=False)
    style, drawn = _style(every, rows), []
    for number, (name, group) in enumerate(groups.items(), 1):
        last = number == len(groups)
        axis = alt.Axis(title="time, s") if last else alt.Axis(title=None, labels=False)
        x = alt.X("x:Q", scale=scale, axis=axis)
        drawn.append(_panel(name, group, x, style))
        # One legend is enough.
        style = {key: channel.copy() for key, channel in style.items()}
        for channel in style.values():
            channel.legend = None
    return _configured(alt.vconcat(*drawn, spacing=8).properties(background="transparent"))


def _panel(name: str, rows: list[Row], x: alt.X, style: dict[str, Any]) -> Any:
    base = alt.Chart(alt.InlineData(values=_fewer(rows)))
    if rows[0]["mark"] == "raster":
        y = alt.Y("series:N", title=None, axis=alt.Axis(labels=False, ticks=False, grid=False))
        ticks = base.mark_tick(thickness=1, height=12).encode(x=x, y=y, color=style["color"])
        series = len({row["series"] for row in rows})
        return ticks.properties(
            width=WIDTH,
            height=16 * series,
            title=alt.Title(
                name, anchor="start", fontSize=12, fontWeight="normal", color=variable("ink")
            ),
        )
    y = alt.Y("y:Q", title=name, axis=alt.Axis(tickCount=4))
    line = base.mark_line(strokeWidth=1.4).encode(x=x, y=y, **style)
    return line.properties(width=WIDTH, height=PANEL)


def _heatmap(figure: Figure, rows: list[Row], every: list[Row]) -> Any:
    """Cells in two hues, for and against, the stronger the further from 0, and their numbers."""
    rows = [{**row, "strength": _strength(row["value"], every)} for row in rows]
    base = alt.Chart(alt.InlineData(values=rows))
    x = alt.X("x:O", title=figure.x, axis=alt.Axis(labelAngle=0, grid=False))
    y = alt.Y("y:O", title=figure.y, sort="descending", axis=alt.Axis(grid=False))
    cells = base.mark_rect(stroke=variable("paper")).encode(
        x=x,
        y=y,
        fill=alt.condition(
            "datum.value >= 0", alt.value(variable("ahead")), alt.value(variable("behind"))
        ),
        fillOpacity=alt.FillOpacity("strength:Q", scale=None, legend=None),
        tooltip=[alt.Tooltip("value:Q", format=",.1f")],
    )
    text = base.mark_text(fontSize=10, color=variable("ink")).encode(
        x=x, y=y, text=alt.Text("value:Q", format=",.3~s" if _large(every) else ",.0f")
    )
    return _finish(alt.layer(cells, text))


def _large(rows: Sequence[Row]) -> bool:
    return any(abs(row["value"]) >= 10_000 for row in rows)


def _strength(value: float, every: Sequence[Row]) -> float:
    most = max((abs(row["value"]) for row in every), default=0) or 1
    return PALE + (0.75 - PALE) * math.sqrt(abs(value) / most)


def tree_chart(tree: Tree) -> Any:
    """Return the drawing of a decision tree: yes goes left, BBR and CUBIC in their colours."""
    places = {node.node: node for node in tree.nodes}
    boxes, links = [], []
    for node in tree.nodes:
        sure = max(node.bbr, node.cubic) / max(node.samples, 1)
        boxes.append(
            {
                "x": node.x,
                "y": -node.depth,
                "lines": [
                    node.question or node.decision,
                    f"{node.samples}: {node.bbr} BBR, {node.cubic} CUBIC",
                ],
                "bbr": node.decision == "BBR",
                "sure": PALE + 0.7 * (2 * sure - 1),
            }
        )
        for child, answer in ((node.left, "yes"), (node.right, "no")):
            if child >= 0:
                end = places[child]
                links.append(
                    {"x": node.x, "y": -node.depth, "x2": end.x, "y2": -end.depth, "answer": answer}
                )
                links[-1] |= {"mx": (node.x + end.x) / 2, "my": -(node.depth + end.depth) / 2}
    leaves = sum(node.left < 0 for node in tree.nodes)
    deepest = max(node.depth for node in tree.nodes)
    across = alt.Scale(domain=[-0.6, leaves - 0.4], nice=False, zero=False)
    down = alt.Scale(domain=[-deepest - 0.35, 0.35], nice=False, zero=False)
    x = alt.X("x:Q", axis=None, scale=across)
    y = alt.Y("y:Q", axis=None, scale=down)
    lines = alt.Chart(alt.InlineData(values=links)).mark_rule(
        color=variable("grid"), strokeWidth=1.5
    )
    box = alt.Chart(alt.InlineData(values=boxes))
    size: dict[str, Any] = {"width": 148, "height": 36, "cornerRadius": 4}
    paper = box.mark_rect(fill=variable("paper"), fillOpacity=1, **size).encode(x=x, y=y)
    filled = box.mark_rect(stroke=variable("soft"), **size).encode(
        x=x,
        y=y,
        fill=alt.condition(
            "datum.bbr", alt.value(variable("ahead")), alt.value(variable("behind"))
        ),
        fillOpacity=alt.FillOpacity("sure:Q", scale=None, legend=None),
    )
    text = box.mark_text(fontSize=10.5, color=variable("ink"), lineHeight=14, baseline="middle")
    layers = [
        lines.encode(x=x, y=y, x2="x2:Q", y2="y2:Q"),
        alt.Chart(alt.InlineData(values=links))
        .mark_text(fontSize=10, color=variable("soft"), dx=10)
        .encode(
            x=alt.X("mx:Q", axis=None, scale=across),
            y=alt.Y("my:Q", axis=None, scale=down),
            text="answer:N",
        ),
        paper,
        filled,
        text.encode(x=x, y=y, text="lines:N", yOffset=alt.value(-7)),
    ]
    width, height = max(420, 160 * leaves), 84 * (deepest + 1)
    return _finish(alt.layer(*layers), width, height)


BUILDERS: dict[str, Callable[[Figure, list[Row], list[Row]], Any]] = {
    "lines": _lines,
    "time": _time,
    "steps": _steps,
    "area": _area,
    "stack": _stack,
    "heatmap": _heatmap,
}


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _finite(rows: list[Row], scale: str) -> list[Row]:
    """Keep what can be drawn: numbers, and, on a logarithmic axis, those above 0."""
    return [
        row
        for row in rows
        if _number(row["x"]) and _number(row["y"]) and (scale != "log" or row["x"] > 0)
    ]


def _fewer(rows: list[Row]) -> list[Row]:
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


def _hue(series: str) -> str:
    """Return the name of the colour of a series: that of the first that it names."""
    if series in LINES:
        return "capacity"
    # A quantity of a flow, in the colour that it has in every report.
    if (last := series.split()[-1:]) and last[0] in QUANTITIES:
        return last[0]
    words = re.findall(r"[a-z][a-z0-9_]*", series)
    return next((word for word in words if word in HUES), "other")


def _style(every: Sequence[Row], rows: Sequence[Row]) -> dict[str, Any]:
    """Colour by congestion control; what shares a colour differs in dash.

    The legend tells what `rows` have; `every` decides, so that all charts of a figure agree.
    """
    names = sorted({str(row["series"]) for row in every})[:MOST_SERIES]
    here = {str(row["series"]) for row in rows}
    hues = [_hue(name) for name in names]
    dashes = [
        LINES.get(name) or DASHES[hues[:index].count(hues[index]) % 6]
        for index, name in enumerate(names)
    ]
    legend = None
    if len(names) > 1:
        legend = alt.Legend(
            title=None,
            orient="top",
            columns=3,
            labelLimit=190,
            symbolType="stroke",
            symbolSize=400,
            values=[name for name in names if name in here],
        )
    return {
        "color": alt.Color(
            "series:N",
            legend=legend,
            scale=alt.Scale(domain=names, range=[variable(hue) for hue in hues]),
        ),
        "strokeDash": alt.StrokeDash(
            "series:N", legend=legend, scale=alt.Scale(domain=names, range=dashes)
        ),
    }


def _finish(chart: Any, width: int = WIDTH, height: int = HEIGHT) -> Any:
    return _configured(chart.properties(width=width, height=height, background="transparent"))


def _configured(chart: Any) -> Any:
    return (
        chart.configure_view(stroke=variable("grid"), fill=None)
        .configure_axis(
            **AXIS,
            labelFontSize=12,
            titleFontSize=12,
        )
        .configure_legend(labelColor=variable("ink"), labelFontSize=12, symbolStrokeWidth=2)
    )


def compiled(chart: Any) -> dict[str, Any]:
    """Return a chart as a Vega specification."""
    import vl_convert

    spec: dict[str, Any] = vl_convert.vegalite_to_vega(chart.to_dict())
    spec.pop("$schema", None)
    return spec


def picture(chart: Any, kind: str) -> bytes:
    """Return a chart as a file of its own, svg or png, in the colours of the light theme."""
    import vl_convert

    colours = {variable(name): pair[0] for name, pair in palette.COLOURS.items()}
    text = json.dumps(chart.to_dict())
    spec = json.loads(re.sub(r"var\(--\w+\)", lambda found: colours[found[0]], text))
    spec["background"] = palette.COLOURS["paper"][0]
    if kind == "svg":
        svg: str = vl_convert.vegalite_to_svg(spec)
        return svg.encode()
    png: bytes = vl_convert.vegalite_to_png(spec, scale=2)
    return png
