"""What a finding's sentence states as the cause, on paths whose set-up says what it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis, diagnose_many
from bbrscope.analyze.replay import keep_results as results
from bbrscope.analyze.replay import replay_runs as session
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest

MS, S = 1_000, 1_000_000


def flow(cc: str, seconds: float, start: float = 0, **values: Any) -> FlowSetup:
    return FlowSetup(cc, int(start * S), int(seconds * S), **values)


def world(seconds: int, path: PathSetup, *flows: FlowSetup, seed: int = 7) -> Setup:
    return Setup(path, flows, seconds * S, seed)


# The queue of a STARTUP drains slowly before the path becomes shorter.
THEN = ((7_195_855, "rtt", 50_122.355), (9_113_286, "rate", 3_272_200.0))
DRAINS = PathSetup(4_843_395, 84_863, limit_bytes=78_299, changes=THEN)
FIVE = PathSetup(20_000_000, 40 * MS, limit_bytes=50_000)
LOSSY = PathSetup(8_000_000, 30 * MS, limit_bytes=60_000, loss=0.19)
WORLDS = {
    "drains_v1": world(21, DRAINS, flow("v1", 21), seed=965374154),
    "five_v1": world(12, FIVE, *(flow("v1", 12, k / 2) for k in range(5))),
    "lossy_v1": world(12, LOSSY, flow("v1", 12)),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Diagnosis]]:
    folder = tmp_path_factory.mktemp("causes")
    with open_store(folder / "s.duckdb") as store:
        for name, setup in WORLDS.items():
            write_bundle(setup, folder / name)
            ingest(store, folder / name)
        ids = [store.run_id(name) for name in WORLDS]
        for flows in session.replay_runs(store.con, ids):
            results.keep(store, flows)
        yield dict(zip(WORLDS, diagnose_many(store.con, ids), strict=True))


def found(made: dict[str, Diagnosis], run: str) -> dict[str, dict[str, Any]]:
    return {finding.rule.name: dict(finding.values) for finding in made[run].findings}


def test_a_queue_that_drains_does_not_date_the_change_of_a_path(made: dict[str, Diagnosis]) -> None:
    """The least RTT falls by a millisecond a second from 2 s on; the path changes at 7.2 s."""
    shorter = found(made, "drains_v1")["path_shorter"]
    at_s = (shorter["change_at"] - made["drains_v1"].zero_ns) / 1e9
    assert 7.1 <= at_s <= 7.4
    assert shorter["after_us"] < 65_000 < shorter["before_us"]


def test_flows_that_overflow_a_queue_are_not_said_to_meet_a_lossy_link(
    made: dict[str, Diagnosis],
) -> None:
    """max_bw falls as flows join; of a flow alone at 19 % of random loss, probes bring nothing."""
    lost = [finding.values.get("loss_share", 0) for finding in made["five_v1"].findings]
    assert max(lost) >= 0.15
    assert "loss_near_gain_cliff" not in found(made, "five_v1")
    assert "loss_near_gain_cliff" in found(made, "lossy_v1")


def test_a_frozen_rate_is_no_policers_where_the_queue_dropped_the_packets(
    made: dict[str, Diagnosis],
) -> None:
    """Where it dropped next to none of them, a policer at that rate would look the same."""
    assert "its queue is not known" in found(made, "lossy_v1")["policer"]["verdict"]
    assert "queue dropped the packets" in found(made, "five_v1")["policer"]["verdict"]
