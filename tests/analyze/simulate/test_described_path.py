"""What is written down of a path: a simulated bundle's manifest says all that its path was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.fitted_table import as_markdown
from bbrscope.analyze.simulate.recorded_world import RecordedWorld, recorded_world
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.probes.base.errors import BbrscopeError

_FIFO = PathSetup(10_000_000, 40_000, limit_bytes=50_000)


@pytest.mark.parametrize(
    "path",
    [
        replace(_FIFO, limit_bytes=0, policer=True, burst_bytes=60_000),
        replace(_FIFO, jitter_us=2000, burst_bytes=62_500),
        replace(_FIFO, aggregation_us=8000),
        replace(_FIFO, host_bps=7_000_000),
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


def _lab(
    path: PathSetup, aqm: str, flows: list[dict[str, object]], **params: str
) -> dict[str, Any]:
    """What the lab's manifest says of a run on this path."""
    return {
        "setup": dict(params),
        "lab": {
            "scenario": "song-cubic",
            "title": "a path",
            "source": "Song21",
            "rep": 1,
            "seed": 1,
            "quick": True,
            "place": "vm",
            "params": {"buffer": "$size", **params},
            "duration_s": 3.0,
            "rate_bps": path.rate_bps,
            "rtt_us": path.rtt_us,
            "bdp_bytes": path.rate_bps * path.rtt_us // 8_000_000,
            "buffer_bytes": path.limit_bytes or path.burst_bytes,
            "loss": path.loss,
            "aqm": aqm,
            "cpu_busy": 0.1,
            "valid": True,
            "changes": [],
            "flows": flows,
        },
    }


def _bulk(number: int, cc: str, start_s: float, **more: object) -> dict[str, object]:
    flow = {"flow_no": number, "cc": cc, "kind": "bulk", "start_s": start_s, "size_bytes": 0}
    return {**flow, "extra_rtt_us": 0, **more}


_QUEUES = [
    (
        "fq_codel",
        {"ecn": "yes", "threshold": "2ms"},
        {"marks_us": 2000, "peeks": True, "ecn": True},
    ),
    (
        "fq_codel",
        {"ecn": "yes", "threshold": "2ms", "shaper": "htb"},
        {"marks_us": 2000, "peeks": False, "ecn": True},
    ),
    ("fq_codel", {}, {}),
    ("red", {"ecn": "yes", "threshold": "3ms"}, {"marks_us": 3000, "peeks": True, "ecn": True}),
    ("policer", {}, {"policer": True, "limit_bytes": 0, "burst_bytes": 50_000}),
    ("fifo", {"jitter": "2ms", "memory": "1MB"}, {"jitter_us": 2000, "memory_bytes": 1_000_000}),
    # The lab's manifest has every parameter of the path, and its own words for reordering.
    ("fifo", {"reorder": "0", "jitter": "0ms"}, {}),
    ("fifo", {"reorder": "2%"}, {"reorder": 0.02}),
    ("fifo", {"host": "7mbit"}, {"host_bps": 7_000_000}),
]


@pytest.mark.parametrize(("aqm", "params", "built"), _QUEUES)
def test_a_labs_run_has_the_queue_that_the_lab_built(
    aqm: str, params: dict[str, str], built: dict[str, Any], tmp_path: Path
) -> None:
    path = replace(_FIFO, **{"burst_bytes": 3028, **built})
    setup = Setup(path, (FlowSetup("v2", 0, 3_000_000),), 3_000_000)
    lab = _lab(_FIFO, aqm, [_bulk(1, "bbr2", 0.0)], **params)
    write_bundle(setup, tmp_path / "sim", extra=lab)
    known = _world(tmp_path).setup.path
    expected = replace(path, peeks=path.peeks or (aqm == "fq_codel" and not params))
    assert replace(known, busy_every_us=0, busy_us=0) == expected


def test_a_labs_run_has_the_flows_beside_bbr_and_their_round_trips(tmp_path: Path) -> None:
    flows = (
        FlowSetup("v2", 0, 3_000_000, extra_rtt_us=5000),
        FlowSetup("cubic", 500_000, 3_000_000, extra_rtt_us=7000),
    )
    described = [
        _bulk(1, "bbr2", 0.0, extra_rtt_us=5000),
        _bulk(2, "cubic", 0.5, extra_rtt_us=7000),
    ]
    lab = _lab(_FIFO, "fifo", described)
    write_bundle(Setup(_FIFO, flows, 3_000_000), tmp_path / "sim", extra=lab)
    first, other = _world(tmp_path).setup.flows
    assert (first.cc, first.extra_rtt_us) == ("v2", 5000)
    assert (other.cc, other.extra_rtt_us) == ("cubic", 7000)
    assert other.start_us == pytest.approx(500_000, abs=2000)
    assert other.stop_us == pytest.approx(3_000_000, abs=100_000)


def test_a_labs_run_whose_flows_pause_is_refused(tmp_path: Path) -> None:
    lab = _lab(_FIFO, "fifo", [_bulk(1, "bbr2", 0.0, kind="on-off")])
    write_bundle(
        Setup(_FIFO, (FlowSetup("v2", 0, 3_000_000),), 3_000_000), tmp_path / "sim", extra=lab
    )
    with pytest.raises(BbrscopeError, match="follow bulk flows; it has on-off") as error:
        _world(tmp_path)
    assert "bbrscope simulate SCENARIO" in error.value.way_out


def _world(folder: Path) -> RecordedWorld:
    with open_store(folder / "store.duckdb") as store:
        ingest(store, folder / "sim")
        return recorded_world(store.con, run_info(store.con, store.run_id("sim")))
