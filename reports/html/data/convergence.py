"""When the flows of a run came to equal shares, as a chart: each flow's goodput over an equal part.

The rule is that of the column converged_s (see analyze/views/runs/run_views.py). Its windows of
10 s and 30 s are longer than many runs: the chart halves both until they fit, and says so in its
title.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ....analyze.compare.run_metrics import convergence, scoped
from ....analyze.views.runs.run_views import HOLD_S, TOLERANCE, WINDOW_S, equal_parts_sql
from ....collect.store.query import rows
from ..panels.signals import Panel, Signal
from .select import UNSET, Run
from .sender_name import sender_name
from .shares import MOST, one_of
from .thin import Points, thin

if TYPE_CHECKING:
    import duckdb

KEY = "convergence"
CONVERGENCE = Panel(KEY, "Time to converge", "of an equal part", (), height=130)
# Parts are drawn in steps of this.
_STEP = 1e-4
# us
_SECOND = 1_000_000
_BOUNDS = (("part_low", 1 - TOLERANCE), ("part_high", 1 + TOLERANCE))


@dataclass(frozen=True)
class Convergence:
    """The chart of a run: a panel whose title has the answer, and its points.

    Attributes:
        window_s, hold_s: goodput is a mean over the one, and equal for the other.
        converged_s: second of the run's clock; None: not by this rule.
    """

    window_s: int
    hold_s: int
    converged_s: int | None
    panel: Panel
    points: dict[str, Points]


@dataclass(frozen=True)
class _PartLine:
    """A flow's parts by the second, None: no flow carried anything."""

    name: str
    parts: list[tuple[int, float | None]]


def load(con: duckdb.DuckDBPyConnection, run: Run) -> Convergence | None:
    """Return the chart of a run; None: no two flows were active at once for long enough."""
    run_id = int(run.row["run_id"])
    windows = rows(con, scoped(con, "FROM comparison_windows ORDER BY way", [run_id]))
    if not windows:
        return None
    window_s, hold_s = fitting(windows[0]["last_s"] - windows[0]["first_s"] + 1)
    lines = _lines(con, run_id, window_s)
    if len(lines) < 2:
        return None
    when = convergence(con, [run_id], TOLERANCE, window_s, hold_s)[run_id]
    signals, points = _drawn(lines, run, when)
    together_s = int(windows[0]["first_s"])
    panel = _titled(CONVERGENCE.of(signals), window_s, hold_s, when, together_s)
    return Convergence(window_s, hold_s, when, panel, points)


def fitting(seconds: int) -> tuple[int, int]:
    """Return the lengths of the mean and of the hold [s] for flows that shared so many seconds.

    >>> fitting(100), fitting(60), fitting(20), fitting(1)
    ((10, 30), (10, 30), (2, 7), (1, 1))
    """
    window, hold = WINDOW_S, HOLD_S
    # Two thirds of the time: so much of it may pass before the shares are equal.
    while 3 * (window + hold) > 2 * seconds and hold > 1:
        window, hold = max(1, window // 2), max(1, hold // 2)
    return window, hold


def _titled(panel: Panel, window_s: int, hold_s: int, when: int | None, together_s: int) -> Panel:
    answer = "not converged" if when is None else f"at {when} s"
    if when is not None and when > together_s > 0:
        answer += f", {when - together_s} s after all had begun"
    rule = f"mean over the next {window_s} s within {TOLERANCE:.0%} of equal for {hold_s} s"
    return replace(panel, title=f"{panel.title}: {answer} ({rule.replace('%', ' %')})")


def _lines(con: duckdb.DuckDBPyConnection, run_id: int, window_s: int) -> list[_PartLine]:
    """Each flow's parts, in the order in which they began, while two or more were active."""
    query = f"""
SELECT c.flow, c.stream, p.t_s, p.part, count(*) OVER (PARTITION BY p.t_s) AS flows
FROM ({equal_parts_sql(window_s)}) p JOIN senders c ON c.run_id = p.run_id
  AND c.flow IS NOT DISTINCT FROM p.flow AND c.stream IS NOT DISTINCT FROM p.stream
ORDER BY c.first_ns, c.flow, c.stream, p.t_s"""
    lines: dict[tuple[int | None, int | None], _PartLine] = {}
    for row in rows(con, scoped(con, query, [run_id])):
        flow, stream = row["flow"], row["stream"]
        name = sender_name(flow, stream)
        line = lines.setdefault((flow, stream), _PartLine(name, []))
        if row["flows"] > 1:
            line.parts.append((row["t_s"], row["part"]))
    return [line for line in lines.values() if line.parts]


def _drawn(
    lines: list[_PartLine], run: Run, when: int | None
) -> tuple[tuple[Signal, ...], dict[str, Points]]:
    signals, points = [], {}
    ends = [t for line in lines for t in (line.parts[0][0], line.parts[-1][0])]
    for place, line in enumerate(lines[:MOST]):
        about = "its goodput over an equal part: 1 is equal"
        signal = one_of(place, f"part{place + 1}", line.name, about)
        signals.append(replace(signal, scale=_STEP))
        points[signal.key] = _points(line.parts, run)
    for key, level in _BOUNDS:
        label = f"{'-' if level < 1 else '+'}{TOLERANCE:.0%}".replace("%", " %")
        about = "between these, the shares count as equal"
        signals.append(Signal(key, label, about, "", _STEP, dash=(2, 3), colour="soft", width=1.2))
        points[key] = _points([(second, level) for second in range(min(ends), max(ends) + 1)], run)
    if when is not None:
        about = "from here on shares are equal"
        signals.append(Signal(KEY, "converged", about, "", _STEP, "stem", colour="good"))
        stem = np.array([when * _SECOND]), np.array([round((1 + TOLERANCE) / _STEP)])
        points[KEY] = Points(*stem, 1, True)
    return tuple(signals), points


def _points(parts: Sequence[tuple[int, float | None]], run: Run) -> Points:
    """A step for every second; it ends where the next second has no value."""
    values: dict[int, int] = {}
    for second, part in parts:
        level = UNSET if part is None else round(part / _STEP)
        values |= {second * _SECOND: level, (second + 1) * _SECOND: level}
        values[(second + 1) * _SECOND + 1] = UNSET
        values.pop(second * _SECOND + 1, None)
    t = np.array(sorted(values))
    return thin(t, np.array([values[us] for us in t.tolist()]), run.columns, None, keep=True)
