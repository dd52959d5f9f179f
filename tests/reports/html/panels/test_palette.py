"""Whatever a reader's colour vision, two limits of sending in one lane look different."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from bbrscope.analyze.views.events.binding_views import BINDINGS
from bbrscope.reports.html.panels.palette import COLOURS

Matrix = npt.NDArray[np.float64]

# Linear RGB as people without one kind of cones see it: Machado, Oliveira and Fernandes (2009), at
# full severity.
VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
# Linear RGB to OKLab, in which equal distances look equally far (Ottosson 2020).
LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
# The palette before this was checked had pairs 0.006 apart, which look the same.
LEAST = 0.07


def seen(colour: str, vision: Matrix) -> Matrix:
    """Return a colour #rrggbb in OKLab, as it is seen."""
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    lab: Matrix = LAB @ np.cbrt(LMS @ np.clip(vision @ linear, 0, None))
    return lab


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("dark", [False, True])
def test_limits_of_sending_are_told_apart(vision: str, dark: bool) -> None:
    colours = {name: seen(COLOURS[name][dark], VISIONS[vision]) for name in BINDINGS}
    apart = {
        (a, b): float(np.linalg.norm(colours[a] - colours[b])) for a, b in combinations(colours, 2)
    }
    nearest = min(apart, key=lambda pair: apart[pair])
    assert apart[nearest] >= LEAST, nearest
