"""Troubles that no kernel's recording here has, on simulated paths: the set-up says the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.bbr import params
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle

from tests.truth.simulated import diagnosed

MS, S = 1_000, 1_000_000


def world(path: PathSetup, seconds: int, *flows: FlowSetup, seed: int = 7) -> Setup:
    return Setup(path, flows, seconds * S, seed)


def flow(cc: str, seconds: int, start: int = 0) -> FlowSetup:
    return FlowSetup(cc, start * S, seconds * S)


PLAIN = PathSetup(10_000_000, 40 * MS, limit_bytes=100_000)
MARKING = PathSetup(10_000_000, 40 * MS, limit_bytes=200_000, marks_us=8 * MS, ecn=True)
SMALL_WINDOW = PathSetup(20_000_000, 60 * MS, limit_bytes=150_000, memory_bytes=100_000)
SHORTER = PathSetup(10_000_000, 90 * MS, limit_bytes=150_000, changes=((7 * S, "rtt", 30 * MS),))
WRITES = FlowSetup("v3", 0, 8 * S, kind="rate-limited", rate_bps=8_600_000)
DEEP = PathSetup(15_000_000, 40 * MS, limit_bytes=450_000)
HALF = PathSetup(20_000_000, 40 * MS, limit_bytes=50_000)
FAST = PathSetup(300_000_000, 2 * MS, limit_bytes=150_000)
JUMBO = PathSetup(400_000_000, 10 * MS, limit_bytes=750_000, burst_bytes=25_000, mss=8948)
JITTER = PathSetup(12_000_000, 50 * MS, limit_bytes=150_000, jitter_us=20 * MS)
LOSSY = PathSetup(12_000_000, 60 * MS, limit_bytes=180_000, loss=0.04)
CROWDED = PathSetup(12_000_000, 23 * MS, limit_bytes=34_500)
DEEPER = PathSetup(20_000_000, 30 * MS, limit_bytes=450_000)
SHORT = PathSetup(39_172_412, 6_777, limit_bytes=34_898)
SLOWS = ((7_782_923, "rate", 1_329_486.0),)
SLOWER = PathSetup(4_119_256, 38_445, limit_bytes=50_939, changes=SLOWS)
LOSES = PathSetup(10_984_753, 112_914, limit_bytes=263_838, loss=0.01098827668947099)
NARROW = PathSetup(3_185_235, 20_312, limit_bytes=11_234, jitter_us=4_490)
ALIKE = PathSetup(38_746_625, 23_409, limit_bytes=156_905, loss=0.033105276767344545)
APART = PathSetup(38_000_000, 23_000, limit_bytes=160_000, loss=0.033)
DRAINED = PathSetup(12_000_000, 30 * MS, limit_bytes=90_000)
HELD_BACK = PathSetup(12_000_000, 30 * MS, limit_bytes=90_000, aggregation_us=30 * MS)
VARIES = PathSetup(8_029_357, 56_233, limit_bytes=81_757, jitter_us=19_202, aggregation_us=20_755)
JOINED = PathSetup(4_868_578, 33_785, limit_bytes=54_640, jitter_us=5_037)
GROWS = ((5_519_617, "rtt", 90_393.25442450562),)
LONGER = PathSetup(22_204_500, 37_465, limit_bytes=240_780, changes=GROWS)
HALF_RANDOM = PathSetup(9_344_820, 39_922, limit_bytes=14_586, loss=0.011994617065469657)
TRICKLE = PathSetup(200_000, 40 * MS, limit_bytes=100_000)
HELD_ALONE = PathSetup(10_000_000, 40 * MS, limit_bytes=200_000, aggregation_us=20 * MS)
FASTER = ((8 * S, "rate", 25_000_000.0),)
WIDENS = PathSetup(10_000_000, 40 * MS, limit_bytes=100_000, changes=FASTER)
EIGHT_BDP = PathSetup(10_000_000, 40 * MS, limit_bytes=400_000)
THREE_PACKETS = PathSetup(6_600_000, 15 * MS, limit_bytes=4542)
GROWN = PathSetup(21_700_000, 12_600, limit_bytes=122_700, changes=((3 * S, "rtt", 18_900.0),))
SHRINKS = PathSetup(
    20_000_000, 24 * MS, limit_bytes=240_000, loss=0.005, changes=((3_500_000, "rtt", 12 * MS),)
)
OVERTAKES = PathSetup(
    13_600_000, 17_100, limit_bytes=127_000, jitter_us=3_800, reorder=0.02, reorder_us=15_200
)
BUCKET = PathSetup(2_100_000, 6_200, limit_bytes=66_000, burst_bytes=66_000, policer=True)
DOWN = PathSetup(10_000_000, 40 * MS, limit_bytes=100_000, changes=((2 * S, "outage", 1.0 * S),))
POLICED = PathSetup(8_400_000, 48 * MS, limit_bytes=67_000, burst_bytes=25_000, policer=True)
FALLS = ((5 * S, "rtt", 24 * MS), (12 * S, "rate", 5_700_000.0))
LONGER_FALLS = PathSetup(12_000_000, 12 * MS, limit_bytes=50_000, changes=FALLS)
READS = PathSetup(9_600_000, 30 * MS, limit_bytes=112_000, memory_bytes=44_000)
CAPPED = PathSetup(32_000_000, 18 * MS, limit_bytes=864_000)
APART_RTTS = PathSetup(16_000_000, 65 * MS, limit_bytes=117_000)
RACK = PathSetup(50_000_000, 400, limit_bytes=60_000)
RACK_HELD = PathSetup(50_000_000, 400, limit_bytes=60_000, aggregation_us=8 * MS)
GROWS_FAR = ((4 * S, "rtt", 80 * MS),)
SMALL_WINDOWS = PathSetup(
    20_000_000, 30 * MS, limit_bytes=150_000, memory_bytes=60_000, changes=GROWS_FAR
)
FITS = PathSetup(
    10_000_000,
    40 * MS,
    limit_bytes=60_000,
    memory_bytes=48_000,
    changes=((3_800 * MS, "outage", 1.0 * S),),
)
LATE_OR_LOST = PathSetup(20_000_000, 22 * MS, limit_bytes=150_000, loss=0.15, reorder=0.06)
DEEP_FOR_FOUR = PathSetup(12_800_000, 59 * MS, limit_bytes=470_000)
STRETCHED = PathSetup(
    40_000_000,
    20 * MS,
    limit_bytes=200_000,
    memory_bytes=100_000,
    changes=((3 * S, "rtt", 60 * MS),),
)
PROBES_BLINDLY = PathSetup(9_000_000, 45 * MS, limit_bytes=100_000, jitter_us=12 * MS, reorder=0.02)
STALE = PathSetup(15_000_000, 20 * MS, limit_bytes=75_000, changes=((3 * S, "rtt", 110.0 * MS),))
HASTY = PathSetup(20_000_000, 40 * MS, limit_bytes=600_000, reorder=0.15)
RESTS = FlowSetup("v3", 0, 15 * S, kind="on-off", on_us=5 * S, off_us=8 * S)
PAUSES = FlowSetup("v3", 0, 10 * S, kind="on-off", on_us=150 * MS, off_us=150 * MS)
BURSTS = FlowSetup("v3", 0, 8 * S, kind="on-off", on_us=60 * MS, off_us=300 * MS)
ENDS = PathSetup(44_500_000, 6_900, limit_bytes=22_000)
SHALLOW = PathSetup(13_370_000, 6_100, limit_bytes=5_300)
BEARS_5 = dict(params.DEFAULTS["v3"]) | {"loss_thresh": 13, "HZ": 1000}
LOSES_3 = PathSetup(10_000_000, 40 * MS, limit_bytes=100_000, loss=0.03)
WRITES_MOST = FlowSetup("v2", 0, 8 * S, kind="rate-limited", rate_bps=8_000_000)
WORLDS = {
    "marked_v1": world(MARKING, 8, flow("v1", 8)),
    "small_window_v3": world(SMALL_WINDOW, 6, flow("v3", 6)),
    "shorter_v1": world(SHORTER, 14, flow("v1", 14)),
    "writes_nine_tenths": world(PLAIN, 8, WRITES),
    "writes_most": world(SHALLOW, 8, WRITES_MOST, flow("reno", 8)),
    "ends_v1": world(
        ENDS, 3, *[FlowSetup("v1", at * S, 3 * S, "fixed-size", 0, 200_000) for at in range(3)]
    ),
    "late_v3": world(DEEP, 30, flow("v3", 30), flow("v3", 30, 18), seed=3),
    "beside_cubic": world(HALF, 12, flow("v1", 12), flow("cubic", 12)),
    "fast_v1": world(FAST, 1, flow("v1", 1)),
    "jumbo_v2": world(JUMBO, 4, flow("v2", 4)),
    "jitter_v1": world(JITTER, 15, flow("v1", 15), seed=1009),
    "joins_cubic_v3": world(CROWDED, 10, flow("cubic", 10), flow("v3", 10, 4)),
    "beside_pauses_v3": world(DRAINED, 10, flow("v3", 10), PAUSES),
    "held_back_v1": world(HELD_BACK, 10, flow("v1", 10), flow("v1", 10)),
    "bursts_v3": world(LOSSY, 8, BURSTS, seed=1033),
    "short_v2": world(SHORT, 18, flow("v2", 18), FlowSetup("cubic", 4_478_395, 15_087_503), seed=5),
    "slower_v1": world(SLOWER, 23, flow("v1", 23)),
    "loses_v3": world(
        LOSES, 15, flow("v3", 15), FlowSetup("v3", 2_561_047, 15 * S), seed=513029094
    ),
    "narrow_v3": world(NARROW, 24, flow("v3", 24), flow("cubic", 24), flow("v3", 24, 3)),
    "alike_v2": world(
        ALIKE,
        17,
        flow("v2", 17),
        FlowSetup("v2", 3_798_768, 17 * S),
        FlowSetup("v2", 520_677, 17 * S),
        seed=246115024,
    ),
    "apart_v2": world(APART, 15, flow("v2", 15), flow("v2", 15, 3), flow("v2", 15, 6), seed=5),
    "varies_v3": world(VARIES, 26, flow("v3", 26), seed=645763644),
    "joined_v3": world(
        JOINED, 16, flow("v3", 16), FlowSetup("v3", 2_646_367, 16 * S), seed=489377650
    ),
    "longer_v1": world(LONGER, 12, flow("v1", 12), seed=645345261),
    "unstated_longer_v1": world(LONGER, 12, flow("v1", 12), seed=645345261),
    "half_random_v2": world(
        HALF_RANDOM, 20, flow("v2", 20), FlowSetup("v2", 1_281_031, 20 * S), seed=1
    ),
    "trickle_v3": world(TRICKLE, 20, flow("v3", 20)),
    "rests_v3": world(PLAIN, 15, RESTS),
    "held_alone_v3": world(HELD_ALONE, 8, flow("v3", 8)),
    "perhaps_alone_v3": world(HELD_ALONE, 8, flow("v3", 8)),
    "widens_v2": world(WIDENS, 22, flow("v2", 22), flow("v2", 22)),
    "full_v2": world(EIGHT_BDP, 25, flow("v2", 25), flow("cubic", 25), seed=3),
    "small_beside_v3": world(
        DEEP,
        15,
        flow("v3", 15),
        flow("v3", 15, 4),
        *[FlowSetup("v3", at * S, 15 * S, "fixed-size", 0, 100_000) for at in range(5, 10)],
        seed=3,
    ),
    "three_packets_v1": world(THREE_PACKETS, 12, *[flow("v1", 12) for _ in range(6)]),
    "grown_v3": world(GROWN, 9, flow("v3", 9), flow("v3", 9, 3)),
    "shrinks_v2": world(SHRINKS, 6, flow("v2", 6)),
    "overtakes_v1": world(OVERTAKES, 6, flow("v1", 6)),
    "stale_v1": world(STALE, 16, flow("v1", 16)),
    "probes_blindly_v2": world(PROBES_BLINDLY, 12, flow("v2", 12)),
    "probes_blindly_v3": world(PROBES_BLINDLY, 12, flow("v3", 12)),
    "bucket_v2": world(BUCKET, 5, flow("v2", 5)),
    "down_v1": world(DOWN, 5, flow("v1", 5), flow("v1", 5)),
    "policed_v1": world(POLICED, 12, flow("v1", 12)),
    "longer_falls_v1": world(LONGER_FALLS, 18, flow("v1", 18)),
    "reads_v2": world(READS, 14, flow("v2", 14), flow("cubic", 14, 2)),
    "capped_v1": world(CAPPED, 9, *[flow("v1", 9) for _ in range(3)]),
    "apart_rtts_v3": world(
        APART_RTTS,
        12,
        flow("v3", 12),
        FlowSetup("v3", 62_000, 12 * S, extra_rtt_us=65 * MS),
        seed=21,
    ),
    "rack_v1": world(RACK, 2, flow("v1", 2)),
    "rack_held_v1": world(RACK_HELD, 2, flow("v1", 2)),
    "bears_2_v3": world(LOSES_3, 8, flow("v3", 8)),
    "bears_5_v3": world(LOSES_3, 8, FlowSetup("v3", 0, 8 * S, parameters=BEARS_5)),
    "windows_v3": world(SMALL_WINDOWS, 11, flow("v3", 11), flow("v3", 11, 1)),
    "late_or_lost_v3": world(LATE_OR_LOST, 6, flow("v3", 6)),
    "four_v2": world(DEEP_FOR_FOUR, 17, *[flow("v2", 17) for _ in range(4)]),
    "unstated_policed_v1": world(POLICED, 12, flow("v1", 12)),
    "stretched_v3": world(STRETCHED, 6, flow("v3", 6)),
    "fits_v1": world(FITS, 8, flow("v1", 8)),
    "hasty_v1": world(HASTY, 6, flow("v1", 6), seed=1),
    "states_cubic_v2": world(DEEPER, 12, flow("v2", 12), flow("cubic", 12)),
}
# Those whose set-up is to say nothing of who else sends.
UNSTATED = dict.fromkeys(
    ("late_v3", "joins_cubic_v3", "jumbo_v2", "perhaps_alone_v3"), ("n", "ccs", "starts")
)
# Others: nothing of the path's jitter, or of its rate, which no queue tells either.
UNSTATED |= {"varies_v3": ("jitter",), "unstated_longer_v1": ("rate",)}
UNSTATED |= {
    "shrinks_v2": ("rate", "delay"),
    "overtakes_v1": ("rate", "delay", "jitter", "reorder"),
}
UNSTATED |= {"bucket_v2": ("rate",)}
NO_QUEUE = {"apart_rtts_v3", "windows_v3", "four_v2"}
UNSTATED |= {"four_v2": ("rate",), "unstated_policed_v1": ("rate",)}
UNSTATED |= {"apart_rtts_v3": ("rate",), "windows_v3": ("rate", "delay", "n", "ccs", "starts")}
UNSTATED |= {"hasty_v1": ("delay", "reorder")}


def forget(bundle: Path, keys: tuple[str, ...]) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    for key in keys:
        del manifest["setup"][key]
    (bundle / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    folder = tmp_path_factory.mktemp("worlds")
    for name, setup in WORLDS.items():
        write_bundle(setup, folder / name)
        if name in UNSTATED:
            forget(folder / name, UNSTATED[name])
        if name in NO_QUEUE:
            (folder / name / "queue.csv.zst").unlink()
    return {
        bundle.name: found for bundle, found in diagnosed([*map(folder.joinpath, WORLDS)], folder)
    }


def found(made: dict[str, Diagnosis], run: str) -> dict[str, dict[str, Any]]:
    return {finding.rule.name: dict(finding.values) for finding in made[run].findings}


def test_marks_are_seen_by_v1s_states_without_a_capture(made: dict[str, Diagnosis]) -> None:
    assert found(made, "marked_v1")["marks_echoed"]["spells_count"] >= 10


def test_what_a_flow_bears_is_its_own_loss_thresh(made: dict[str, Diagnosis]) -> None:
    values = found(made, "bears_2_v3")["loss_above_threshold"]
    assert values["threshold_share"] == 5 / 256
    assert "loss_above_threshold" not in found(made, "bears_5_v3")


def test_a_window_that_lacks_a_burst_limits(made: dict[str, Diagnosis]) -> None:
    assert "receive_window_limited" in found(made, "small_window_v3")


def test_a_shorter_path_is_no_aggregation(made: dict[str, Diagnosis]) -> None:
    names = found(made, "shorter_v1")
    assert "path_shorter" in names
    assert "ack_aggregation" not in names


def test_acks_held_for_milliseconds_are_told_of_a_path_of_microseconds(
    made: dict[str, Diagnosis],
) -> None:
    """Its round trip takes 0.4 ms, and ACKs come every 8 ms: 33 packets at 50 Mbit/s."""
    held = found(made, "rack_held_v1")["ack_aggregation"]
    assert held["held_share"] > 0.5
    assert 20 <= held["most_packets"] <= 50
    assert "ack_aggregation" not in found(made, "rack_v1")


def test_pauses_between_writes_are_the_applications(made: dict[str, Diagnosis]) -> None:
    assert "application_limited" in found(made, "writes_nine_tenths")


def test_an_application_that_sets_the_rate_is_told_of_a_flow_with_more_than_its_part(
    made: dict[str, Diagnosis],
) -> None:
    """It writes three fifths of what the link carries, and all of it gets through."""
    values = found(made, "writes_most")["application_limited"]
    assert values["goodput_bps"] == pytest.approx(8e6, rel=0.03)
    (finding,) = [f for f in made["writes_most"].findings if f.rule.name == "application_limited"]
    assert finding.severity == "minor"


def test_what_the_queue_dropped_at_the_very_end_was_not_lost_elsewhere(
    made: dict[str, Diagnosis],
) -> None:
    """Its last flow ends before the queue is sampled again."""
    assert "heavy_loss" in found(made, "ends_v1")
    assert "loss_outside_bottleneck" not in found(made, "ends_v1")


def test_recorded_flows_are_compared_where_others_are_not_known(
    made: dict[str, Diagnosis],
) -> None:
    values = found(made, "late_v3")["unequal_shares"]
    assert (values["senders_count"], values["known"]) == (2, "recorded senders")


def test_losses_in_a_deep_buffer_are_not_blamed_on_a_shallow_one(
    made: dict[str, Diagnosis],
) -> None:
    assert "probes_overflow" not in found(made, "beside_cubic")


def test_a_bare_number_is_the_links_rate(made: dict[str, Diagnosis]) -> None:
    """Simulations write it so; tc takes it for bits per second."""
    unchecked = [check.why for check in made["fast_v1"].outcomes("not checked")]
    assert not any("the bottleneck's rate" in why for why in unchecked)


def test_startup_that_filled_the_receivers_first_window_ended_early(
    made: dict[str, Diagnosis],
) -> None:
    """Ever after the window was no limit, so that nothing else says why."""
    values = found(made, "jumbo_v2")["startup_too_early"]
    assert values["exit_share"] < 0.5
    assert values["why"].endswith("with the receiver's window full.")


def test_jitter_beside_a_queue_is_no_inflated_min_rtt(made: dict[str, Diagnosis]) -> None:
    """The queue stood while the flow believed so, and was empty when the belief was taken."""
    assert "min_rtt_inflated" not in found(made, "jitter_v1")


def test_each_round_trip_is_freed_of_what_its_own_packet_waited(
    made: dict[str, Diagnosis],
) -> None:
    """Flow 1 believed in 23.4 ms for 7 s beside a queue of 15 ms and more: the path takes 20.3. The
    median RTT less the median wait is 22 ms, a tenth over which 23.4 is not."""
    findings = made["narrow_v3"].findings
    assert {f.flow for f in findings if f.rule.name == "min_rtt_inflated"} == {1, 2}


def test_a_few_rounds_over_seconds_of_pauses_are_no_endless_startup(
    made: dict[str, Diagnosis],
) -> None:
    assert "startup_never_left" not in found(made, "bursts_v3")


def test_a_flow_that_may_not_be_alone_is_not_told_what_its_part_was(
    made: dict[str, Diagnosis],
) -> None:
    """Nothing recorded the CUBIC flow, which had half of the link and filled its queue."""
    assert "startup_too_early" not in found(made, "joins_cubic_v3")
    others = found(made, "jumbo_v2")["startup_too_early"]["others"]
    assert others.startswith("whether others were active was not recorded, but the bottleneck")


def test_flows_too_small_to_count_are_told_where_they_carried_enough_together(
    made: dict[str, Diagnosis],
) -> None:
    for run, some in (("small_beside_v3", True), ("late_v3", False)):
        told = found(made, run)["bufferbloat"]["senders"]
        assert told.startswith("Up to 2 senders were on the path in those seconds")
        assert ("not counting flows with less than a hundredth" in told) == some


def test_a_stated_rival_is_named_with_its_share(made: dict[str, Diagnosis]) -> None:
    """What CUBIC's receiver got while both flows were there."""
    values = found(made, "states_cubic_v2")["unequal_shares"]
    assert (values["senders_count"], values["known"], values["rivals_count"]) == (2, "senders", 1)
    theirs = 1 - values["part_share"] / 2
    told = f" (cubic with {100 * theirs:.1f} % of what all carried while all were there)."
    assert values["rivals"] == told


