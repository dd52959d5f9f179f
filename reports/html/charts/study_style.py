"""How the charts of a study look: colour and dash of each series, legend, axes, size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

import altair as alt
from altair.typing import ChartType

from ..panels.palette import AXIS, variable

WIDTH, HEIGHT = 430, 250
MOST_SERIES = 24
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 3], [4, 2, 1, 2])
# What is no flow's: dashed, dotted.
LINES = {"capacity": [5, 3], "fair share": [1, 3]}
PALE = 0.06
QUANTITIES = ("inflight", "cwnd", "inflight_hi", "inflight_lo")
HUES = ("v1", "v2", "v3", "bbr", "cubic", "reno", "vegas", "model", "capacity", "backlog")


class Channels(TypedDict):
    """What tells the series of a chart apart: `encode` takes it as keywords."""

    color: alt.Color
    strokeDash: alt.StrokeDash


def hue(series: str) -> str:
    """Return the name of the colour of a series.

    That of the quantity that its name ends in, or else of the first of `HUES` in its name.
    """
    if series in LINES:
        return "capacity"
    # A quantity of a flow, in the colour that it has in every report.
    if (last := series.split()[-1:]) and last[0] in QUANTITIES:
        return last[0]
    words = re.findall(r"[a-z][a-z0-9_]*", series)
    return next((word for word in words if word in HUES), "other")


def channels(
    every: Sequence[Mapping[str, object]],
    rows: Sequence[Mapping[str, object]],
    with_legend: bool = True,
) -> Channels:
    """Colour by congestion control; what shares a colour differs in dash.

    Args:
        every: rows of all charts of the figure, so that all have the same colours and dashes.
        rows: those of this chart; its legend lists their series only.
        with_legend: draw the legend.
    """
    names = sorted({str(row["series"]) for row in every})[:MOST_SERIES]
    here = {str(row["series"]) for row in rows}
    hues = [hue(name) for name in names]
    legend = None
    if with_legend and len(names) > 1:
        legend = series_legend([name for name in names if name in here], "stroke")
    return {
        "color": alt.Color(
            "series:N",
            legend=legend,
            scale=alt.Scale(domain=names, range=[variable(name) for name in hues]),
        ),
        "strokeDash": alt.StrokeDash(
            "series:N", legend=legend, scale=alt.Scale(domain=names, range=_dashes(names, hues))
        ),
    }


def _dashes(names: Sequence[str], hues: Sequence[str]) -> list[list[int]]:
    """Lengths of dash and space of each series: its own among those of the same colour."""
    return [
        LINES.get(name) or DASHES[hues[:index].count(hues[index]) % len(DASHES)]
        for index, name in enumerate(names)
    ]


def series_legend(names: Sequence[str], symbol: Literal["stroke", "square"]) -> alt.Legend:
    """Return a legend above the chart, three names in a row."""
    return alt.Legend(
        title=None,
        orient="top",
        columns=3,
        labelLimit=190,
        symbolType=symbol,
        # Strokes so long that their dashes are seen.
        symbolSize=400 if symbol == "stroke" else alt.Undefined,
        values=list(names),
    )


def finished(chart: ChartType, width: int = WIDTH, height: int = HEIGHT) -> ChartType:
    """Return a chart of that size [pixels] with the axes and legend of all."""
    sized: ChartType = chart.properties(width=width, height=height, background="transparent")
    return configured(sized)


def configured(chart: ChartType) -> ChartType:
    """Return a chart with the axes and legend of all, in the size that it has."""
    with_theme: ChartType = (
        chart.configure_view(stroke=variable("grid"), fill=None)
        .configure_axis(
            **AXIS,
            labelFontSize=12,
            titleFontSize=12,
            titleLimit=WIDTH,  # a name of a scenario's own parameter may be any length
        )
        .configure_legend(labelColor=variable("ink"), labelFontSize=12, symbolStrokeWidth=2)
    )
    return with_theme
