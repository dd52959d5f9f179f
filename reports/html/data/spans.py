"""What held from when to when: phases, congestion states, what limited sending."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Spans:
    """`a` and `b`, in us since the axis' zero, and the category between them; in order of time.

    `recorded` counts the spans before any were joined.
    """

    a: Array
    b: Array
    category: list[str]
    recorded: int


def spans(starts: Array, category: Array, end: int) -> Spans:
    """Join neighbours of the same category; each lasts until the next one starts."""
    if len(starts) == 0:
        return Spans(starts, starts, [], 0)
    first = np.flatnonzero(np.append(True, category[1:] != category[:-1]))
    a = starts[first]
    b = np.append(a[1:], max(end, int(a[-1])))
    return Spans(a, b, category[first].tolist(), len(a))


def coarse(fine: Spans, cells: int, window: tuple[int, int] | None) -> Spans:
    """Bring spans down to about `cells`, if there are more.

    Runs of spans shorter than a cell become cells, named after what lasted longest in each;
    longer spans, and those in `window`, stay.
    """
    if len(fine.a) <= cells:
        return fine
    names, codes = np.unique(np.array(fine.category), return_inverse=True)
    span = max(int(fine.b[-1] - fine.a[0]), 1)
    width = -(-span // cells)
    short = fine.b - fine.a < width
    if window is not None:
        short &= (fine.b < window[0]) | (fine.a > window[1])
    # A long span, or one in the window, is a group of its own; short ones share their cell's.
    cell = (fine.a - fine.a[0]) // width
    new = ~short | np.append(True, ~short[:-1]) | (np.diff(cell, prepend=-1) != 0)
    group = np.cumsum(new) - 1
    totals = np.zeros((int(group[-1]) + 1, len(names)), np.int64)
    np.add.at(totals, (group, codes), fine.b - fine.a)
    starts = fine.a[np.flatnonzero(new)]
    joined = spans(starts, names[totals.argmax(axis=1)], int(fine.b[-1]))
    return Spans(joined.a, joined.b, joined.category, fine.recorded)
