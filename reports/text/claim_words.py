"""The number of a claim's source, as a study's page and terminal write it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...collect.lab.scenario_claims import AT_LEAST, AT_MOST, FROM, LESS, MORE
from .print_table import cell

if TYPE_CHECKING:
    from ...collect.lab.scenario_claims import Claim

_SIGNS = {AT_LEAST: "\u2265 ", MORE: "> ", AT_MOST: "\u2264 ", LESS: "< "}


def expected(claim: Claim) -> str:
    """Return the source's number, on which side of it runs have to lie, and the tolerance.

    As a person reads them, "\u2265 0.95 \u2212 0.02"; empty: the claim has no number.
    """
    if claim.expected is None:
        return ""
    side, tolerance, number = claim.side, claim.tolerance, cell(claim.expected)
    if tolerance is None:
        return f"{_SIGNS.get(side, '')}{number}"
    if side == FROM:
        return f"{number} to {cell(claim.expected + tolerance)}"
    if side in _SIGNS:
        sign = "+" if side in (AT_MOST, MORE) else "\u2212"
        return f"{_SIGNS[side]}{number} {sign} {cell(tolerance)}"
    return f"{number} \u00b1 {cell(tolerance)}"
