"""What a flow could carry, where its sender's own link passes less than the path."""

from __future__ import annotations

import json

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.reports.text.findings.finding_text import rules_trust

from tests.truth.simulated import by_name, of_texts

ONE = """
title = "One flow, a parameter for both links"
source = "test"
duration = "5s"
[path]
rate = "$wide"
rtt = "40ms"
buffer = "1bdp"
host = "$narrow"
[params]
wide = "30mbit"
narrow = "12mbit"
[[flow]]
cc = "bbr3"
"""
# The links of two extra delays have 12 Mbit/s each, which is less than half of the path.
TWO = """
title = "Each by a link of its own"
source = "test"
duration = "5s"
[path]
rate = "30mbit"
rtt = "20ms"
buffer = "1bdp"
host = "12mbit"
[[flow]]
cc = "bbr3"
[[flow]]
cc = "bbr3"
extra_rtt = "10ms"
"""
# They share one, of 12 Mbit/s.
SHARED = TWO.replace('extra_rtt = "10ms"\n', "")
# It passes more than the path.
FAST = ONE.replace("12mbit", "50mbit")
TEXTS = {"one": ONE, "two": TWO, "shared": SHARED, "fast": FAST}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    folder = tmp_path_factory.mktemp("own")
    bundles = of_texts(TEXTS, folder)
    # A recorded run's set-up has the scenario's words.
    manifest = bundles[0] / "manifest.json"
    said = json.loads(manifest.read_text())
    said["setup"] |= {"host": "$narrow", "narrow": "12mbit"}
    manifest.write_text(json.dumps(said))
    return by_name(bundles, folder)


@pytest.mark.parametrize(("name", "flows"), [("one", 1), ("two", 2), ("shared", 2)])
def test_a_flow_that_fills_its_own_link_lacks_nothing(
    made: dict[str, Diagnosis], name: str, flows: int
) -> None:
    """STARTUP, for one, was not left too early."""
    assert [each.rule.name for each in made[name].findings if each.cost_bytes] == []
    assert len(made[name].flows) == flows
    for flow in made[name].flows.values():
        assert flow.used is not None
        assert 0.9 < flow.used <= 1
        assert flow.own_link == 12e6


def test_its_own_link_is_named_where_it_is_the_slower_one(made: dict[str, Diagnosis]) -> None:
    words = "of its part of the link and of the sender's own, which passes 12 Mbit/s."
    assert any(words in sentence for _, sentence in rules_trust(made["one"]))
    assert made["fast"].flows[1].own_link is None
    assert not any("own" in sentence for _, sentence in rules_trust(made["fast"]))
