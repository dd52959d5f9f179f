"""Why packets of a flow that is alone wait: what the recording rules out is not told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Finding
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle

from tests.truth.simulated import diagnosed

S = 1_000_000
V3 = FlowSetup("v3", 0, 10 * S)
V1 = FlowSetup("v1", 0, 20 * S)
JITTERS = PathSetup(10_000_000, 30_000, limit_bytes=56_250, jitter_us=6_000)
SHORTER = PathSetup(20_000_000, 30_000, limit_bytes=150_000, changes=((4 * S, "rtt", 15_000),))
WORLDS = {"jitters": JITTERS, "shorter": SHORTER}
EVEN = PathSetup(28_000_000, 20_000, limit_bytes=70_000)
BUNCHED = replace(EVEN, aggregation_us=8_000)
# What was under way on the longer path comes back together, and is remembered for seconds.
ONCE = PathSetup(15_000_000, 110_000, limit_bytes=75_000, changes=((9 * S, "rtt", 15_000),))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    folder: Path = tmp_path_factory.mktemp("bloat")
    bundles = []
    for name, path in WORLDS.items():
        write_bundle(Setup(path, (V3,), 10 * S, 7), folder / name)
        bundles.append(folder / name)
    return {
        bundle.name: next(each for each in found.findings if each.rule.name == "bufferbloat")
        for bundle, found in diagnosed(bundles, folder)
    }


def test_jitter_lets_a_flow_alone_believe_in_more_than_the_link(made: dict[str, Finding]) -> None:
    """No rate fell, and STARTUP was over long before."""
    finding = made["jitters"]
    assert finding.values["beyond_ratio"] > 1.05
    assert not any("STARTUP" in cause for cause in finding.causes)
    assert any("jitter" in cause for cause in finding.causes)


def test_acks_that_a_shorter_path_brought_together_once_are_no_habit(
    made: dict[str, Finding],
) -> None:
    finding = made["shorter"]
    assert finding.values["beyond_ratio"] is None
    assert any("the path's rate or round trip fell" in cause for cause in finding.causes)


def test_a_queue_of_a_flow_alone_that_is_as_long_as_its_bunches_of_acks(tmp_path: Path) -> None:
    """On the same path with ACKs one by one, its drains empty the queue."""
    for name, path in {"even": EVEN, "bunched": BUNCHED}.items():
        write_bundle(Setup(path, (V1,), 20 * S, 7), tmp_path / name)
    (_, even), (_, bunched) = diagnosed([tmp_path / "even", tmp_path / "bunched"], tmp_path)
    assert "standing_queue" not in {each.rule.name for each in even.findings}
    (standing,) = (each for each in bunched.findings if each.rule.name == "standing_queue")
    # 8 ms are 18 packets; what a queue keeps for good is worth about as much.
    assert 15 < standing.values["bunch_packets"] < 30
    assert standing.values["bunch_us"] > (standing.values["least_ratio"] - 1) * 20_000 / 2
    assert any("ACKs come in bunches" in cause for cause in standing.causes)
    assert not any("what its probes leave" in cause for cause in standing.causes)


def test_acks_that_came_together_once_are_no_bunches(tmp_path: Path) -> None:
    write_bundle(Setup(ONCE, (V1,), 20 * S, 7), tmp_path / "once")
    ((_, made),) = diagnosed([tmp_path / "once"], tmp_path)
    (standing,) = (each for each in made.findings if each.rule.name == "standing_queue")
    assert not standing.values["is_bunched"]
    assert any("a path which became shorter" in cause for cause in standing.causes)
