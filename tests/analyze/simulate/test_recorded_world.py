"""The world of a recording has its segments' size, not Ethernet's."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.recorded_world import recorded_world
from bbrscope.analyze.simulate.simulation import goodput_mbps
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest


@pytest.mark.parametrize(("mss", "rate"), [(536, 10_000_000), (8948, 100_000_000)])
def test_segments_of_another_size(mss: int, rate: int, tmp_path: Path) -> None:
    path = PathSetup(rate, 20_000, limit_bytes=rate // 8 // 50, mss=mss)
    setup = Setup(path, (FlowSetup("v3", 0, 2_000_000),), 2_000_000)
    reached = goodput_mbps(write_bundle(setup, tmp_path / "other_mss"))[0]
    # The link is used, as far as headers and the start leave it.
    assert 0.75 * rate < reached * 1e6 < rate * mss / (mss + 66)
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, tmp_path / "other_mss")
        world = recorded_world(store.con, run_info(store.con, store.run_id("other_mss")))
        store.con.execute("DELETE FROM events WHERE ns < (SELECT avg(ns) FROM events)")
        half = recorded_world(store.con, run_info(store.con, store.run_id("other_mss")))
    assert (world.setup.path.mss, world.setup.path.headers) == (mss, 66)
    assert world.recorded["goodput_mbps"] == pytest.approx(reached, rel=0.05)
    # A recording that begins in the middle of a flow counts what it saw.
    assert half.recorded["goodput_mbps"] == pytest.approx(reached, rel=0.15)
    assert half.begins_within
    assert not world.begins_within
    assert half.recorded["lost_packets"] < world.recorded["lost_packets"]
