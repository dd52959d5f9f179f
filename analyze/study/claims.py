"""Verdicts: whether a scenario's runs say what its source says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...collect.store.select_only import select
from ...probes.base.errors import BbrscopeError, ScenarioError
from .claim_numbers import ClaimNumbers, claim_numbers

if TYPE_CHECKING:
    import duckdb

    from ...collect.lab.scenario_claims import Claim

REPRODUCED = "reproduced"
NOT_REPRODUCED = "not reproduced"
NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Verdict:
    """What became of a claim.

    Attributes:
        state: one of REPRODUCED, NOT_REPRODUCED and NOT_COMPARABLE.
        numbers: what was measured, with the words around it.
        why: why it is not comparable; empty otherwise.
        n: the runs that it rests on.
    """

    claim: Claim
    state: str
    numbers: ClaimNumbers
    why: str
    n: int

    @property
    def measured(self) -> str:
        """The numbers in words; empty if there are none."""
        return self.numbers.text()


def judge(con: duckdb.DuckDBPyConnection, claim: Claim, quick: bool) -> Verdict:
    """Return the verdict on a claim, from the relations of `points`.

    Raises:
        ScenarioError: its query fails, or does not return what `Claim` says.
    """
    lacking = _lacking(con, claim, quick)
    if lacking:
        return Verdict(claim, NOT_COMPARABLE, claim_numbers(None), lacking, 0)
    reproduced, numbers, n = _ask(con, claim)
    if reproduced is None:
        why = f"it needs {claim.needs}" if claim.needs else "these runs cannot tell"
        return Verdict(claim, NOT_COMPARABLE, numbers, why, n)
    return Verdict(claim, REPRODUCED if reproduced else NOT_REPRODUCED, numbers, "", n)


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


def _ask(con: duckdb.DuckDBPyConnection, claim: Claim) -> tuple[bool | None, ClaimNumbers, int]:
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
    return row["reproduced"], _numbers(claim, row["measured"]), n


def _numbers(claim: Claim, measured: object) -> ClaimNumbers:
    """Return what a claim's query measured, once it is known that it can be said in words."""
    try:
        numbers = claim_numbers(measured)
        numbers.text()
    except ValueError as error:
        raise ScenarioError(f"claim {claim.id!r:.60}: {error}", "mend its sql") from None
    return numbers


def _count(claim: Claim, value: object) -> int:
    """Return the number of runs that a claim's query gives as `n`."""
    try:
        return int(str(value))
    except ValueError:
        raise ScenarioError(
            f"claim {claim.id!r:.60}: n is {value!r:.40}, not a whole number", "mend its sql"
        ) from None