def test_an_rtt_from_timestamps_makes_no_path_shorter(made: dict[str, Diagnosis]) -> None:
    """They count milliseconds: 6 ms seen of 6.777 are the set-up's, as 18 of 20.312 with jitter."""
    short = found(made, "short_v2")
    assert short["standing_queue"]["base_us"] == 6_777
    assert "min_rtt_inflated" not in short
    bases = {f.values["base_us"] for f in made["narrow_v3"].findings if "base_us" in f.values}
    assert bases == {20_312}


def test_both_rates_of_a_path_are_told_of_a_queue_that_stood_at_both(
    made: dict[str, Diagnosis],
) -> None:
    told = found(made, "slower_v1")["standing_queue"]
    assert told["most"] == "the path carried 1.27 to"
    assert told["rate_bps"] == pytest.approx(4_119_256 * 1448 / 1514)
    assert found(made, "short_v2")["standing_queue"]["most"] == "the path carried"


def test_random_loss_is_no_overflow_of_others(made: dict[str, Diagnosis]) -> None:
    """The queue dropped nothing before two of the three cuts."""
    assert "inflight_hi_ratchet" not in found(made, "loses_v3")
    assert "loss_outside_bottleneck" in found(made, "loses_v3")
    assert found(made, "narrow_v3")["inflight_hi_ratchet"]["cuts_count"] >= 3


