"""Distributions as charts: cumulative shares as lines, and boxes with whiskers, a line or box each.

Both are drawn up to `DRAWN`: the last samples of a long tail would leave no room for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

from ..data.distributions import PROBABILITIES, Distribution, Distributions
from ..panels.palette import variable
from . import panel_charts as charts

# The largest share that a line is drawn to.
DRAWN = 0.995
CDF_HEIGHT, BOX_HEIGHT = 240, 40
BOX_RANKS = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BOX_COLUMNS = tuple(f"p{round(100 * rank)}" for rank in BOX_RANKS)
BOX_ABOUT = "box: the middle half, with the median; whiskers: 5 % to 95 %; point: 99 %"
_PADDING = {**charts.PADDING, "bottom": 40}
_BOX_PADDING = {**_PADDING, "left": 14}

Row = dict[str, object]


@dataclass(frozen=True)
class Line:
    """A distribution under its name on the chart, with its colour (see palette.py) and dash."""

    name: str
    colour: str
    dash: tuple[int, ...]
    of: Distribution


def cdf_chart(shown: Distributions, lines: Sequence[Line]) -> alt.LayerChart:
    """Return the cumulative distribution of each flow."""
    values = [
        {"v": value, "p": 100 * share, "s": line.name}
        for line in lines
        for share, value in zip(PROBABILITIES.tolist(), line.of.values.tolist(), strict=True)
        if share <= DRAWN
    ]
    names = [line.name for line in lines]
    layer = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(clip=True, strokeWidth=1.8, strokeJoin="round")
        .encode(
            x=_values(shown.title, shown.from_zero),
            y=alt.Y(
                "p:Q",
                scale=alt.Scale(domain=[0, 100], nice=False),
                axis=alt.Axis(title=f"share {shown.quantity.about}, %", titleX=-50, tickCount=5),
            ),
            order=alt.Order("p:Q"),
            stroke=alt.Stroke(
                "s:N",
                legend=None,
                sort=None,
                scale=alt.Scale(domain=names, range=[variable(line.colour) for line in lines]),
            ),
            strokeDash=alt.StrokeDash(
                "s:N",
                legend=None,
                sort=None,
                scale=alt.Scale(domain=names, range=[list(line.dash) or [1, 0] for line in lines]),
            ),
        )
    )
    return charts.finish(alt.layer(layer), CDF_HEIGHT, _PADDING)


def box_rows(lines: Sequence[Line]) -> list[Row]:
    """Return a row per flow: `s`, its name, and its quantiles at `BOX_RANKS` as `BOX_COLUMNS`."""
    places = [int(np.argmin(np.abs(PROBABILITIES - rank))) for rank in BOX_RANKS]
    return [
        {"s": line.name}
        | {
            column: float(line.of.values[place])
            for column, place in zip(BOX_COLUMNS, places, strict=True)
        }
        for line in lines
    ]


def box_chart(title: str, lines: Sequence[Line], zero: bool) -> alt.LayerChart:
    """Return a box with whiskers for each flow, one below the other, under their names.

    Args:
        title: of the axis of values.
        zero: it begins at zero.
    """
    base = alt.Chart(alt.InlineData(values=box_rows(lines)))
    names = [line.name for line in lines]
    scale = alt.Scale(domain=names, range=[variable(line.colour) for line in lines])
    y = alt.Y("s:N", sort=None, axis=None, scale=alt.Scale(domain=names, paddingInner=0))

    def x(field: str) -> alt.X:
        return _values(title, zero, field)

    stroke = alt.Stroke("s:N", legend=None, sort=None, scale=scale)
    fill = alt.Fill("s:N", legend=None, sort=None, scale=scale)
    whisker = base.mark_rule(strokeWidth=1.4, yOffset=7)
    box = base.mark_bar(height=14, fillOpacity=0.45, strokeWidth=1.2, yOffset=7)
    median = base.mark_tick(height=14, size=14, thickness=2.4, color=variable("ink"), yOffset=7)
    beyond = base.mark_point(size=26, filled=True, yOffset=7)
    label = base.mark_text(align="left", dx=4, dy=-9, color=variable("ink"), limit=330)
    return charts.finish(
        alt.layer(
            whisker.encode(x=x("p5"), x2="p25:Q", y=y, stroke=stroke),
            whisker.encode(x=x("p75"), x2="p95:Q", y=y, stroke=stroke),
            box.encode(x=x("p25"), x2="p75:Q", y=y, fill=fill, stroke=stroke),
            median.encode(x=x("p50"), y=y),
            beyond.encode(x=x("p99"), y=y, fill=fill),
            label.encode(x=alt.value(0), y=y, text="s:N"),
        ),
        BOX_HEIGHT * len(lines),
        _BOX_PADDING,
    )


def _values(title: str, zero: bool, field: str = "v") -> alt.X:
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(zero=zero, nice=True),
        axis=alt.Axis(title=title, format="~f", tickCount=charts.TICKS, grid=True),
    )
