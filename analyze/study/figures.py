"""What a study draws: records of a title, a kind of chart, and the query for its data."""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib import resources
from typing import TYPE_CHECKING, Any

from ...collect.lab.toml_tables import unknown
from ...collect.store.select_only import select
from ...probes.base.errors import BbrscopeError, ScenarioError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from ...collect.lab.scenario import Scenario

# Kind of chart -> the columns that its query must give; more may come (`facet` for one chart each).
KINDS: dict[str, tuple[str, ...]] = {
    "lines": ("x", "y", "series"),
    "time": ("t", "y", "series"),
    "steps": ("t", "y", "series"),
    "area": ("t", "y", "series"),
    # Panels above each other over one time; `mark` of a panel is line, or raster: y is not drawn.
    "stack": ("t", "y", "series", "panel", "mark"),
    "heatmap": ("x", "y", "value"),
    "table": (),
    "tree": ("rate_mbps", "rtt_ms", "buffer_bytes", "bbr", "cubic"),
}
# Of a kind's columns, those that are numbers, if they are there; `y` of a raster need not be.
NUMBERS: dict[str, tuple[str, ...]] = {
    "lines": ("x", "y", "lo", "hi"),
    "time": ("t", "y"),
    "steps": ("t", "y"),
    "area": ("t", "y"),
    "stack": ("t", "y"),
    "heatmap": ("value",),
    "table": (),
    "tree": ("rate_mbps", "rtt_ms", "buffer_bytes", "bbr", "cubic"),
}
# Columns that name things.
NAMES = ("series", "panel", "mark", "facet")
# A chart with more rows than this is a mistake, or made to fill the memory.
MOST_ROWS = 1_000_000
# What is drawn for a scenario that does not say.
DEFAULT = ("goodput-over-time", "points")
SCALES = ("linear", "log", "symlog")
# A figure's name becomes the name of a file.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True)
class Figure:
    """A figure or a table.

    Attributes:
        name: how a scenario's `figures` and --table call it.
        title: what it shows, with the source's own figure in brackets.
        kind: one of KINDS.
        sql: the query for its data, over the relations of `points`.
        x, y: titles of the axes, with units.
        value: what the numbers of a heatmap are, with their unit.
        scale: of x: linear, log, or symlog, which has a place for 0.
        zero: whether y begins at 0.
        about: what a reader must know, in a sentence or two.
    """

    name: str
    title: str
    kind: str
    sql: str
    x: str = ""
    y: str = ""
    value: str = ""
    scale: str = "linear"
    zero: bool = True
    about: str = ""


@functools.cache
def registry() -> dict[str, Figure]:
    """Return the figures that scenarios may name, from ``figures.toml``."""
    text = (resources.files(__package__) / "figures.toml").read_text("utf-8")
    return {name: _figure(name, table) for name, table in tomllib.loads(text).items()}


def of_scenario(scenario: Scenario) -> list[Figure]:
    """Return what a scenario's study draws: the figures that it names, then its own.

    Raises:
        ScenarioError: it names one that is not known, or its own says something impossible.
    """
    known = registry()
    figures = []
    for name in scenario.figures or (() if scenario.own_figures else DEFAULT):
        if name not in known:
            raise unknown("figure", name, list(known), f"known: {', '.join(known)}")
        figures.append(known[name])
    for number, table in enumerate(scenario.own_figures, 1):
        figures.append(_figure(str(table.get("name", f"figure-{number}")), table))
    return figures


def _figure(name: str, table: Mapping[str, Any]) -> Figure:
    if not _NAME.fullmatch(name):
        raise ScenarioError(
            f"{name!r:.60} cannot name a figure", "use 1 to 80 letters, digits or ._-"
        )
    keys = {field.name: field.type for field in fields(Figure)}
    for key, value in table.items():
        wanted = bool if keys.get(key) == "bool" else str
        if key not in keys or not isinstance(value, wanted):
            raise ScenarioError(
                f"figure {name!r:.60}: {key!r:.60} is not understood", f"known: {', '.join(keys)}"
            )
    for key in ("title", "kind", "sql"):
        if not table.get(key):
            raise ScenarioError(f"figure {name!r:.60} has no {key}", f'{key} = "..."')
    if table["kind"] not in KINDS:
        raise unknown("kind of figure", table["kind"], list(KINDS), f"known: {', '.join(KINDS)}")
    if table.get("scale", "linear") not in SCALES:
        raise unknown("scale", table["scale"], list(SCALES), f"known: {', '.join(SCALES)}")
    return Figure(**{**table, "name": name})


def data(con: duckdb.DuckDBPyConnection, figure: Figure) -> pa.Table:
    """Return a figure's rows.

    Raises:
        ScenarioError: its query fails, or lacks a column that its kind of chart needs.
    """
    import duckdb
    import pyarrow as pa

    shown = f"figure {figure.name!r:.60}"
    try:
        table = select(con, figure.sql).limit(MOST_ROWS + 1).to_arrow_table()
    except (duckdb.Error, pa.ArrowException, BbrscopeError) as error:
        text = " ".join(str(error).split())
        raise ScenarioError(f"{shown} cannot be drawn: {text[:300]}", "mend its sql") from error
    if table.num_rows > MOST_ROWS:
        raise ScenarioError(f"{shown} has over {MOST_ROWS:,} rows", "add a LIMIT to its sql")
    missing = [name for name in KINDS[figure.kind] if name not in table.column_names]
    if missing:
        raise ScenarioError(f"{shown} lacks {', '.join(missing)}", "add these columns to its sql")
    try:
        return _drawable(figure, table)
    except pa.ArrowException as error:
        raise ScenarioError(
            f"{shown} has a column that is neither number nor text: {error}", "cast it in its sql"
        ) from error


def _drawable(figure: Figure, table: pa.Table) -> pa.Table:
    """Return a table whose columns are what a chart draws: decimals as floats, names as text.

    Raises:
        ScenarioError: numbers are wanted where its query gives something else.
    """
    import pyarrow as pa

    if figure.kind == "table":
        return table
    for number, field in enumerate(table.schema):
        kind = field.type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if pa.types.is_decimal(kind):
            wanted = pa.float64()
        elif field.name in NUMBERS[figure.kind] and not (is_number or pa.types.is_null(kind)):
            raise ScenarioError(
                f"figure {figure.name!r:.60}: {field.name} is {kind}, where a chart needs a number",
                "cast it in its sql, as in epoch(t) or y::DOUBLE",
            )
        elif field.name in NAMES or (field.name in ("x", "y") and not is_number):
            wanted = pa.string()
        else:
            continue
        table = table.set_column(number, field.name, table.column(number).cast(wanted))
    return table


def rows(figure: Figure, table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows that can be drawn, with the columns that charts know.

    Those that lack a number, or have one that is not finite, are left out.
    """
    wanted = NUMBERS[figure.kind]
    known = {*KINDS[figure.kind], *wanted, *NAMES}
    chosen = table.select([name for name in table.column_names if name in known])
    # The y of a stack may be that of a raster, which is not drawn.
    needed = (
        wanted[:1] if figure.kind == "stack" else [n for n in wanted if n in KINDS[figure.kind]]
    )
    return [row for row in chosen.to_pylist() if all(_is_finite(row[name]) for name in needed)]


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