def test_flows_that_loss_holds_alike_starve_nobody(made: dict[str, Diagnosis]) -> None:
    """Each has two thirds of its part of the link; or one has half of what the others have."""
    assert "startup_hi_starves" not in found(made, "alike_v2")
    others = found(made, "apart_v2")["startup_hi_starves"]["others"]
    assert re.fullmatch(r"\d other recorded flows? had begun when it was set\.", others)


def test_the_whole_link_while_others_pause_is_no_burst_of_acks(made: dict[str, Diagnosis]) -> None:
    """ACKs then come as fast as the link serves, and no faster; those that were held back do."""
    assert "ack_aggregation" not in found(made, "beside_pauses_v3")
    assert "ack_aggregation" in found(made, "held_back_v1")


def test_a_queue_that_was_empty_is_none_that_never_drains(made: dict[str, Diagnosis]) -> None:
    """No fast packet of a path with jitter came just then; CUBIC's queue is never empty."""
    assert "standing_queue" not in found(made, "varies_v3")
    assert not found(made, "short_v2")["standing_queue"]["is_bunched"]


def test_cuts_that_hold_nothing_back_are_no_ratchet(made: dict[str, Diagnosis]) -> None:
    """They came with the other flow's start, and no cruise ran against the bound afterwards."""
    assert "inflight_hi_ratchet" not in found(made, "joined_v3")
    assert "inflight_hi_ratchet" in found(made, "narrow_v3")


