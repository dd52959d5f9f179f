"""On which side of the source's number a claim's runs have to lie, by the claim's own query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...collect.lab.scenario_claims import Claim

AT_LEAST, MORE, AT_MOST, LESS = "at least", "more than", "at most", "less than"
ABOUT, FROM = "about", "from"
_SIGNS = {">=": AT_LEAST, ">": MORE, "<=": AT_MOST, "<": LESS}

# abs(x - $expected) <= $tolerance, or x BETWEEN $expected - $tolerance AND ...
_NEAR = re.compile(r"\$expected\)+ *<=? *\$tolerance|\bBETWEEN +\$expected - \$tolerance")
_ONE_SIDE = re.compile(r"(>=|<=|>|<) *\$expected\b( *[-+] *\$tolerance)?")


def direction(claim: Claim) -> str:
    """Return how a claim's query compares with $expected.

    Returns:
        One of the constants above: ABOUT, within the tolerance on either side; FROM, not less, and
        not more than the tolerance above; or one side alone. Empty: the claim has no number, or its
        query compares nothing with it.
    """
    if claim.expected is None:
        return ""
    if _NEAR.search(_asked(claim)):
        return ABOUT
    sides = _sides(claim)
    if {AT_LEAST, AT_MOST} <= set(sides):
        return ABOUT if sides[AT_LEAST] else FROM
    return next(iter(sides), "")


def leaves_tolerance(claim: Claim) -> bool:
    """Whether a claim that is compared on one side allows its tolerance beyond the number.

    A query may use $tolerance for something else.
    """
    return any(_sides(claim).values())


def _asked(claim: Claim) -> str:
    """What decides: of a CASE, what follows its last condition."""
    return claim.sql.rpartition("AS reproduced")[0].rpartition(" THEN")[2]


def _sides(claim: Claim) -> dict[str, bool]:
    found = _ONE_SIDE.finditer(_asked(claim))
    return {_SIGNS[match[1]]: bool(match[2]) for match in found}
