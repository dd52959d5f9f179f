"""Which runs of two groups are compared with each other: those of the same scenario and seed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# A simulation outside the lab has no scenario: its path stands for scenario and parameters.
_CONDITIONS = """
WITH simulations AS (
  SELECT run_id, any_value(value) AS seed FROM host_facts
  WHERE scope = 'simulated' AND name = 'seed' GROUP BY run_id
)
SELECT r.run_id,
  coalesce(l.scenario, r.scenario, CASE WHEN s.seed IS NOT NULL THEN 'simulated' END, ''),
  coalesce(l.seed::VARCHAR, s.seed, ''),
  coalesce(l.params, CASE WHEN s.seed IS NOT NULL THEN r.setup END, '{}')
FROM runs r LEFT JOIN lab_runs l USING (run_id) LEFT JOIN simulations s USING (run_id)
WHERE list_contains(?, r.run_id)
"""


@dataclass(frozen=True)
class RunBlock:
    """Runs of both groups under the same conditions; `name` says which."""

    name: str
    a: tuple[int, ...]
    b: tuple[int, ...]


def blocks(con: duckdb.DuckDBPyConnection, a: Sequence[int], b: Sequence[int]) -> list[RunBlock]:
    """Return the blocks of two groups of runs; runs whose conditions the other lacks are in none.

    Runs with the same scenario, seed and parameters are compared (parameters that tell the groups
    apart, such as the congestion control, aside). Where no seed is the same, scenarios are; where
    no scenario is, the groups are compared as they are.
    """
    rows = con.execute(_CONDITIONS, [sorted({*a, *b})]).fetchall()
    conditions = {row[0]: _Conditions(*row[1:]) for row in rows}
    apart = _telling_apart([conditions[run] for run in a], [conditions[run] for run in b])
    for keys in (
        {run: each.with_seed(apart) for run, each in conditions.items()},
        {run: each.without_seed(apart) for run, each in conditions.items()},
        {run: each.scenario for run, each in conditions.items()},
    ):
        if blocks := _blocks(keys, a, b):
            return blocks
    return [RunBlock("", tuple(a), tuple(b))]


@dataclass(frozen=True)
class _Conditions:
    scenario: str
    seed: str
    params: str

    @property
    def settings(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in json.loads(self.params).items()}

    def with_seed(self, apart: frozenset[str]) -> str:
        """Return scenario, parameters and seed; empty: no seed is known."""
        return f"{self.without_seed(apart)}, seed {self.seed}" if self.seed else ""

    def without_seed(self, apart: frozenset[str]) -> str:
        """Return scenario and parameters; empty: no scenario is known."""
        shared = [f"{k}={v}" for k, v in sorted(self.settings.items()) if k not in apart]
        return ", ".join([self.scenario, *shared]) if self.scenario else ""


def _telling_apart(a: Sequence[_Conditions], b: Sequence[_Conditions]) -> frozenset[str]:
    """Return the parameters that have no value in common in the two groups."""
    names = {name for run in (*a, *b) for name in run.settings}
    return frozenset(
        name
        for name in names
        if {run.settings.get(name) for run in a}.isdisjoint(run.settings.get(name) for run in b)
    )


def _blocks(keys: dict[int, str], a: Sequence[int], b: Sequence[int]) -> list[RunBlock]:
    groups: tuple[dict[str, list[int]], dict[str, list[int]]] = (
        defaultdict(list),
        defaultdict(list),
    )
    for group, runs in zip(groups, (a, b), strict=True):
        for run in runs:
            group[keys[run]].append(run)
    return [
        RunBlock(key, tuple(groups[0][key]), tuple(groups[1][key]))
        for key in groups[0]
        if key and key in groups[1]
    ]