def test_an_episode_takes_a_round_trip_of_the_path_as_it_is_then(
    made: dict[str, Diagnosis],
) -> None:
    assert "probe_rtt_long" not in found(made, "longer_v1")
    assert "probe_rtt_long" not in found(made, "unstated_longer_v1")


def test_an_episode_whose_four_packets_are_a_queue_is_long(made: dict[str, Diagnosis]) -> None:
    """They take 242 ms on 200 kbit/s, where the path takes 40 ms: that is no longer path."""
    assert "probe_rtt_long" in found(made, "trickle_v3")


def test_an_episode_that_a_pause_puts_off_costs_nothing(made: dict[str, Diagnosis]) -> None:
    """It begins when the application stops for eight seconds, and ends with the first ACK after."""
    assert "application_limited" in found(made, "rests_v3")
    assert "probe_rtt_long" not in found(made, "rests_v3")


def test_what_bursts_made_a_lone_flow_believe_is_no_measure_of_them(
    made: dict[str, Diagnosis],
) -> None:
    """18 packets are more than half of the path's 33, and less than half of what it believes in."""
    values = found(made, "held_alone_v3")["ack_aggregation"]
    assert values["most_packets"] > values["bdp_packets"] / 2
    assert "ack_aggregation" not in found(made, "perhaps_alone_v3")


