"""What the set-up says that a path takes, beside what rules take for it in each second."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lab import scenario

from tests.truth.simulated import diagnosed, first_point, loaded

MS, S = 1_000, 1_000_000
# CUBIC keeps a queue that hides the path of 80 ms, and later that of 30 ms, from the BBR flow.
PATH = PathSetup(10_000_000, 80 * MS, limit_bytes=200_000, changes=((5 * S, "rtt", 30 * MS),))
FLOWS = (FlowSetup("cubic", 0, 9 * S), FlowSetup("v1", 2 * S, 9 * S))
# A queue of up to 800 ms, which PROBE_RTT nearly empties within a round trip.
DEEP = PathSetup(15_250_000, 158_170, limit_bytes=2_100_000)
# Half of the initial window does not fit, nor does any probe.
TINY = PathSetup(10_000_000, 80 * MS, limit_bytes=9_000, changes=((5 * S, "rtt", 30 * MS),))
LONGER = PathSetup(
    12_000_000, 20 * MS, limit_bytes=180_000, loss=0.04, changes=((1 * S, "rtt", 60 * MS),)
)
LATER = ((2 * S, "rtt", 60 * MS),)
MARKED = PathSetup(
    10_000_000, 20 * MS, limit_bytes=200_000, marks_us=2 * MS, ecn=True, changes=LATER
)
HELD = PathSetup(20_000_000, 20 * MS, limit_bytes=100_000, loss=0.01, changes=LATER)
DESCENDS = PathSetup(
    20_000_000, 20 * MS, limit_bytes=400_000, changes=(*LATER, (7 * S, "rate", 6_000_000.0))
)
MANY = tuple(FlowSetup("v2", round(at * S), 17 * S) for at in (0, 0.51, 1.53, 1.69))
SCENARIO = """
title = "a path that becomes shorter behind a queue"
source = "by hand"
duration = "9s"
[path]
rate = "10mbit"
rtt = "80ms"
buffer = "200kB"
[[flow]]
cc = "cubic"
[[flow]]
cc = "bbr1"
start = "2s"
extra_rtt = "10ms"
[[change]]
at = "5s"
what = "rtt"
value = "30ms"
"""


@pytest.mark.parametrize("lab", [False, True])
def test_a_stated_path_is_what_it_was_in_each_second(lab: bool, tmp_path: Path) -> None:
    """The BBR flow begins at 2 s, which is about second 0 of its run."""
    if lab:
        described = tmp_path / "shorter.toml"
        described.write_text(SCENARIO)
        bundle = first_point(scenario.load(str(described)), tmp_path)
    else:
        bundle = tmp_path / "shorter"
        write_bundle(Setup(PATH, FLOWS, 9 * S, 7), bundle)
    with open_store(tmp_path / "s.duckdb") as store:
        (run_id,) = loaded(store, [bundle])
        # Nothing but the set-up tells then how much of a round trip was the queue's.
        store.con.execute("DELETE FROM queue_samples")
        prepare(store.con, [run_id], [])
        seconds = store.con.execute(
            "SELECT p.second, p.base_us, s.rtt_min_us FROM this_paths p"
            " JOIN this_seconds s USING (flow, second)"
        ).fetchall()
    more = 10 * MS if lab else 0
    before = {base for second, base, _ in seconds if second < 3}
    after = {base for second, base, _ in seconds if second > 4}
    assert (before, after) == ({80 * MS + more}, {30 * MS + more})
    assert all(least >= base for _, base, least in seconds if least is not None)


def test_a_queue_that_fills_and_drains_within_a_round_trip_is_no_other_path(tmp_path: Path) -> None:
    """An ACK that comes when a packet leaves is of one that left a round trip before it."""
    write_bundle(Setup(DEEP, MANY, 17 * S, 1), tmp_path / "deep")
    with open_store(tmp_path / "s.duckdb") as store:
        (run_id,) = loaded(store, [tmp_path / "deep"])
        prepare(store.con, [run_id], [])
        (bases,) = zip(
            *store.con.sql("SELECT DISTINCT base_us FROM this_paths").fetchall(), strict=True
        )
        (longest,) = store.con.sql("SELECT max(wait_s) FROM this_queue").fetchall()[0]
    assert longest > 0.5
    assert bases == (DEEP.rtt_us,)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    """Paths whose set-up says all of them; of `unsampled`, no sample of the queue."""
    folder = tmp_path_factory.mktemp("stated")
    worlds = {
        "tiny": Setup(TINY, (FlowSetup("v3", 0, 9 * S),), 9 * S, 7),
        "longer": Setup(LONGER, (FlowSetup("v3", 0, 8 * S),), 8 * S, 7),
        "unsampled": Setup(PATH, FLOWS, 9 * S, 7),
        "marked": Setup(MARKED, (FlowSetup("v1", 0, 8 * S),), 8 * S, 7),
        "held": Setup(HELD, (FlowSetup("v3", 0, 16 * S),), 16 * S, 7),
        "descends": Setup(DESCENDS, (FlowSetup("v2", 0, 16 * S),) * 2, 16 * S, 7),
    }
    for name, setup in worlds.items():
        write_bundle(setup, folder / name)
    (folder / "unsampled" / "queue.csv.zst").unlink()
    bundles = [folder / name for name in worlds]
    return {bundle.name: found for bundle, found in diagnosed(bundles, folder)}


def test_what_happened_is_told_beside_the_path_of_its_time(made: dict[str, Diagnosis]) -> None:
    tiny, longer = (
        {finding.rule.name: finding.values for finding in made[run].findings}
        for run in ("tiny", "longer")
    )
    assert tiny["initial_window_loss"]["base_us"] == 80 * MS
    assert tiny["initial_window_loss"]["least"] == "without a queue"
    # A bound was lowest long after the path had become longer.
    packets = 12_000_000 * 0.06 / 8 / 1514
    assert longer["loss_above_threshold"]["bdp_packets"] == pytest.approx(packets, rel=1e-3)


def test_averages_are_compared_with_the_path_of_the_same_time(made: dict[str, Diagnosis]) -> None:
    """Of 20 ms for two seconds, and 60 ms after that."""
    told = {
        run: {finding.rule.name: finding for finding in diagnosis.findings}
        for run, diagnosis in made.items()
    }
    marks = told["marked"]["marks_echoed"]
    assert 35 * MS < marks.values["base_us"] < 60 * MS
    # Were the path still that of the beginning, it would be two thirds of the time.
    assert marks.cost_s is not None
    assert marks.cost_s < 2
    packets = 20_000_000 * 0.06 / 8 / 1514
    held = told["held"]["inflight_hi_alone"].values
    assert held["bdp_packets"] == pytest.approx(packets, rel=1e-3)
    assert told["descends"]["slow_descent"].values["base_us"] == 60 * MS


def test_a_stated_path_that_changes_is_no_longer_one_than_stated(
    made: dict[str, Diagnosis],
) -> None:
    for finding in made["unsampled"].findings:
        assert "had become longer" not in str(finding.values)
        assert finding.confidence != "low", finding.rule.name
    told = {finding.rule.name: finding.values for finding in made["unsampled"].findings}
    assert told["standing_queue"]["saw"] == "saw a queue that stood"
    assert told["standing_queue"]["shortest"] == "that it took then without a queue"
