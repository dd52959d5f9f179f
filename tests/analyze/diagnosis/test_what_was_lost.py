"""What was marked lost and came, and what was lost at one time: simulated, as the set-up says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.diagnosis.engine import Diagnosis, diagnose
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store

from tests.truth.simulated import loaded

MS, S = 1_000, 1_000_000
# Nothing is lost but what the queue drops; packets overtake others by 12 ms.
OVERTAKE = PathSetup(
    40_000_000, 20 * MS, limit_bytes=26_000, jitter_us=6 * MS, reorder=0.02, reorder_us=12 * MS
)
# Down for 200 ms, less than a timeout; apart from that the queue drops one packet in 200.
DOWN = PathSetup(50_000_000, 100 * MS, limit_bytes=600_000, changes=((3 * S, "outage", 0.2 * S),))
LOSSY = PathSetup(12_000_000, 60 * MS, limit_bytes=180_000, loss=0.04)
# Queues that mark what waits for longer than any packet does. The first holds all that comes; of
# that, 0.4 % overtake the others by half a round trip, which the sender takes for losses at first.
ROOMY = PathSetup(
    60_000_000, 130 * MS, limit_bytes=4_000_000, reorder=0.004, marks_us=S, peeks=True, ecn=True
)
SMALL = PathSetup(60_000_000, 130 * MS, limit_bytes=60_000, marks_us=S, peeks=True, ecn=True)
HEEDS = dict(params.DEFAULTS["v2"]) | {"ecn_enable": 1, "ecn_max_rtt_us": 0}
SENDS = FlowSetup("v2", 0, 6 * S, parameters=HEEDS)
SHORT = replace(SENDS, kind="fixed-size", size_bytes=1_600_000)
WORLDS = {
    "overtake_v2": Setup(OVERTAKE, (FlowSetup("v2", 0, 12 * S),), 12 * S, 4),
    "down_v3": Setup(DOWN, (FlowSetup("v3", 0, 6 * S),), 6 * S, 7),
    "unsampled_v3": Setup(DOWN, (FlowSetup("v3", 0, 6 * S),), 6 * S, 7),
    "lossy_v3": Setup(LOSSY, (FlowSetup("v3", 0, 8 * S),), 8 * S, 7),
    "roomy_v2": Setup(ROOMY, (SHORT,), 6 * S, 7),
    "small_v2": Setup(SMALL, (SENDS,), 6 * S, 7),
}


@dataclass
class Found:
    """What is found in a world, and what rows say of it: see `COUNTS`."""

    made: Diagnosis
    marked: int
    sent: int
    dropped: int | None
    twice: int

    def values(self, rule: str) -> dict[str, Any]:
        return next((f.values for f in self.made.findings if f.rule.name == rule), {})


COUNTS = """
SELECT lost, lost + delivered,
  (SELECT max(dropped)::BIGINT FROM queue_samples WHERE run_id = (SELECT run_id FROM this_run)),
  (SELECT coalesce(sum(packets), 0)::BIGINT FROM this_twice)
FROM this_flows
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    folder = tmp_path_factory.mktemp("lost")
    for name, setup in WORLDS.items():
        write_bundle(setup, folder / name)
    (folder / "unsampled_v3" / "queue.csv.zst").unlink()
    told = {}
    with open_store(folder / "s.duckdb") as store:
        ids = loaded(store, [folder / name for name in WORLDS])
        for name, run_id in zip(WORLDS, ids, strict=True):
            made = diagnose(store.con, run_id)
            told[name] = Found(made, *store.con.sql(COUNTS).fetchall()[0])
    return told


def test_what_was_sent_again_in_vain_is_no_loss(found: dict[str, Found]) -> None:
    """D-SACKs tell of it in the rows: 4 % were marked lost, and the queue dropped 1 %."""
    it = found["overtake_v2"]
    assert it.dropped is not None
    assert it.marked > 0.02 * it.sent > it.dropped
    assert it.twice > it.dropped
    assert not it.values("heavy_loss")
    assert not it.values("loss_outside_bottleneck")


@pytest.mark.parametrize(
    ("run", "rule"), [("down_v3", "loss_outside_bottleneck"), ("unsampled_v3", "heavy_loss")]
)
def test_losses_at_one_time_are_named_as_such(run: str, rule: str, found: dict[str, Found]) -> None:
    """The path was down for less than a timeout, which nothing else tells of."""
    it = found[run]
    assert not it.values("outage")
    values = it.values(rule)
    assert 3.2 <= (values["burst_at"] - it.made.zero_ns) / 1e9 <= 3.4
    assert values["burst_share"] > 0.5
    assert "after no ACK had come for" in values["silence"]
    if rule == "heavy_loss":
        (told,) = (each for each in it.made.findings if each.rule.name == rule)
        assert values["at_once"] == ", most of them at one time"
        assert any("What was lost at one time" in text for text in told.remedies)


def test_losses_at_all_times_are_none_at_one_time(found: dict[str, Found]) -> None:
    values = found["lossy_v3"].values("loss_outside_bottleneck")
    assert values["burst_share"] < 0.1
    assert values["silence"] == "."


def test_what_was_marked_lost_in_vain_could_not_have_been_a_mark(found: dict[str, Found]) -> None:
    assert found["roomy_v2"].dropped == 0
    assert found["roomy_v2"].marked > 10
    assert not found["roomy_v2"].values("ecn_without_marks")
    assert found["small_v2"].values("ecn_without_marks")["lost_packets"] > 10