def test_probes_on_a_full_link_show_nothing_that_was_to_have(made: dict[str, Diagnosis]) -> None:
    """Two flows on a link that became wider leave room; one and CUBIC leave none."""
    assert "probe_up_cut_short" in found(made, "widens_v2")
    assert "probe_up_cut_short" not in found(made, "full_v2")


def test_a_long_term_rate_costs_a_flow_of_its_own_part_alone(made: dict[str, Diagnosis]) -> None:
    """Six flows fill the link: together they miss next to nothing of it."""
    costs = [f.cost_bytes for f in made["three_packets_v1"].findings if f.rule.name == "policer"]
    link = 12 * THREE_PACKETS.rate_bps / 8 * 1448 / 1514
    assert len(costs) == 6
    assert sum(cost or 0 for cost in costs) < 0.2 * link


def test_what_holds_no_packets_and_drops_them_is_a_policer(made: dict[str, Diagnosis]) -> None:
    assert found(made, "policed_v1")["policer"]["verdict"].endswith("at any sample: a policer.")
    assert found(made, "three_packets_v1")["policer"]["verdict"].endswith("no policer.")


def test_a_descent_on_a_path_that_became_longer_waits_for_the_queue_alone(
    made: dict[str, Diagnosis],
) -> None:
    """PROBE_RTT at 10 s saw the path of 24 ms; without a change the set-up's is the path's."""
    assert found(made, "longer_falls_v1")["slow_descent"]["base_us"] == pytest.approx(24e3, rel=0.1)
    slower = found(made, "slower_v1")
    assert slower.get("slow_descent", {"base_us": 38_445})["base_us"] == 38_445


