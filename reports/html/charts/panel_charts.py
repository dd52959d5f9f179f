"""The Altair charts of the page: one per panel and one for the lanes, all with the same time axis.

Each chart names its data ("bands", "steps" ...); ``static/panels.js`` hands over what the window in
view needs and sets the parameters t0 and t1, the ends of the time axis in seconds.
"""

from __future__ import annotations

import math
from typing import Literal

import altair as alt

from ....analyze.views.phase_names import PHASES
from ..panels.palette import AXIS, colour_of, variable
from ..panels.signals import Panel, Signal
from .beside import HEIGHT, NARROW, PAST, WIDTH, ScatterRow, sided

# Pixels around a plot; static/panels.js knows left and right, too.
PADDING = {"left": 62, "right": 14, "top": 8, "bottom": 22}
# Most flows cruise most of the time: those bands must not drown the others.
BAND_OPACITY, QUIET_OPACITY = 0.22, 0.05
# A lossy recording has thousands of gaps: lines between them must be seen.
GAP_OPACITY = 0.16
# Two bands that overlap are still told apart.
AREA_OPACITY = 0.25
QUIET = ["PROBE_BW_CRUISE", "PROBE_BW_1.0"]
LANE_HEIGHT = 22
# As many names of values as a chart of any width has room for.
TICKS = alt.ExprRef("max(2, ceil(width / 90))")


def panel_chart(panel: Panel, signals: list[Signal]) -> alt.LayerChart:
    """Return a panel's chart: phases behind, gaps as grey bands, then the signals."""
    layers = [_bands(), _gaps()]
    for shape, layer in (
        ("area", _areas),
        ("line", _lines),
        ("step", _lines),
        ("stem", _stems),
        ("range", _ranges),
    ):
        chosen = [signal for signal in signals if signal.shape == shape]
        if chosen:
            layers.append(layer(panel, chosen, shape))
    return finish(alt.layer(*layers), panel.height)


def lanes_chart(lanes: list[str], categories: list[str]) -> alt.LayerChart:
    """Return the lanes: what held when, one row per lane, named where there is room."""
    base = alt.Chart(alt.NamedData("lanes"))
    y = alt.Y(
        "lane:N",
        sort=None,
        scale=alt.Scale(domain=lanes, paddingInner=0.18, paddingOuter=0.05),
        axis=alt.Axis(title=None, ticks=False, domain=False, grid=False, labelLimit=58),
    )
    rects = base.mark_rect(clip=True).encode(
        x=_time("a"),
        x2="b:Q",
        y=y,
        fill=alt.Fill(
            "c:N",
            legend=None,
            scale=alt.Scale(domain=categories, range=[colour_of(name) for name in categories]),
        ),
    )
    # Black or white on every lane colour would fail one theme: a halo of paper serves both.
    halo = _label().mark_text(
        clip=True, baseline="middle", stroke=variable("paper"), strokeWidth=3, strokeOpacity=0.75
    )
    ink = _label().mark_text(clip=True, baseline="middle", color=variable("ink"))
    named = [mark.encode(x=_time("m"), y=y, text="label:N") for mark in (halo, ink)]
    return finish(alt.layer(rects, *named), LANE_HEIGHT * len(lanes))


def scatter_chart(rows: list[ScatterRow]) -> alt.LayerChart:
    """Return goodput against RTT: one point per flow, in its run's colour, with its name."""
    x = alt.X(
        "rtt:Q",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(title="median RTT, ms", format="~f", tickCount=TICKS),
    )
    y = alt.Y(
        "goodput:Q",
        scale=alt.Scale(zero=True, nice=True),
        axis=alt.Axis(title="goodput, Mbit/s", titleX=-50, format="~f", tickCount=6),
    )
    base = alt.Chart(alt.InlineData(values=rows))
    places = sorted({row["c"] for row in rows})
    points = base.mark_point(filled=True, size=110, opacity=0.85).encode(
        x=x,
        y=y,
        color=alt.Color(
            "c:N",
            legend=None,
            scale=alt.Scale(domain=places, range=[variable(name) for name in places]),
        ),
    )
    labels = []
    for wide, shown in ((WIDTH, f"width >= {WIDTH}"), (NARROW, f"width < {WIDTH}")):
        named = sided(rows, wide)
        labels += [
            alt.Chart(alt.InlineData(values=[row for row, side in named if side == each]))
            .mark_text(
                align=each.align,
                dx=each.dx,
                dy=each.dy,
                color=variable("ink"),
                limit=min(260, wide),
                opacity=alt.ExprRef(f"{shown} ? 1 : 0"),
            )
            .encode(x=x, y=y, text="label:N")
            for each in dict.fromkeys(side for _, side in named)
        ]
    layers = alt.layer(points, *labels)
    return finish(layers, HEIGHT, {**PADDING, "right": PAST, "bottom": 40})


def _label() -> alt.Chart:
    return alt.Chart(alt.NamedData("labels"))


def _time(field: str) -> alt.X:
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(
            domainMin=alt.ExprRef("t0"), domainMax=alt.ExprRef("t1"), nice=False, zero=False
        ),
        axis=alt.Axis(title=None, format="~f", tickCount=TICKS),
    )


