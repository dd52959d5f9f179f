"""The charts of a what-if: one quantity each, recorded and simulated under own and other rules."""

from __future__ import annotations

from dataclasses import dataclass

from .signals import Panel, Signal


@dataclass(frozen=True)
class CourseQuantity:
    """What one chart shows: its name in analyze/simulate/course_steps.py, and how it is drawn.

    The page holds whole numbers: `per_value` of them are one of the course's unit, and `scale`
    turns one into the unit that is shown. `mid_step`: an amount or mean of each step, and not what
    held when it ended. `alone`: with a chart of its own, in which there is room for bands.
    """

    name: str
    title: str
    unit: str
    about: str
    scale: float = 1e-3
    per_value: int = 1
    mid_step: bool = False
    alone: bool = True
    height: int = 150
    dash: tuple[int, ...] = ()


def _packets(
    name: str,
    title: str,
    about: str,
    *,
    mid_step: bool = False,
    alone: bool = True,
    height: int = 150,
    dash: tuple[int, ...] = (),
) -> CourseQuantity:
    """A quantity in packets, to a tenth."""
    return CourseQuantity(name, title, "packets", about, 0.1, 10, mid_step, alone, height, dash)


TOGETHER = (
    CourseQuantity(
        "rate_kbps", "Rate delivered", "Mbit/s", "payload delivered, flows with BBR", mid_step=True
    ),
    CourseQuantity(
        "rtt_us", "Round-trip time", "ms", "median of each step, flows with BBR", mid_step=True
    ),
    _packets("lost", "Packets lost so far", "marked lost, flows with BBR", height=110),
)
INFLIGHT = _packets("inflight", "Data in flight", "mean of each step", mid_step=True, height=170)
BOUNDS = (
    _packets("inflight_hi", "inflight_hi", "the long-term bound", alone=False),
    _packets("inflight_lo", "inflight_lo", "the short-term bound", alone=False, dash=(2, 3)),
)
WINDOW = _packets("cwnd", "Congestion window", "snd_cwnd", height=110)
# Who: in the page's words, and the colour's name.
SOURCES = {"recorded": "recorded", "own": "own_rules", "other": "other_rules"}
AREA = "band"


def with_bands(quantity: CourseQuantity, rules: str) -> Panel:
    """The chart of one quantity: recorded, and two medians within their bands."""
    signals = []
    for source in ("own", "other"):
        who = _who(source, rules)
        signals.append(
            Signal(
                f"{quantity.name}-{source}-{AREA}",
                f"{who}, 5 to 95 %",
                f"{quantity.about}: 5 to 95 % of the seeds",
                "",
                quantity.scale,
                "area",
                colour=SOURCES[source],
                width=5.0,
            )
        )
    lines = [line(quantity, source, rules) for source in SOURCES]
    return Panel(
        quantity.name, quantity.title, quantity.unit, (*signals, *lines), height=quantity.height
    )


def bounds_panel(rules: str) -> Panel:
    """Both bounds on data in flight in one chart, without bands: they would hide each other."""
    lines = [line(bound, source, rules) for bound in BOUNDS for source in SOURCES]
    return Panel("bounds", "Bounds on data in flight", "packets", tuple(lines), height=150)


def line(quantity: CourseQuantity, source: str, rules: str) -> Signal:
    """The recorded line, or the median over the seeds."""
    named = "" if quantity.alone else f"{quantity.name}, "
    middle = "" if source == "recorded" else ", median"
    return Signal(
        f"{quantity.name}-{source}",
        f"{named}{_who(source, rules)}{middle}",
        quantity.about,
        "",
        quantity.scale,
        "line",
        colour=SOURCES[source],
        dash=quantity.dash,
        width=1.6 if source == "recorded" else 1.9,
    )


def _who(source: str, rules: str) -> str:
    return {"recorded": "recorded", "own": "own rules"}.get(source, rules)