def test_a_window_carries_what_its_round_trips_then_let_it(made: dict[str, Diagnosis]) -> None:
    """With the 30 ms of the empty path it would carry all of the link, and more."""
    values = found(made, "reads_v2")["receive_window_limited"]
    assert values["rtt_us"] > 60_000
    assert values["window_bps"] == pytest.approx(8e6 * values["window_bytes"] / values["rtt_us"])
    assert values["window_bps"] < READS.rate_bps
    alone = found(made, "small_window_v3")["receive_window_limited"]
    assert alone["rtt_us"] == pytest.approx(60_000, rel=0.1)


def test_a_rate_that_nobody_stated_prices_no_time_without_a_queue(
    made: dict[str, Diagnosis],
) -> None:
    stated = found(made, "longer_v1")["min_rtt_stale"]["used"]
    assert stated == "It carried 79 % of its part of the link in that time."
    (finding,) = [
        each for each in made["unstated_longer_v1"].findings if each.rule.name == "min_rtt_stale"
    ]
    assert finding.cost_bytes is None
    assert finding.values["used"].startswith("The link's rate in that time is not known")


def test_loss_elsewhere_is_told_beside_as_many_drops(made: dict[str, Diagnosis]) -> None:
    """What the flows lost beyond the drops of their queue was not lost there."""
    values = found(made, "half_random_v2")["loss_outside_bottleneck"]
    assert values["lost_packets"] < 2 * values["dropped_packets"]
    assert "loss_outside_bottleneck" not in found(made, "late_v3")


