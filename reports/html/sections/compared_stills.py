"""What of several runs stands together without an axis of time: a point, line or box per flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....analyze.compare import groups as compare
from ....analyze.compare.run_metrics import scoped
from ....probes.base.plurals import plural
from ..charts import vega
from ..charts.beside import HEIGHT, ScatterRow
from ..charts.distribution_charts import (
    BOX_ABOUT,
    BOX_HEIGHT,
    CDF_HEIGHT,
    Line,
    box_chart,
    cdf_chart,
)
from ..charts.panel_charts import scatter_chart
from ..data import distributions
from ..data.distributions import Distributions
from ..data.sender_name import sender_name
from ..data.shares import COLOURS, DASHES, MOST, swatch

if TYPE_CHECKING:
    import altair
    import duckdb

# More runs than this are in the tables, but not drawn.
MOST_DRAWN = 12
# Pixels below a plot, for its axis.
_AXIS = 48


@dataclass(frozen=True)
class Still:
    """A chart of the page that does not move with its window of time.

    Attributes:
        key: names its specification in the data of the page.
        height: of the chart with its axis, in pixels.
        lines: what its legend lists.
    """

    key: str
    title: str
    about: str
    label: str
    height: int
    lines: Sequence[Line] = ()


def stills(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], names: Sequence[str]
) -> tuple[list[Still], dict[str, Any]]:
    """Return the charts of runs that have something to draw, and their compiled specifications."""
    made = [_scatter(con, run_ids, names)]
    drawn, runs = run_ids[:MOST_DRAWN], dict(zip(run_ids, names, strict=True))
    made += [_distribution(con, key, drawn, runs) for key in distributions.QUANTITIES]
    found = [one for one in made if one is not None]
    return [still for still, _ in found], {still.key: vega.compiled(made) for still, made in found}


def _scatter(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], names: Sequence[str]
) -> tuple[Still, altair.LayerChart] | None:
    rows = scatter_rows(con, run_ids, names)
    if not rows:
        return None
    still = Still(
        "scatter",
        "Goodput against RTT",
        "one point per flow; the best place is at the top left",
        f"Goodput against median RTT of {plural(len(rows), 'flow')}; the numbers are in the table",
        HEIGHT + _AXIS,
    )
    return still, scatter_chart(rows)


def _distribution(
    con: duckdb.DuckDBPyConnection, key: str, run_ids: Sequence[int], runs: dict[int, str]
) -> tuple[Still, altair.LayerChart] | None:
    """A line per flow of the RTT, as long as they can be told apart; else boxes."""
    data = distributions.load(con, key, run_ids)
    lines = lines_of(data, runs)
    if not lines:
        return None
    title = f"{data.quantity.title} of every flow"
    if key == "rtt" and len(lines) <= MOST:
        about = f"share {data.quantity.about} up to each value"
        still = Still(key, title, about, f"{title}: {about}", CDF_HEIGHT + _AXIS, lines)
        return still, cdf_chart(data, lines)
    still = Still(key, title, BOX_ABOUT, f"{title}: {BOX_ABOUT}", BOX_HEIGHT * len(lines) + _AXIS)
    return still, box_chart(data.title, lines, data.from_zero)


def lines_of(shown: Distributions, runs: dict[int, str]) -> list[Line]:
    """Name and colour each distribution: by its flow in one run, by its run among several.

    Args:
        runs: names by run_id, in the order of the page.
    """
    lines: list[Line] = []
    for hue, (run_id, run) in enumerate(runs.items()):
        of_run = [one for one in shown.flows if one.run_id == run_id]
        for place, one in enumerate(of_run):
            if len(runs) == 1:
                name, colour, dash = one.name, swatch(place), place // COLOURS
            else:
                name = f"{run}, {one.name}" if len(of_run) > 1 else run
                colour = swatch(hue)
                # Of more runs than colours some share one: lines of it differ in dash.
                dash = sum(line.colour == colour for line in lines)
            lines.append(Line(name, colour, DASHES[dash % len(DASHES)], one))
    return lines


def scatter_rows(
    con: duckdb.DuckDBPyConnection, run_ids: Sequence[int], names: Sequence[str]
) -> list[ScatterRow]:
    """Return a row per flow that counts: median RTT [ms], goodput [Mbit/s], colour and name."""
    found = con.execute(scoped(con, compare.FLOWS, run_ids)).fetchall()
    place = {run_id: number for number, run_id in enumerate(run_ids)}
    several = len(found) > len(run_ids)
    return [
        {
            "rtt": rtt / 1e3,
            "goodput": goodput,
            "c": swatch(place[run_id]),
            "label": names[place[run_id]] + (f", {sender_name(flow, stream)}" if several else ""),
        }
        for run_id, flow, stream, goodput, rtt in found
        if rtt is not None and goodput is not None
    ]
