"""On which side of a source's number runs have to lie: a claim's word, and what its query asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest
from bbrscope.collect.lab import scenario
from bbrscope.collect.lab.scenario_claims import Claim, read_claims
from bbrscope.probes.base.errors import ScenarioError
from bbrscope.reports.text.claim_words import expected

# Side and tolerance, and how a number of 0.9 is written with them.
WRITTEN = {
    ("at least", None): "\u2265 0.9",
    ("at least", 0.02): "\u2265 0.9 \u2212 0.02",
    ("more than", None): "> 0.9",
    ("more than", 0.02): "> 0.9 + 0.02",
    ("at most", 0.02): "\u2264 0.9 + 0.02",
    ("less than", None): "< 0.9",
    ("less than", 0.02): "< 0.9 \u2212 0.02",
    ("about", 0.02): "0.9 \u00b1 0.02",
    ("from", 0.02): "0.9 to 0.92",
    ("", None): "0.9",
}


@pytest.mark.parametrize(("side", "tolerance"), WRITTEN)
def test_a_number_is_told_with_its_side(side: str, tolerance: float | None) -> None:
    claim = Claim("c", "it does", "Song21", "", (), False, "", 0.9, tolerance, side)
    assert expected(claim) == WRITTEN[side, tolerance]
    assert expected(Claim("c", "it does", "Song21", "")) == ""


@pytest.mark.parametrize(
    "said",
    [
        {"side": "above", "expected": 1},
        {"side": "at least"},
        {"side": "about", "expected": 1},
        {"side": 3, "expected": 1},
    ],
)
def test_a_side_that_says_nothing_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ScenarioError):
        read_claims(({"text": "t", "source": "s", "sql": "SELECT 1", **said},))


SIDE_OF = {
    "COMPARE_GREATERTHANOREQUALTO": "at least",
    "COMPARE_GREATERTHAN": "more than",
    "COMPARE_LESSTHANOREQUALTO": "at most",
    "COMPARE_LESSTHAN": "less than",
}
TURNED = {
    "at least": "at most",
    "at most": "at least",
    "more than": "less than",
    "less than": "more than",
}


def parts(node: Any) -> Iterator[dict[str, Any]]:
    """A parsed expression and all that is in it, but the conditions of a CASE."""
    if isinstance(node, list):
        for each in node:
            yield from parts(each)
    elif isinstance(node, dict):
        yield node
        for key, inner in node.items():
            if key != "when_expr":
                yield from parts(inner)


def named(node: Any, parameter: str) -> bool:
    return any(each.get("identifier") == parameter for each in parts(node))


def compared(sql: str) -> set[str]:
    """The sides of $expected that a query's column `reproduced` asks for, by DuckDB's parser."""
    con = duckdb.connect()
    parsed = json.loads(con.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    node = parsed["statements"][0]["node"]
    [asked] = [each for each in node["select_list"] if each.get("alias") == "reproduced"]
    sides = set()
    for each in parts(asked):
        kind = each.get("type", "")
        if kind == "COMPARE_BETWEEN" and named(each["lower"], "expected"):
            sides.add("about")
        elif kind in SIDE_OF and named(each["right"], "expected"):
            sides.add(SIDE_OF[kind])
        elif kind in SIDE_OF and named(each["left"], "expected"):
            near = named(each["right"], "tolerance")
            sides.add("about" if near else TURNED[SIDE_OF[kind]])
    return sides


def test_the_parser_finds_sides_however_a_query_is_written() -> None:
    asked = {
        "avg(v)>=$expected": {"at least"},
        "$expected <= avg(v)": {"at least"},
        "NOT a OR (\n$expected\n>\nb * 2)": {"less than"},
        "max(abs(v - $expected)) <= $tolerance": {"about"},
        "CASE WHEN v > $expected THEN v BETWEEN $expected - $tolerance AND 1 END": {"about"},
        "v >= $expected - 0.1 AND v <= $expected + $tolerance": {"at least", "at most"},
        "a > 3": set(),
    }
    for query, sides in asked.items():
        assert compared(f"SELECT {query} AS reproduced FROM t") == sides


def test_the_side_of_each_claim_is_the_one_that_its_query_asks() -> None:
    """But of one, whose number is the time that a flow is given."""
    without = []
    for name in scenario.names():
        for claim in scenario.load(name).claims:
            if claim.expected is None:
                continue
            if not claim.side:
                without.append((name, claim.id))
                continue
            sides = compared(claim.sql)
            if claim.side in ("about", "from") and sides != {"about"}:
                assert sides == {"at least", "at most"}, (name, claim.id)
            else:
                assert claim.side in sides, (name, claim.id, sides)
            assert (claim.tolerance is not None) == ("$tolerance" in claim.sql), (name, claim.id)
    assert without == [("song-bwchange", "v1-fall")]
