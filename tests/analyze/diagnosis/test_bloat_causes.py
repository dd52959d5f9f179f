"""Why packets of a flow that is alone wait: what the recording rules out is not told."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Finding
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle

from tests.truth.simulated import diagnosed

S = 1_000_000
V3 = FlowSetup("v3", 0, 10 * S)
JITTERS = PathSetup(10_000_000, 30_000, limit_bytes=56_250, jitter_us=6_000)
SHORTER = PathSetup(20_000_000, 30_000, limit_bytes=150_000, changes=((4 * S, "rtt", 15_000),))
WORLDS = {"jitters": JITTERS, "shorter": SHORTER}


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
