"""CE marks of a recording: the threshold that drew them, and how its receiver echoed them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.recorded_world import recorded_world
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest

_US = 4_000_000


@pytest.mark.parametrize("other_receiver", [False, True])
@pytest.mark.parametrize("threshold_us", [1000, 2000])
def test_the_echo_and_its_threshold_are_found(
    threshold_us: int, other_receiver: bool, tmp_path: Path
) -> None:
    path = PathSetup(20_000_000, 3000, limit_packets=200, marks_us=threshold_us, ecn=True)
    flow = FlowSetup("v3", 0, _US, ecn_low=True, other_receiver=other_receiver)
    write_bundle(Setup(path, (flow,), _US), tmp_path / "sim")
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, tmp_path / "sim")
        world = recorded_world(store.con, run_info(store.con, store.run_id("sim")), alone=True)
    assert world.setup.flows[0].other_receiver == other_receiver
    # What repeats a mark is no mark: taken for some, 1 ms came out as 0.64 ms.
    assert world.setup.path.marks_us == pytest.approx(threshold_us, rel=0.25)


def test_who_does_not_ask_for_marks_has_no_other_receiver(tmp_path: Path) -> None:
    """Other rules on this path may ask for them, and their receiver would answer."""
    path = PathSetup(20_000_000, 3000, limit_packets=200, marks_us=2000, ecn=True)
    write_bundle(Setup(path, (FlowSetup("v3", 0, _US),), _US), tmp_path / "sim")
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, tmp_path / "sim")
        world = recorded_world(store.con, run_info(store.con, store.run_id("sim")))
    assert not world.setup.flows[0].other_receiver
