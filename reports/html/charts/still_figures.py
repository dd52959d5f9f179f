"""Figures without an axis of time, in which all flows of all runs stand together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....collect.store.query import run_names
from ....probes.base.errors import BbrscopeError
from ....probes.base.plurals import plural
from ..data import distributions
from ..data.distributions import PROBABILITIES, QUANTITIES, Distributions
from ..data.shares import MOST
from ..sections.compared_stills import lines_of, scatter_rows
from . import panel_charts as charts
from .distribution_charts import BOX_ABOUT, BOX_COLUMNS, Line, box_chart, box_rows, cdf_chart

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]

# How wide a figure is [pixels].
WIDTH = 720
# Name -> what it shows.
NAMES = {"scatter": "Goodput against median RTT of every flow of the runs"}
for _quantity in QUANTITIES.values():
    _what = f"{_quantity.title} of every flow of the runs [{_quantity.unit}]"
    NAMES[f"{_quantity.key}-cdf"] = f"{_what}: cumulative distribution"
    NAMES[f"{_quantity.key}-box"] = f"{_what}: median, middle half, 5 to 95 % and 99 %"


def still_figure(
    con: duckdb.DuckDBPyConnection,
    name: str,
    run_ids: Sequence[int],
    number: int | None,
    between: tuple[float, float] | None,
) -> tuple[Row, list[Row]]:
    """Return the figure `name` of `NAMES` as a Vega-Lite specification, and the rows behind it.

    Args:
        number: this flow of each run only; None: every flow that counts.
        between: seconds of each run's clock; `scatter` is of whole flows.

    Raises:
        BbrscopeError: there is nothing to draw.
    """
    names = run_names(con)
    runs = {run_id: names[run_id] for run_id in run_ids}
    if name == "scatter":
        points = scatter_rows(con, list(runs), list(runs.values()))
        if not points:
            raise BbrscopeError("no flow of these runs has goodput and RTT", "choose other runs")
        rows = [
            {"name": row["label"], "rtt_p50_ms": row["rtt"], "goodput_mbps": row["goodput"]}
            for row in points
        ]
        return charts.scatter_chart(points).to_dict(), rows
    key, _, shape = name.rpartition("-")
    shown = distributions.load(con, key, run_ids, between)
    lines = [line for line in lines_of(shown, runs) if number in (None, line.of.flow)]
    if not lines:
        raise BbrscopeError(
            f"no such flow of these runs has {QUANTITIES[key].title} to draw there",
            "`bbrscope runs` says what each run recorded; --flow and --between choose of it",
        )
    if shape == "box":
        return _boxes(shown, lines, runs)
    return _cdf(shown, lines, runs)


def _cdf(shown: Distributions, lines: list[Line], runs: dict[int, str]) -> tuple[Row, list[Row]]:
    if len(lines) > MOST:
        raise BbrscopeError(
            f"{plural(len(lines), 'line')} could not be told apart: there are {MOST} colours and"
            " dashes",
            f"choose fewer runs, or one flow of each with --flow, or draw {shown.quantity.key}-box",
        )
    spec = cdf_chart(shown, lines).to_dict()
    for channel in ("stroke", "strokeDash"):
        legend = {"title": None, "orient": "top", "columns": 3, "symbolType": "stroke"}
        spec["layer"][0]["encoding"][channel]["legend"] = legend | {"labelLimit": 300}
    spec |= _title(lines, runs)
    return spec, [row for line in lines for row in _quantiles(shown, line, runs)]


def _title(lines: list[Line], runs: dict[int, str]) -> Row:
    """The run's name over a figure of one run, whose lines bear those of its flows."""
    ids = {line.of.run_id for line in lines}
    if len(ids) > 1:
        return {}
    return {"title": heading(runs[ids.pop()])}


def heading(text: str) -> Row:
    """A figure's title, no wider than its chart."""
    return {"text": text, "anchor": "start", "fontSize": 12, "limit": WIDTH}


def _boxes(shown: Distributions, lines: list[Line], runs: dict[int, str]) -> tuple[Row, list[Row]]:
    title = f"{shown.title} ({BOX_ABOUT})"
    spec = box_chart(title, lines, shown.from_zero).to_dict() | _title(lines, runs)
    rows = [
        {"run": runs[line.of.run_id], "flow": line.of.flow, "name": line.of.name}
        | {column: row[column] for column in BOX_COLUMNS}
        | {"unit": shown.quantity.unit}
        for line, row in zip(lines, box_rows(lines), strict=True)
    ]
    return spec, rows


def _quantiles(shown: Distributions, line: Line, runs: dict[int, str]) -> list[Row]:
    one = line.of
    return [
        {"run": runs[one.run_id], "flow": one.flow, "name": one.name, "share": share}
        | {"value": value, "unit": shown.quantity.unit}
        for share, value in zip(PROBABILITIES.tolist(), one.values.tolist(), strict=True)
    ]
