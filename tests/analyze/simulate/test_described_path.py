"""What is written down of a path: a simulated bundle's manifest says all that its path was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.fitted_table import as_markdown
from bbrscope.analyze.simulate.recorded_world import recorded_world
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest

_FIFO = PathSetup(10_000_000, 40_000, limit_bytes=50_000)


@pytest.mark.parametrize(
    "path",
    [
        replace(_FIFO, limit_bytes=0, policer=True, burst_bytes=60_000),
        replace(_FIFO, jitter_us=2000, burst_bytes=62_500),
        replace(_FIFO, aggregation_us=8000),
        replace(_FIFO, limit_bytes=0, limit_packets=100, marks_us=2000, peeks=True, ecn=True),
    ],
)
def test_a_simulated_run_has_its_own_path_again(path: PathSetup, tmp_path: Path) -> None:
    setup = Setup(path, (FlowSetup("v2", 0, 3_000_000),), 3_000_000)
    write_bundle(setup, tmp_path / "sim")
    with open_store(tmp_path / "store.duckdb") as store:
        ingest(store, tmp_path / "sim")
        info = run_info(store.con, store.run_id("sim"))
        known = recorded_world(store.con, info).setup.path
    assert replace(known, busy_every_us=0, busy_us=0) == path


def test_a_policer_stands_beside_its_true_values(tmp_path: Path) -> None:
    path = PathSetup(10_000_000, 40_000, policer=True, burst_bytes=90_840)
    write_bundle(Setup(path, (FlowSetup("v3", 0, 20_000_000),), 20_000_000), tmp_path / "sim")
    with open_store(tmp_path / "store.duckdb") as store:
        ingest(store, tmp_path / "sim")
        cells = as_markdown(store.con, {"sim": store.run_id("sim")}).splitlines()[-1].split(" | ")
    true, _, fitted = cells[3].partition(" / ")
    assert true == "none, a bucket of 60"
    assert fitted.startswith("none, a bucket of ")
    assert abs(int(fitted.split()[-1]) - 60) <= 3
