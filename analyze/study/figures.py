"""What a study draws: records of a title, a kind of chart, and the query for its data."""

from __future__ import annotations

import functools
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
    found = []
    for name in scenario.figures or (() if scenario.own_figures else DEFAULT):
        if name not in known:
            raise unknown("figure", name, list(known), f"known: {', '.join(known)}")
        found.append(known[name])
    for number, table in enumerate(scenario.own_figures, 1):
        found.append(_figure(str(table.get("name", f"figure-{number}")), table))
    return found


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

    try:
        found = _drawable(select(con, figure.sql).to_arrow_table())
    except (duckdb.Error, BbrscopeError) as error:
        text = " ".join(str(error).split())
        raise ScenarioError(
            f"figure {figure.name!r:.60} cannot be drawn: {text[:300]}", "mend its sql"
        ) from error
    missing = [name for name in KINDS[figure.kind] if name not in found.column_names]
    if missing:
        raise ScenarioError(
            f"figure {figure.name!r:.60} lacks {', '.join(missing)}", "add these columns to its sql"
        )
    return found


def _drawable(table: pa.Table) -> pa.Table:
    """Return a table whose decimals are floats: a chart knows no others."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.float64()) if pa.types.is_decimal(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
