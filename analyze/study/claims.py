"""Verdicts: whether a scenario's runs say what its source says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...collect.store.select_only import select
from ...probes.base.errors import BbrscopeError, ScenarioError

if TYPE_CHECKING:
    import duckdb

    from ...collect.lab.scenario_claims import Claim

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARABLE = "not comparable"

# A small negative number keeps its sign when it is rounded: "-0.0".
_MINUS_0 = re.compile(r"(?<![\w.])-(0(?:\.0+)?)(?!\.?\d)")
# Least and most of one run, or of runs that differ by less than is told: "50 to 50 ms".
_SAME = re.compile(r"(?<![\w.])(\d[\d.,]*) to \1(?![\w.,]*\d)")
# And their mean before them: "7 of them, 7".
_ALL_SAME = re.compile(r"\A(\d[\d.,]*) ([^,]*), \1\Z")


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        state: one of REPRODUCED, NOT_REPRODUCED and NOT_COMPARABLE.
        measured: the numbers in words; empty if there are none.
        why: why it is not comparable; empty otherwise.
        n: the runs that it rests on.
    """

    claim: Claim
    state: str
    measured: str
    why: str
    n: int


def judge(con: duckdb.DuckDBPyConnection, claim: Claim, quick: bool) -> Verdict:
    """Return the verdict on a claim, from the relations of `points`.

    Raises:
        ScenarioError: its query fails, or does not return what `Claim` says.
    """
    lacking = _lacking(con, claim, quick)
    if lacking:
        return Verdict(claim, NOT_COMPARABLE, "", lacking, 0)
    reproduced, measured, n = _ask(con, claim)
    if reproduced is None:
        why = f"it needs {claim.needs}" if claim.needs else "these runs cannot tell"
        return Verdict(claim, NOT_COMPARABLE, measured, why, n)
    return Verdict(claim, REPRODUCED if reproduced else NOT_REPRODUCED, measured, "", n)


def _lacking(con: duckdb.DuckDBPyConnection, claim: Claim, quick: bool) -> str:
    """Say what must be run before the claim can be asked; empty: nothing."""
    ran = {row[0] for row in con.execute("SELECT DISTINCT algo FROM point_flows").fetchall()}
    if not ran:
        return "no valid run"
    missing = [name for name in claim.cc if name not in ran]
    if missing:
        return f"no run with {' and '.join(missing)}: there is {', '.join(sorted(ran))}"
    if claim.full and quick:
        return "its numbers are of the full form, and these runs are of the quick one"
    return ""


def _ask(con: duckdb.DuckDBPyConnection, claim: Claim) -> tuple[bool | None, str, int]:
    import duckdb

    values = {"expected": claim.expected, "tolerance": claim.tolerance}
    given = {key: value for key, value in values.items() if f"${key}" in claim.sql}
    try:
        result = select(con, claim.sql, given)
        names = [column[0] for column in result.description]
        rows = result.fetchall()
    except (duckdb.Error, BbrscopeError) as error:
        text = " ".join(str(error).split())
        raise ScenarioError(
            f"claim {claim.id!r:.60} cannot be asked: {text[:300]}", "mend its sql"
        ) from error
    if len(rows) != 1 or not {"reproduced", "measured"} <= set(names):
        raise ScenarioError(
            f"claim {claim.id!r:.60} must give one row with reproduced and measured; it gave"
            f" {len(rows)} with {', '.join(names)}",
            "mend its sql",
        )
    row = dict(zip(names, rows[0], strict=True))
    total = con.execute("SELECT count(*) FROM points").fetchall()[0][0]
    n = _count(claim, row["n"]) if row.get("n") is not None else int(total)
    measured = _SAME.sub(r"\1", _MINUS_0.sub(r"\1", str(row["measured"] or "")))
    return row["reproduced"], _ALL_SAME.sub(r"\1 \2", measured), n


def _count(claim: Claim, value: object) -> int:
    """Return the number of runs that a claim's query gives as `n`."""
    try:
        return int(str(value))
    except ValueError:
        raise ScenarioError(
            f"claim {claim.id!r:.60}: n is {value!r:.40}, not a whole number", "mend its sql"
        ) from None
