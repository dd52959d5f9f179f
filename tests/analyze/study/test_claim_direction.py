"""On which side of a source's number runs have to lie: what a claim's query asks, in words."""

from __future__ import annotations

import pytest
from bbrscope.analyze.study.claim_direction import direction, leaves_tolerance
from bbrscope.analyze.study.claim_numbers import claim_numbers
from bbrscope.analyze.study.claims import REPRODUCED, Verdict
from bbrscope.collect.lab import scenario
from bbrscope.collect.lab.scenario_claims import Claim
from bbrscope.reports.html.pages.study_page import expected

# What decides -> in words, and as the page says it of 0.9 with a tolerance of 0.02.
ASKED = {
    "avg(v) >= $expected": ("at least", "\u2265 0.9"),
    "min(v) >= $expected - $tolerance": ("at least", "\u2265 0.9 \u2212 0.02"),
    "avg(v) > $expected": ("more than", "> 0.9"),
    "max(v) <= $expected": ("at most", "\u2264 0.9"),
    "median(v) <= $expected + $tolerance": ("at most", "\u2264 0.9 + 0.02"),
    "a < $expected * b": ("less than", "< 0.9"),
    "bool_and(abs(v - $expected) <= $tolerance)": ("about", "0.9 \u00b1 0.02"),
    "max(abs(v - $expected)) <= $tolerance": ("about", "0.9 \u00b1 0.02"),
    "CASE WHEN most > $expected THEN v BETWEEN $expected - $tolerance AND $expected + $tolerance"
    " END": ("about", "0.9 \u00b1 0.02"),
    "CASE WHEN most > $expected THEN v < $expected - $tolerance END": (
        "less than",
        "< 0.9 \u2212 0.02",
    ),
    "min(v) >= $expected - $tolerance AND max(v) <= $expected + $tolerance": (
        "about",
        "0.9 \u00b1 0.02",
    ),
    "bool_and(v >= $expected - 0.1 AND v <= $expected + $tolerance)": ("from", "0.9 to 0.92"),
    "count_if(v < $tolerance) >= $expected * count(*)": ("at least", "\u2265 0.9"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_number_is_told_with_its_side(asked: str) -> None:
    claim = Claim(
        "c", "it does", "Song21", f"SELECT {asked} AS reproduced", (), False, "", 0.9, 0.02
    )
    said = expected(Verdict(claim, REPRODUCED, claim_numbers(None), "", 1))
    assert (direction(claim), said) == ASKED[asked]


def test_each_claim_that_has_a_number_has_a_side() -> None:
    """But one, whose number is the time that a flow is given. A tolerance is used where it is."""
    without = []
    for name in scenario.names():
        for claim in scenario.load(name).claims:
            if claim.expected is not None and not direction(claim):
                without.append((name, claim.id))
            if direction(claim) == "about":
                assert claim.tolerance is not None
            if leaves_tolerance(claim):
                assert claim.tolerance is not None
    assert without == [("song-bwchange", "v1-fall")]