def test_windows_of_v1_that_lack_less_than_a_burst_are_full(made: dict[str, Diagnosis]) -> None:
    """TCP splits no burst for the one packet that each of three windows has left, queue or not."""
    held = [
        f.values["held_share"] for f in made["capped_v1"].findings if f.rule.name == "inflight_cap"
    ]
    assert len(held) == 3
    assert min(held) > 0.5


def test_more_than_an_equal_part_of_what_all_carried_is_not_held_back(
    made: dict[str, Diagnosis],
) -> None:
    """The shorter path's flow has two thirds of a full link, whose rate is not known."""
    flows = made["apart_rtts_v3"].flows
    held = {
        f.flow for f in made["apart_rtts_v3"].findings if f.rule.name == "stuck_at_lower_bounds"
    }
    assert flows[1].goodput > 1.5 * flows[2].goodput
    assert 1 not in held


def test_a_lone_flow_is_not_cleared_of_what_others_do_to_it(made: dict[str, Diagnosis]) -> None:
    compare = {"unequal_shares", "not_converged", "inflight_hi_ratchet", "startup_hi_starves"}
    for run, known in (("held_alone_v3", True), ("perhaps_alone_v3", False)):
        clear = {check.rule.name for check in made[run].outcomes("clear")}
        assert compare & clear == (compare if known else set())


def test_a_path_that_carries_others_is_not_down(made: dict[str, Diagnosis]) -> None:
    """Six flows whose windows a queue of three packets drops; and two on a path that is down."""
    for run, up in (("three_packets_v1", True), ("down_v1", False)):
        silent = [one.values["beside"] for one in made[run].findings if one.rule.name == "outage"]
        assert silent
        assert all(words.endswith("the path was up.") == up for words in silent)


def test_a_queue_on_a_path_that_became_longer_is_told_by_the_longer_one(
    made: dict[str, Diagnosis],
) -> None:
    queues = [one for one in made["grown_v3"].findings if one.rule.name == "bufferbloat"]
    assert [one.values["base_us"] for one in queues] == [pytest.approx(18_900, rel=0.05)] * 2


def test_a_longer_path_before_is_no_queue_of_a_link_of_unknown_rate(
    made: dict[str, Diagnosis],
) -> None:
    """What its queue held is sent in less than a millisecond, by what the flow itself carried."""
    assert "bufferbloat" not in found(made, "shrinks_v2")


def test_packets_that_came_late_are_no_loss_near_the_cliff(made: dict[str, Diagnosis]) -> None:
    rules = found(made, "overtakes_v1")
    assert "loss_near_gain_cliff" not in rules
    assert rules["reordering"]["window_ratio"] < 1
    assert rules["reordering"]["base_us"] > 15_000


def test_a_policer_is_told_and_what_its_bucket_let_pass_is_no_price(
    made: dict[str, Diagnosis],
) -> None:
    (one,) = [x for x in made["bucket_v2"].findings if x.rule.name == "loss_above_threshold"]
    assert one.values["queue"].endswith("by a policer.")
    assert one.cost_bytes is not None
    assert one.cost_bytes < 2_100_000 / 8 * 5


