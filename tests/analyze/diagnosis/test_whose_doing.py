"""What is laid to something that was there, but did not do it."""

from __future__ import annotations

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis

from tests.truth.simulated import by_name, of_texts

# Four packets of the first flow are all that its path holds; those of the second are on their way.
UNLIKE = """
title = "A tiny RTT beside a large one"
source = "test"
duration = "24s"
[path]
rate = "15mbit"
rtt = "3ms"
buffer = "150kB"
[[flow]]
cc = "bbr"
[[flow]]
cc = "bbr"
extra_rtt = "110ms"
start = "2s"
"""
# STARTUP overflows the queue once; what is lost later, and sets the bounds, the path loses.
ONCE = """
title = "Acknowledged in bunches, some loss"
source = "test"
duration = "20s"
[path]
rate = "16mbit"
rtt = "60ms"
buffer = "1bdp"
aggregation = "25ms"
loss = "0.3%"
[[flow]]
cc = "bbr2"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    folder = tmp_path_factory.mktemp("whose")
    return by_name(of_texts({"unlike": UNLIKE, "once": ONCE}, folder), folder)


def test_packets_that_are_on_a_longer_path_are_no_queue_of_a_shorter_one(
    made: dict[str, Diagnosis],
) -> None:
    """And the shorter one's flow saw it empty: while the other one was in PROBE_RTT."""
    named = {finding.rule.name for finding in made["unlike"].findings}
    assert "rtt_unfairness" in named
    assert "four_packets_each" not in named


def test_bounds_that_loss_elsewhere_sets_are_not_laid_to_what_startup_overflowed(
    made: dict[str, Diagnosis],
) -> None:
    told = [each for each in made["once"].findings if each.rule.name == "stuck_at_lower_bounds"]
    assert [("random loss" in each.causes[0]) for each in told] == [True]
