"""A whole study: verdicts, figures and tree of a scenario, from a store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from ..story.completeness import simulated_of_many
from . import claims, figures, found_views, points, tree

if TYPE_CHECKING:
    import pyarrow as pa

    from ...collect.lab.scenario import Scenario
    from ...collect.store.store import Store
    from .points import Chosen


@dataclass(frozen=True)
class Drawn:
    """A figure with its rows; for a tree, the tree, or why there is none."""

    figure: figures.Figure
    rows: pa.Table
    tree: tree.Tree | None = None
    why_none: str = ""


@dataclass(frozen=True)
class Study:
    """What a scenario's runs say; `fidelity`: how far its simulated runs hold, each text once."""

    scenario: Scenario
    chosen: Chosen
    verdicts: tuple[claims.Verdict, ...]
    drawn: tuple[Drawn, ...]
    runs: pa.Table
    fidelity: tuple[str, ...] = ()


_RUNS = """
SELECT run, algos, rep, seed, quick, place, kernel, duration_s, rate_mbps, rtt_ms, buffer_bdp,
  buffer_bytes, loss, flows, goodput_mbps, retransmits, jain, bbr_share, cpu_busy, params
FROM points ORDER BY run_id
"""


def conduct(
    store: Store, scenario: Scenario, runs: Sequence[str] = (), quick: bool | None = None
) -> Study:
    """Judge every claim of a scenario and work out its figures.

    The scenario's queries may come from a file of anybody's: each must be one SELECT, and the
    settings of `store` are locked before the first.

    Raises:
        BbrscopeError: no such run.
        ScenarioError: a query of the scenario fails.
    """
    chosen = points.choose(store, scenario.name, runs, quick)
    points.make(store, chosen)
    found_views.find(store.con, chosen.run_ids, _queries(scenario))
    verdicts = tuple(claims.judge(store.con, each, chosen.quick) for each in scenario.claims)
    drawn = tuple(_draw(store, figure) for figure in figures.of_scenario(scenario))
    holds = simulated_of_many(store.con, list(chosen.run_ids)).values()
    runs_table = store.con.sql(_RUNS).to_arrow_table()
    return Study(scenario, chosen, verdicts, drawn, runs_table, tuple(dict.fromkeys(holds)))


def needs_replay(scenario: Scenario) -> bool:
    """Whether a claim or a figure asks for decisions, which only a replay finds."""
    wanted = r"\b(decisions|phases|replays|\w+_history)\b"
    return any(re.search(wanted, sql) for sql in _queries(scenario))


def _queries(scenario: Scenario) -> list[str]:
    """Return the SQL of a scenario's claims and figures."""
    queries = [claim.sql for claim in scenario.claims]
    return queries + [figure.sql for figure in figures.of_scenario(scenario)]


def _draw(store: Store, figure: figures.Figure) -> Drawn:
    rows = figures.data(store.con, figure)
    if figure.kind != "tree":
        return Drawn(figure, rows)
    try:
        return Drawn(figure, rows, tree.grow(figures.rows(figure, rows)))
    except BbrscopeError as error:
        return Drawn(figure, rows, None, f"{error.fact}: {error.way_out}")
