"""What a finding's sentence states as the cause, on paths whose set-up says what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle

from tests.truth.simulated import diagnosed

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
GROWS = ((7 * S, "rtt", 31_000), (9_700_000, "rate", 95_000_000))
LONGER = PathSetup(51_000_000, 13_000, limit_bytes=156_000, changes=GROWS)
DEEP = PathSetup(15_000_000, 30 * MS, limit_bytes=120_000)
JITTERS = PathSetup(8029357, 56233, limit_bytes=81757, jitter_us=19202, aggregation_us=20755)
OVERTAKEN = PathSetup(4782400, 86518, limit_bytes=70871, reorder=0.1441, reorder_us=37569)
SELDOM = PathSetup(12_000_000, 40 * MS, limit_bytes=60_000, reorder=0.003)
LOSES = PathSetup(12_000_000, 50 * MS, limit_bytes=80_000, loss=0.015)
MARKS = PathSetup(16_100_000, 210_100, limit_bytes=2_038_000, marks_us=1 * MS, peeks=True, ecn=True)
SHRINKS = PathSetup(10_000_000, 80 * MS, limit_bytes=300_000, changes=((5 * S, "rtt", 30 * MS),))
LATER = PathSetup(7_630_000, 39 * MS, limit_bytes=9_300, changes=((9 * S, "rtt", 101_550),))
PAUSES = flow("v2", 24, kind="on-off", on_us=312 * MS, off_us=87 * MS)
TOGETHER = PathSetup(12_800_000, 59 * MS, limit_bytes=470_000)
SMALL = PathSetup(1_000_000, 20 * MS, limit_bytes=60_000)
HEEDS = dict(params.DEFAULTS["v2"]) | {"ecn_enable": 1, "ecn_max_rtt_us": 0}
HALF = flow("v3", 10, kind="rate-limited", rate_bps=6_000_000)
SLOWLY = flow("v3", 12, kind="rate-limited", rate_bps=1_500_000)
WORLDS = {
    "drains_v1": world(21, DRAINS, flow("v1", 21), seed=965374154),
    "five_v1": world(12, FIVE, *(flow("v1", 12, k / 2) for k in range(5))),
    "lossy_v1": world(12, LOSSY, flow("v1", 12)),
    "longer_v3": world(20, LONGER, flow("v3", 20)),
    "deep_v1": world(12, DEEP, flow("v1", 12), flow("v1", 12, 1)),
    "unsampled_v1": world(12, DEEP, flow("v1", 12), flow("v1", 12, 1)),
    "jitters_v3": world(26, JITTERS, flow("v3", 26), seed=645763644),
    "unsampled_overtaken_v2": world(12, OVERTAKEN, flow("v2", 12)),
    "seldom_overtaken_v1": world(12, SELDOM, flow("v1", 12), flow("v1", 12, 2), seed=4),
    "half_v3": world(10, LOSES, HALF),
    "marks_v2": world(24, MARKS, *(flow("v2", 24, parameters=HEEDS) for _ in range(2))),
    "slowly_v3": world(12, DEEP, SLOWLY, flow("v3", 12)),
    "shrinks_v3": world(15, SHRINKS, flow("v3", 15), flow("cubic", 15)),
    "small_v3": world(15, SMALL, flow("v3", 15)),
    "unsampled_pauses_v2": world(24, LATER, PAUSES),
    "unsampled_four_v2": world(17, TOGETHER, *(flow("v2", 17) for _ in range(4))),
    "inflated_v3": world(20, DEEP, flow("cubic", 20), flow("v3", 20, 2)),
}


def leave_out(bundle: Path, *keys: str) -> None:
    """Have the manifest say nothing of these."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    for key in keys:
        del manifest[key]
    (bundle / "manifest.json").write_text(json.dumps(manifest))


def hide(bundle: Path) -> None:
    """Leave what a recording from the field has: no set-up; of one, no samples of the queue."""
    leave_out(bundle, "setup", "changes", "traffic_start_uptime_s")
    for report in bundle.glob("iperf*.json"):
        report.unlink()
    if bundle.name.startswith("unsampled"):
        (bundle / "queue.csv.zst").unlink()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    folder = tmp_path_factory.mktemp("causes")
    for name, setup in WORLDS.items():
        write_bundle(setup, folder / name)
        if name.startswith(("longer", "unsampled")):
            hide(folder / name)
        elif name.startswith("shrinks"):
            leave_out(folder / name, "changes")
    return {
        bundle.name: found for bundle, found in diagnosed([*map(folder.joinpath, WORLDS)], folder)
    }


def found(made: dict[str, Diagnosis], run: str) -> dict[str, dict[str, Any]]:
    return {finding.rule.name: dict(finding.values) for finding in made[run].findings}


def test_a_queue_that_drains_does_not_date_the_change_of_a_path(made: dict[str, Diagnosis]) -> None:
    """The least RTT falls by a millisecond a second from 2 s on; the path changes at 7.2 s."""
    shorter = found(made, "drains_v1")["path_shorter"]
    at_s = (shorter["change_at"] - made["drains_v1"].zero_ns) / 1e9
    assert 7.1 <= at_s <= 7.4
    assert shorter["new_us"] < 65_000 < shorter["old_us"]


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


def test_a_queue_that_is_empty_most_of_the_time_never_stood(made: dict[str, Diagnosis]) -> None:
    """Its samples say so even where they do not tell the rate of the link."""
    assert not {"standing_queue", "bufferbloat", "min_rtt_inflated"} & set(found(made, "longer_v3"))
    assert "bufferbloat" in found(made, "deep_v1")


