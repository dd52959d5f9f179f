"""Claims: what a scenario's source says, and the queries that tell whether the runs say it, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...probes.base.errors import ScenarioError
from . import toml_tables as toml

CLAIM_KEYS = tuple("id text source cc full needs sql expected tolerance side".split())
MOST = 1e18
# On which side of `expected` runs have to lie; the last two take the tolerance on both, or above.
AT_LEAST, MORE, AT_MOST, LESS = "at least", "more than", "at most", "less than"
ABOUT, FROM = "about", "from"
SIDES = (AT_LEAST, MORE, AT_MOST, LESS, ABOUT, FROM)


@dataclass(frozen=True)
class Claim:
    """What the source says, and the query that tells whether the collected runs say it, too.

    `sql` is a query over the store that returns one row: `reproduced` (NULL: these runs cannot
    tell) and `measured`, the numbers in words; perhaps `n`, the runs that it rests on. It may use
    the relations of `analyze.study.points`, which hold the scenario's valid runs alone, and
    $expected and $tolerance where the claim has them. `side`, one of SIDES, says on which side of
    `expected` the query wants the runs (empty: the number is no bound); `tolerance` is by how much
    they may miss it, or, of "more than" and "less than", have to clear it. It is not
    asked unless each congestion control of `cc` (v1, v2, v3, cubic ...) was run, and, with `full`,
    in the scenario's full form.
    """

    id: str
    text: str
    source: str
    sql: str
    cc: tuple[str, ...] = ()
    full: bool = False
    needs: str = ""
    expected: float | None = None
    tolerance: float | None = None
    side: str = ""


def read_claims(tables: tuple[dict[str, Any], ...]) -> tuple[Claim, ...]:
    """The claims of a scenario's [[claim]] tables. Raises ScenarioError."""
    claims = tuple(_claim(each, number) for number, each in enumerate(tables, 1))
    ids = [claim.id for claim in claims]
    for name in ids:
        if ids.count(name) > 1:
            raise ScenarioError(f"two claims are called {name!r:.60}", "give each its own id")
    return claims


def _claim(raw: Mapping[str, Any], number: int) -> Claim:
    toml.only(raw, CLAIM_KEYS, "[[claim]]")
    numbers = {key: _number(raw, key) for key in ("expected", "tolerance") if key in raw}
    return Claim(
        id=str(raw.get("id", number)),
        text=toml.text(raw, "text"),
        source=toml.text(raw, "source"),
        sql=toml.text(raw, "sql"),
        cc=toml.texts(raw, "cc"),
        full=raw.get("full") is True,
        needs=str(raw.get("needs", "")),
        side=_side(raw),
        **numbers,
    )


def _side(raw: Mapping[str, Any]) -> str:
    side = raw.get("side", "")
    if side not in ("", *SIDES):
        raise ScenarioError(f"side is {side!r:.40}", f"write one of {', '.join(SIDES)}")
    if side and "expected" not in raw:
        raise ScenarioError("a claim has a side of no number", "write expected = ..., too")
    if side in (ABOUT, FROM) and "tolerance" not in raw:
        raise ScenarioError(f"side is {side!r} without a tolerance", "write tolerance = ..., too")
    return str(side)


def _number(raw: Mapping[str, Any], key: str) -> float:
    value = raw[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        raise ScenarioError(f"{key} is {value!r:.40}", f"write a number, e.g. {key} = 0.5")
    return float(value)
