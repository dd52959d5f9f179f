"""The world of a recording has its segments' size, not Ethernet's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.recorded_world import recorded_world
from bbrscope.analyze.simulate.simulation import goodput_mbps
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lab import scenario

from tests.truth.simulated import first_point


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


def test_what_others_carried_in_a_run_of_the_lab_counts(tmp_path: Path) -> None:
    """The lab's own manifests list their flows, and its kernels' set-ups have no `ccs`."""
    file = tmp_path / "beside.toml"
    file.write_text(
        'title = "b"\nsource = "test"\nduration = "3s"\n[path]\nrate = "10mbit"\nrtt = "20ms"\n'
        'buffer = "1bdp"\n[[flow]]\ncc = "bbr3"\n[[flow]]\ncc = "cubic"\n'
    )
    bundle = first_point(scenario.load(str(file)), tmp_path)
    manifest = bundle / "manifest.json"
    said = json.loads(manifest.read_text())
    del said["setup"]["ccs"]
    manifest.write_text(json.dumps(said))
    with open_store(tmp_path / "s.duckdb") as store:
        ingest(store, bundle)
        world = recorded_world(store.con, run_info(store.con, store.run_id(bundle.name)))
    assert 8 < world.recorded["goodput_mbps"] < 10