def test_without_samples_a_longer_path_is_not_ruled_out(made: dict[str, Diagnosis]) -> None:
    sampled = found(made, "deep_v1")["bufferbloat"]
    assert (sampled["waited"], sampled["shortest"]) == ("waited in a queue", "that the path takes")
    unknown = found(made, "unsampled_v1")["bufferbloat"]
    assert unknown["waited"] == "waited in a queue, or took a path that had become longer"
    assert unknown["shortest"] == "of its least round trip"


def test_a_flow_whose_application_writes_slowly_is_not_treated_unfairly(
    made: dict[str, Diagnosis],
) -> None:
    """It carries a fifth of its part, which is all that it has; flows of five_v1 have more."""
    unfair = {"unequal_shares", "unfair_without_loss"}
    assert "application_limited" in found(made, "slowly_v3")
    assert not unfair & set(found(made, "slowly_v3"))
    assert "unequal_shares" in found(made, "five_v1")


def test_a_single_short_round_trip_makes_no_path_shorter(made: dict[str, Diagnosis]) -> None:
    """One second, 21, has a sample of 42 ms, others 53 ms and more; drains_v1 has a real one."""
    assert "path_shorter" not in found(made, "jitters_v3")
    assert "path_shorter" in found(made, "drains_v1")


def test_a_min_rtt_that_follows_a_longer_path_late_is_no_queues(
    made: dict[str, Diagnosis],
) -> None:
    """PROBE_RTT saw the longer path seconds before min_rtt's window ended, and not after that."""
    assert "application_limited" in found(made, "unsampled_pauses_v2")
    assert "min_rtt_inflated" not in found(made, "unsampled_pauses_v2")
    assert "min_rtt_inflated" in found(made, "unsampled_v1")


def test_a_link_that_others_may_have_used_is_not_surely_idle(made: dict[str, Diagnosis]) -> None:
    """All four are in PROBE_RTT at once; no capture says that nobody else was there."""
    (told,) = (
        finding
        for finding in made["unsampled_four_v2"].findings
        if finding.rule.name == "probe_rtt_synchronised"
    )
    assert told.confidence == "low"
    assert told.values["others"].startswith("Whether another sender used")


def test_what_packets_take_that_overtake_is_not_the_paths(
    made: dict[str, Diagnosis],
) -> None:
    """Most packets take 38 ms longer; nothing waits. Without samples no queue is told of them."""
    overtaken = found(made, "unsampled_overtaken_v2")
    assert "reordering" in overtaken
    assert not {"bufferbloat", "standing_queue", "min_rtt_inflated"} & set(overtaken)


def test_a_min_rtt_of_a_packet_that_overtook_others_makes_no_path_longer(
    made: dict[str, Diagnosis],
) -> None:
    """Of few packets, so that the receiver told of less than ten holes that closed; the path's own
    round trip is 40 ms all the time, and theirs 20 ms."""
    overtaken = found(made, "seldom_overtaken_v1")
    assert "spurious_loss" in overtaken
    assert not {"reordering", "min_rtt_stale"} & set(overtaken)


def test_bounds_that_hold_back_a_slow_writer_cost_it_nothing(made: dict[str, Diagnosis]) -> None:
    """It carried all that was written; the bounds held it for two fifths of the time."""
    told = found(made, "half_v3")
    assert told["application_limited"]["goodput_bps"] > 0.97 * 6e6
    assert "stuck_at_lower_bounds" not in told


def test_a_startup_that_marks_ended_is_not_said_to_have_met_loss(
    made: dict[str, Diagnosis],
) -> None:
    """The queue marks from 1 ms on, and drops nothing."""
    assert found(made, "marks_v2")["startup_hi_starves"]["what"] == "CE marks"
    assert "heavy_loss" not in found(made, "marks_v2")


def test_packets_of_probe_rtt_that_fill_a_small_path_are_named(made: dict[str, Diagnosis]) -> None:
    """1 Mbit/s and 20 ms hold less than two packets; four of them take 48 ms."""
    small = found(made, "small_v3")["min_rtt_inflated"]
    assert small["typical_us"] == pytest.approx(4 * 1514 * 8, rel=0.01)
    assert small["is_small"]
    assert "keeps 4 packets in flight, and the path holds 1.7: with them" in small["floor"]
    large = found(made, "inflated_v3")["min_rtt_inflated"]
    assert not large["is_small"]
    assert "The path holds 37.2 packets" in large["floor"]
    for run in ("small_v3", "inflated_v3"):
        (told,) = (f for f in made[run].findings if f.rule.name == "min_rtt_inflated")
        advised = any(text.startswith("No PROBE_RTT empties") for text in told.remedies)
        assert advised == (run == "small_v3")


def test_a_queue_on_a_path_that_became_shorter_is_beside_that_path(
    made: dict[str, Diagnosis],
) -> None:
    """From 5 s on it takes 30 ms, which no packet sees, and nobody states: a rival keeps the
    queue full."""
    of_flow = found(made, "shrinks_v3")
    standing, inflated = of_flow["standing_queue"], of_flow["min_rtt_inflated"]
    assert 25_000 < standing["base_us"] < 35_000
    assert "it took then" in standing["shortest"]
    assert 25_000 < inflated["base_us"] < 35_000
    assert inflated["path"] == "the path took then without a queue,"