def test_a_longer_path_of_two_small_windows_is_no_queue(made: dict[str, Diagnosis]) -> None:
    """PROBE_RTT takes two thirds of a flow's packets out of it, and no round trip is shorter."""
    named = {finding.rule.name for finding in made["windows_v3"].findings}
    assert "receive_window_limited" in named
    assert not named & {"standing_queue", "bufferbloat", "min_rtt_inflated"}


def test_a_full_window_that_carries_all_of_the_link_costs_nothing(
    made: dict[str, Diagnosis],
) -> None:
    """Beside it the path was down for a second, which is no window's."""
    costs = {finding.rule.name: finding.cost_s for finding in made["fits_v1"].findings}
    assert costs["outage"] > 1
    assert costs["receive_window_limited"] < 0.3


def test_a_packet_that_none_was_sent_before_is_no_measure_of_a_path_that_reorders(
    made: dict[str, Diagnosis],
) -> None:
    """A flow's first packet took half of the path's delay, and overtook nothing."""
    values = found(made, "hasty_v1")["reordering"]
    assert values["base_us"] == pytest.approx(40_000, rel=0.1)


def test_a_window_on_a_path_that_changes_carried_what_each_of_its_round_trips_let_it(
    made: dict[str, Diagnosis],
) -> None:
    """Three of four round trips are the shorter ones: by their mean length it would be less."""
    values = found(made, "stretched_v3")["receive_window_limited"]
    assert values["limited_share"] > 0.9
    assert values["window_bps"] >= values["goodput_bps"]


def test_samples_of_a_policer_tell_it_without_the_links_rate(made: dict[str, Diagnosis]) -> None:
    values = found(made, "unstated_policed_v1")["policer"]
    assert values["verdict"].endswith("at any sample: a policer.")


def test_what_recoveries_that_were_undone_cost_is_not_what_losses_did(
    made: dict[str, Diagnosis],
) -> None:
    """Of the seconds with an undo most is missing, and nearly all that was marked was lost."""
    (diagnosis,) = [f for f in made["late_or_lost_v3"].findings if f.rule.name == "spurious_loss"]
    assert diagnosis.values["undone_count"] >= 3
    assert diagnosis.severity == "minor"


def test_what_an_undo_gives_back_is_not_what_the_recovery_cost(
    made: dict[str, Diagnosis],
) -> None:
    """Of the same seconds most is missing for a window by the min_rtt of packets that overtook."""
    overtaken = {f.rule.name: f for f in made["overtakes_v1"].findings}
    assert overtaken["spurious_loss"].severity == "minor"
    assert overtaken["reordering"].cost_bytes > 5 * overtaken["spurious_loss"].cost_bytes


def test_a_link_of_unknown_rate_carries_what_all_had_in_their_best_second(
    made: dict[str, Diagnosis],
) -> None:
    """Three PROBE_RTTs of 200 ms, all four at once: the most that one flow believed in is less."""
    values = found(made, "four_v2")["probe_rtt_synchronised"]
    assert 0.2 < values["idle_s"] < values["together_s"]


def test_probes_that_end_at_once_by_a_min_rtt_of_overtakers_are_priced_where_they_are_told(
    made: dict[str, Diagnosis],
) -> None:
    """v2 takes what the longer path holds for its probe's queue; v3 has no such check."""
    (v2,) = [f for f in made["probes_blindly_v2"].findings if f.rule.name == "reordering"]
    assert v2.values["cut_count"] > 0.8 * v2.values["probes_count"]
    assert v2.values["to_bps"] < v2.values["from_bps"]
    assert v2.severity == "severe"
    assert found(made, "probes_blindly_v3")["reordering"]["cut_count"] is None


def test_a_min_rtt_of_a_shorter_path_costs_until_the_rate_that_it_let_through_is_made_good(
    made: dict[str, Diagnosis],
) -> None:
    """To the round trip, not to whole seconds; and its window is all that max_bw has seen."""
    diagnosis = made["stale_v1"]
    (one,) = [each for each in diagnosis.findings if each.rule.name == "min_rtt_stale"]
    begins, ends = ((at - diagnosis.zero_ns) / 1e9 for at in (one.t0_ns, one.t1_ns))
    assert begins == pytest.approx(3.09, abs=0.1)
    assert ends == pytest.approx(10, abs=0.1)
    assert one.values["held_s"] == pytest.approx(ends - begins)
    assert one.values["low_bps"] < 0.2 * STALE.rate_bps
    assert (one.values["back_at"] - diagnosis.zero_ns) / 1e9 == pytest.approx(12, abs=0.3)
    assert one.cost_s == pytest.approx(
        (1 - 0.24) * one.values["held_s"] + (1 - one.values["back_share"]) * one.values["back_s"],
        rel=0.05,
    )
