"""Fewer points, same picture: drop what says nothing, then keep each column's extremes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# TCP_RTO_MIN. While data flows, two ACKs are closer together, unless the round trip is longer.
SILENCE_US = 200_000


@dataclass(frozen=True)
class Points:
    """A signal: times and values, both int64, in order of time; `recorded` points before thinning.

    `exact` says that nothing a chart could show was left out. `down` is how far below the value a
    range reaches; None: not a range.
    """

    t: Array
    v: Array
    recorded: int
    exact: bool
    down: Array | None = None


def thin(t: Array, v: Array, columns: int, window: tuple[int, int] | None, keep: bool) -> Points:
    """Thin a signal.

    Points between two of the same value go first: a line or step through them looks the same. If
    more than four per column are left, each of `columns` equal spans of time keeps its first, last,
    smallest and largest (M4 of Jugel et al., VLDB 2014: what a line chart of that width shows).

    Args:
        t: times, not decreasing.
        v: values.
        columns: spans of time.
        window: (from, to) in the unit of `t` that keeps every point.
        keep: never go beyond the first step; for bounds, of which every change matters.
    """
    recorded = len(t)
    telling = _changes(v)
    t, v = t[telling], v[telling]
    if keep or len(t) <= 4 * columns:
        return Points(t, v, recorded, True)
    chosen = _extremes(t, v, columns)
    if window is not None:
        chosen |= (t >= window[0]) & (t <= window[1])
    return Points(t[chosen], v[chosen], recorded, bool(chosen.all()))


def spaced(t: Array, v: Array, rtt_us: Array, unset: int) -> tuple[Array, Array]:
    """Put `unset` values where nothing was measured for long: no line is drawn across it.

    There is one at either end of it, so that no time in it has a value.

    Args:
        t: times in us, not decreasing.
        v: values.
        rtt_us: the round trip at each time, in us.
        unset: what says that there is no value.
    """
    silent = np.diff(t) > np.maximum(SILENCE_US, 2 * np.minimum(rtt_us[:-1], rtt_us[1:]))
    places = np.flatnonzero(silent) + 1
    ends = np.stack((t[places - 1] + 1, t[places] - 1), axis=1).ravel()
    return np.insert(t, places.repeat(2), ends), np.insert(v, places.repeat(2), unset)


def tallest(t: Array, v: Array, columns: int, window: tuple[int, int] | None) -> Points:
    """Thin events that stand for themselves: of more than four per column, keep the largest."""
    if len(t) <= 4 * columns:
        return Points(t, v, len(t), True)
    chosen = np.zeros(len(t), bool)
    starts = _column_starts(t, 4 * columns)
    chosen[_first_equal(v, np.maximum.reduceat(v, starts), starts)] = True
    if window is not None:
        chosen |= (t >= window[0]) & (t <= window[1])
    return Points(t[chosen], v[chosen], len(t), bool(chosen.all()))


def outline(
    t: Array, v: Array, down: Array, columns: int, window: tuple[int, int] | None
) -> Points:
    """Thin ranges: of more than four per column, keep the first, last, lowest and highest."""
    if len(t) <= 4 * columns:
        return Points(t, v, len(t), True, down)
    chosen = _extremes(t, v, columns)
    if window is not None:
        chosen |= (t >= window[0]) & (t <= window[1])
    return Points(t[chosen], v[chosen], len(t), bool(chosen.all()), down[chosen])


def _changes(v: Array) -> Array:
    """Mask of points that differ from a neighbour, and the two ends."""
    mask = np.ones(len(v), bool)
    if len(v) > 2:
        same = v[1:] == v[:-1]
        mask[1:-1] = ~(same[:-1] & same[1:])
    return mask


def _extremes(t: Array, v: Array, columns: int) -> Array:
    starts = _column_starts(t, columns)
    mask = np.zeros(len(t), bool)
    mask[starts] = True
    mask[np.append(starts[1:], len(t)) - 1] = True
    for most in (np.minimum, np.maximum):
        mask[_first_equal(v, most.reduceat(v, starts), starts)] = True
    return mask


def _column_starts(t: Array, columns: int) -> Array:
    """Index of the first point in each span of time that has any; times do not decrease."""
    span = max(int(t[-1] - t[0]), 1)
    return np.flatnonzero(np.diff((t - t[0]) * columns // (span + 1), prepend=-1))


def _first_equal(v: Array, wanted: Array, starts: Array) -> Array:
    """Index of the first point of each column that has the value wanted of it."""
    sizes = np.diff(starts, append=len(v))
    chosen = np.flatnonzero(v == np.repeat(wanted, sizes))
    column = np.searchsorted(starts, chosen, side="right")
    return chosen[np.flatnonzero(np.diff(column, prepend=0))]
