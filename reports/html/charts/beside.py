"""Names beside the points of a scatter chart, where they do not cover each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

# Pixels of the plot, and of a letter in the page's small type.
WIDTH, HEIGHT = 900, 300
# Width of the plot on a phone. A name that fits there, and covers no other, does so on wider ones.
NARROW = 270
LETTER = 6.2
RADIUS = 6
# How far a name may reach past the plot's right side: the chart's padding is that wide.
PAST = 30
# And past its upper side.
ABOVE = 8


class ScatterRow(TypedDict):
    """A flow in the chart of goodput against RTT: `c` names the colour of its run."""

    rtt: float  # median, ms
    goodput: float  # Mbit/s
    c: str
    label: str


@dataclass(frozen=True)
class Side:
    """Where a name stands beside its point, in pixels."""

    align: Literal["left", "right", "center"]
    dx: int
    dy: int

    def box(self, x: float, y: float, width: float) -> tuple[float, float, float, float]:
        """Left, right, top and bottom of a name of that width beside a point at (x, y)."""
        left = x + self.dx - width * {"left": 0, "center": 0.5, "right": 1}[self.align]
        return left, left + width, y + self.dy - 7, y + self.dy + 7


# In order of preference: right and left of the point, above and below it, and aslant.
_SIDES = (
    *(Side("left", 9, 0), Side("right", -9, 0), Side("center", 0, -15), Side("center", 0, 15)),
    *(Side("left", 4, dy) for dy in (-15, 15)),
    *(Side("right", -4, dy) for dy in (-15, 15)),
    *(Side("center", 0, dy) for dy in (-29, 29, -43, 43)),
)


def sided(rows: list[ScatterRow], wide: int = WIDTH) -> list[tuple[ScatterRow, Side]]:
    """Give each point's name the first side where it is in the chart and covers nothing.

    Both axes begin at zero, and end at a round number. Worked out for a chart `wide` pixels wide,
    and good for wider ones.
    """
    places = _places(rows, wide)
    taken = [(x - RADIUS, x + RADIUS, y - RADIUS, y + RADIUS) for x, y in places]
    chosen = []
    for row, (x, y) in zip(rows, places, strict=True):
        boxes = {side: side.box(x, y, LETTER * len(row["label"])) for side in _SIDES}
        inside = [side for side in _SIDES if _is_inside(boxes[side], wide)]
        free = [side for side in inside if not any(_meet(boxes[side], one) for one in taken)]
        side = next(iter([*free, *inside, *_SIDES]))
        taken.append(boxes[side])
        chosen.append((row, side))
    return chosen


def _places(rows: list[ScatterRow], wide: int) -> list[tuple[float, float]]:
    """Where the points are in the chart, in pixels from the left and from the top."""
    rtt = _end(max(*(row["rtt"] for row in rows), 1e-9))
    goodput = _end(max(*(row["goodput"] for row in rows), 1e-9))
    return [(wide * row["rtt"] / rtt, HEIGHT * (1 - row["goodput"] / goodput)) for row in rows]


def _end(most: float) -> float:
    """Where Vega ends an axis from zero: about ten steps of 1, 2 or 5 times a power of ten."""
    step = most / 10
    power: float = 10 ** math.floor(math.log10(step))
    # As d3-array's tickIncrement() rounds steps.
    of_ten = (10, 5, 2, 1)
    beyond = zip(of_ten, (math.sqrt(50), math.sqrt(10), math.sqrt(2), 0), strict=True)
    step = power * next(times for times, least in beyond if step / power >= least)
    return math.ceil(most / step) * step


def _is_inside(box: tuple[float, ...], wide: int) -> bool:
    left, right, top, bottom = box
    return left > 0 and right < wide + PAST and top > -ABOVE and bottom < HEIGHT


def _meet(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
