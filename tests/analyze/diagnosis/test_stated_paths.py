"""What the set-up says that a path takes, beside what rules take for it in each second."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.tables import prepare
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lab import scenario

from tests.truth.simulated import first_point, loaded

MS, S = 1_000, 1_000_000
# CUBIC keeps a queue that hides the path of 80 ms, and later that of 30 ms, from the BBR flow.
PATH = PathSetup(10_000_000, 80 * MS, limit_bytes=200_000, changes=((5 * S, "rtt", 30 * MS),))
FLOWS = (FlowSetup("cubic", 0, 9 * S), FlowSetup("v1", 2 * S, 9 * S))
# A queue of up to 800 ms, which PROBE_RTT nearly empties within a round trip.
DEEP = PathSetup(15_250_000, 158_170, limit_bytes=2_100_000)
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
