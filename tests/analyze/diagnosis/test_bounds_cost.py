"""What v2's and v3's bounds cost a flow, on paths of which the set-up says what dropped when."""

from __future__ import annotations

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding

from tests.truth.simulated import by_name, of_texts

# The path loses for a fifth of the time, and v2 takes a while to grow again.
SPELL = """
title = "Loss for a while"
source = "test"
duration = "20s"
[path]
rate = "24mbit"
rtt = "32ms"
buffer = "1.5bdp"
[[flow]]
cc = "bbr2"
[[change]]
at = "8s"
what = "loss"
value = "4%"
[[change]]
at = "12s"
what = "loss"
value = "0%"
"""
# Its queue drops all that is lost.
BESIDE = """
title = "Short ones beside a long one"
source = "test"
duration = "12s"
[path]
rate = "16mbit"
rtt = "28ms"
buffer = "0.8bdp"
[[flow]]
cc = "bbr3"
[[flow]]
cc = "bbr3"
kind = "fixed-size"
size = "200kB"
count = 10
every = "1s"
start = "1s"
"""
# The first one gives to those that join, and keeps more than its part.
JOINED = """
title = "Two join"
source = "test"
duration = "16s"
[path]
rate = "12mbit"
rtt = "40ms"
buffer = "1bdp"
[[flow]]
cc = "bbr2"
[[flow]]
cc = "bbr2"
count = 2
every = "3s"
start = "2s"
"""
TEXTS = {"spell": SPELL, "beside": BESIDE, "joined": JOINED}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    folder = tmp_path_factory.mktemp("bounds")
    return by_name(of_texts(TEXTS, folder), folder)


def told(of: Diagnosis, name: str) -> list[Finding]:
    return [finding for finding in of.findings if finding.rule.name == name]


def test_a_spell_of_loss_is_named_as_what_slows_a_flow(made: dict[str, Diagnosis]) -> None:
    """It carries less than half for a third of its time; before and after its window has room."""
    (alone,) = told(made["spell"], "inflight_hi_alone")
    assert alone.values["window_packets"] < 0.75 * alone.values["bdp_packets"]
    assert alone.values["held_share"] < 0.4
    (lower,) = told(made["spell"], "stuck_at_lower_bounds")
    assert lower.values["held_share"] < 1 / 3
    assert "random loss" in lower.causes[0]
    used = made["spell"].flows[1].used
    assert used is not None
    missing = (1 - used) * made["spell"].flows[1].duration_s
    assert (alone.cost_s or 0) + (lower.cost_s or 0) > 0.6 * missing


def test_a_queue_that_dropped_most_is_named_as_what_sets_the_bounds(
    made: dict[str, Diagnosis],
) -> None:
    found = told(made["beside"], "stuck_at_lower_bounds")
    assert found
    for one in found:
        assert "dropped by the bottleneck's queue" in one.causes[0]
        assert not any("random loss" in cause for cause in one.causes)


def test_what_others_take_that_join_is_no_ratchets(made: dict[str, Diagnosis]) -> None:
    """The first has more than its part before they came and since: its bound costs it nothing."""
    first = made["joined"].flows[1]
    assert first.used is not None
    assert first.used > 0.95
    assert 1 not in [one.flow for one in told(made["joined"], "inflight_hi_ratchet")]