def _bands() -> alt.Chart:
    layer: alt.Chart = (
        alt.Chart(alt.NamedData("bands"))
        .mark_rect(clip=True)
        .encode(
            x=_time("a"),
            x2="b:Q",
            opacity=alt.condition(
                alt.FieldOneOfPredicate("c", oneOf=QUIET),
                alt.value(QUIET_OPACITY),
                alt.value(BAND_OPACITY),
            ),
            fill=alt.Fill(
                "c:N",
                legend=None,
                scale=alt.Scale(domain=PHASES, range=[variable(name) for name in PHASES]),
            ),
        )
    )
    return layer


def _gaps() -> alt.Chart:
    layer: alt.Chart = (
        alt.Chart(alt.NamedData("gaps"))
        .mark_rect(
            clip=True,
            fill=variable("gap"),
            fillOpacity=GAP_OPACITY,
            stroke=variable("gap"),
            strokeOpacity=GAP_OPACITY,
        )
        .encode(x=_time("a"), x2="b:Q")
    )
    return layer


def _value(panel: Panel) -> alt.Y:
    return alt.Y(
        "v:Q",
        scale=alt.Scale(domain=list(panel.domain), nice=True)
        if panel.domain
        else alt.Scale(zero=panel.zero, nice=True),
        axis=alt.Axis(
            title=panel.unit,
            titleX=-50,
            tickCount=max(2, math.ceil(panel.height / 42)),
            format="~f",
        ),
    )


def _lines(panel: Panel, signals: list[Signal], shape: str) -> alt.Chart:
    keys = [signal.key for signal in signals]
    interpolate: Literal["step-after", "linear"] = "step-after" if shape == "step" else "linear"
    layer: alt.Chart = (
        alt.Chart(alt.NamedData(f"{shape}s"))
        .mark_line(clip=True, interpolate=interpolate, strokeJoin="round", strokeCap="round")
        .encode(
            x=_time("t"),
            y=_value(panel),
            stroke=_stroke(signals),
            strokeDash=alt.StrokeDash(
                "s:N",
                legend=None,
                scale=alt.Scale(domain=keys, range=[list(s.dash) or [1, 0] for s in signals]),
            ),
            strokeWidth=_widths(signals),
        )
    )
    return layer


def _stems(panel: Panel, signals: list[Signal], _shape: str) -> alt.Chart:
    layer: alt.Chart = (
        alt.Chart(alt.NamedData("stems"))
        .mark_rule(clip=True, strokeWidth=1.6)
        .encode(x=_time("t"), y=_value(panel), y2=alt.datum(0), stroke=_stroke(signals))
    )
    return layer


def _ranges(panel: Panel, signals: list[Signal], _shape: str) -> alt.Chart:
    """Ranges are seen even where they are less than a pixel high: their ends are square."""
    layer: alt.Chart = (
        alt.Chart(alt.NamedData("ranges"))
        .mark_rule(clip=True, strokeCap="square")
        .encode(
            x=_time("t"),
            y=_value(panel),
            y2="b:Q",
            stroke=_stroke(signals),
            strokeWidth=_widths(signals),
        )
    )
    return layer


def _areas(panel: Panel, signals: list[Signal], _shape: str) -> alt.Chart:
    layer: alt.Chart = (
        alt.Chart(alt.NamedData("areas"))
        .mark_area(clip=True, opacity=AREA_OPACITY)
        .encode(
            x=_time("t"),
            y=_value(panel),
            y2="b:Q",
            fill=alt.Fill(
                "s:N",
                legend=None,
                scale=alt.Scale(
                    domain=[s.key for s in signals], range=[variable(s.paint) for s in signals]
                ),
            ),
        )
    )
    return layer


def _widths(signals: list[Signal]) -> alt.StrokeWidth:
    return alt.StrokeWidth(
        "s:N",
        legend=None,
        scale=alt.Scale(
            type="ordinal", domain=[s.key for s in signals], range=[s.width for s in signals]
        ),
    )


def _stroke(signals: list[Signal]) -> alt.Stroke:
    return alt.Stroke(
        "s:N",
        legend=None,
        scale=alt.Scale(
            domain=[s.key for s in signals], range=[variable(s.paint) for s in signals]
        ),
    )


def finish(
    chart: alt.LayerChart | alt.FacetChart, height: int, padding: dict[str, int] = PADDING
) -> alt.LayerChart:
    """Return a chart in the page's colours and type, with its parameters t0 and t1."""
    finished: alt.LayerChart = (
        chart.resolve_scale(
            fill="independent",
            stroke="independent",
            strokeDash="independent",
            strokeWidth="independent",
        )
        .add_params(alt.param(name="t0", value=0), alt.param(name="t1", value=1))
        .properties(
            width=800,
            height=height,
            padding=padding,
            autosize=alt.AutoSizeParams(type="none"),
            background="transparent",
        )
        .configure_view(stroke=variable("grid"), fill=None)
        .configure_axis(
            **AXIS,
            labelFont="inherit",
            titleFont="inherit",
            labelFontSize=11,
            titleFontSize=11,
        )
        .configure_axisX(grid=False, labelFlush=True, labelOverlap=True, labelSeparation=6)
        .configure_text(font="inherit", fontSize=11)
    )
    return finished
