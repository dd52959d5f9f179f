"""A path comes back from its recording alone: rate, RTT, buffer, losses, and what changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr.records import MAIN
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.closed_loop import check_fit, intervals, outcomes_of
from bbrscope.analyze.simulate.path_ends import untold
from bbrscope.analyze.simulate.recorded_rates import _fastest, _Window
from bbrscope.analyze.simulate.recorded_reordering import wait_us
from bbrscope.analyze.simulate.recorded_world import RecordedWorld, recorded_world
from bbrscope.analyze.simulate.simulation import simulate
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.simulate.write_bundle import write_bundle
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.probes.base.errors import BbrscopeError

PLAIN = PathSetup(20_000_000, 30_000, limit_packets=50)
OVERTAKING = replace(PLAIN, rtt_us=38_000, reorder=0.02, reorder_us=8000, in_skbs=True)


def fitted(path: PathSetup, folder: Path, *flows: FlowSetup) -> RecordedWorld:
    """Simulate flows on a path, and fit it from the recording alone."""
    write_bundle(Setup(path, flows, max(flow.stop_us for flow in flows)), folder / "sim")
    with open_store(folder / "s.duckdb") as store:
        ingest(store, folder / "sim")
        info = run_info(store.con, store.run_id("sim"))
        return recorded_world(store.con, info, alone=True)


@pytest.mark.parametrize(
    ("cc", "path"),
    [
        ("v1", replace(PLAIN, loss=0.01)),
        ("v1", replace(PLAIN, loss=0.01, in_skbs=True)),
        ("v2", replace(PLAIN, loss=0.01, in_skbs=True, whole_skbs=True)),
        ("v3", replace(PLAIN, loss=0.01, in_skbs=True, whole_skbs=True)),
        ("v2", replace(PLAIN, limit_packets=20, loss=0.02)),
        ("v3", replace(PLAIN, loss=0.01, aggregation_us=8000)),
        ("v3", OVERTAKING),
        ("v3", replace(OVERTAKING, reorder=0.04, reorder_again=0.3)),
        ("v1", replace(PLAIN, changes=((3_000_000, "rate", 8e6),))),
        ("v2", replace(PLAIN, changes=((3_000_000, "down", 1.2e6),))),
        ("v3", replace(PLAIN, changes=((3_000_000, "acks", 1.2e6),))),
        # RTTs of retransmissions are in whole milliseconds.
        ("v2", replace(PLAIN, rtt_us=30_700, loss=0.01)),
        # The link's packet lasts 4 ms, or 0.3: SACKs are held back for less than one, or for three.
        ("v1", PathSetup(3_000_000, 80_000, limit_packets=5)),
        ("v3", PathSetup(35_000_000, 25_000, limit_packets=36)),
        # Hardly ever a queue: what was delivered without one does not tell the rate.
        ("v2", PathSetup(15_000_000, 60_000, limit_packets=74, loss=0.02)),
        ("v1", replace(PLAIN, rtt_us=45_000, limit_packets=90, aggregation_us=6000)),
        # What STARTUP delivers in the first second is no rate of the path.
        ("v1", PathSetup(60_000_000, 120_000, limit_packets=600, loss=0.01)),
        # At the higher rate the same buffer is full after a fifth of the time.
        ("v1", replace(PLAIN, changes=((3_000_000, "rate", 100e6),))),
    ],
)
def test_what_a_path_does_is_found(cc: str, path: PathSetup, tmp_path: Path) -> None:
    world = fitted(path, tmp_path, FlowSetup(cc, 0, 6_000_000))
    found = world.setup.path
    assert not world.is_described
    assert found.rate_bps == pytest.approx(path.rate_bps, rel=0.03)
    assert found.rtt_us == pytest.approx(path.rtt_us, abs=20 + path.aggregation_us / 50)
    assert world.fit
    if not world.fit.least_packets:
        assert found.limit_packets == pytest.approx(path.limit_packets, rel=0.03, abs=0)
    else:
        assert world.fit.least_packets <= path.limit_packets
    assert found.in_skbs == path.in_skbs
    assert found.whole_skbs == path.whole_skbs
    assert found.loss == pytest.approx(path.loss, rel=0.4)
    assert found.aggregation_us == path.aggregation_us
    assert found.reorder_us == pytest.approx(path.reorder_us, abs=500)
    assert found.reorder == pytest.approx(path.reorder, rel=0.35)
    assert found.reorder_again == pytest.approx(path.reorder_again or path.reorder, abs=0.12)
    assert [what for _, what, _ in found.changes] == [what for _, what, _ in path.changes]
    for (at, _, value), (true_at, _, true_value) in zip(found.changes, path.changes, strict=True):
        assert at == pytest.approx(true_at, abs=250_000)
        assert value == pytest.approx(true_value, rel=0.25)


@pytest.mark.parametrize(
    ("cc", "path"),
    [
        ("v1", PathSetup(180_000_000, 27_000, limit_packets=742, burst_bytes=32_000)),
        ("v2", PathSetup(50_000_000, 60_000, limit_packets=500, burst_bytes=64_000)),
        # What a full bucket lets through at once makes samples of a twentieth beyond the rate.
        ("v3", PathSetup(20_000_000, 30_000, limit_packets=50, burst_bytes=32_000)),
        ("v2", PathSetup(30_000_000, 50_000, limit_packets=400, burst_bytes=250_000, loss=0.01)),
        ("v3", PLAIN),
    ],
)
def test_what_a_bucket_lets_through_at_once_is_found(
    cc: str, path: PathSetup, tmp_path: Path
) -> None:
    found = fitted(path, tmp_path, FlowSetup(cc, 0, 5_000_000)).setup.path
    assert found.burst_bytes == pytest.approx(path.burst_bytes, rel=0.05)
    assert found.rate_bps == pytest.approx(path.rate_bps, rel=0.02)
    assert found.rtt_us == pytest.approx(path.rtt_us, abs=20)


@pytest.mark.parametrize("cc", ["v1", "v3"])
def test_a_bucket_is_found_from_the_time_before_others_came(cc: str, tmp_path: Path) -> None:
    path = replace(PLAIN, limit_packets=100, burst_bytes=32_000)
    flows = FlowSetup(cc, 0, 20_000_000), FlowSetup("cubic", 6_000_000, 20_000_000)
    setup = fitted(path, tmp_path, *flows).setup
    assert setup.path.burst_bytes == pytest.approx(path.burst_bytes, rel=0.05)
    assert setup.path.rate_bps == pytest.approx(path.rate_bps, rel=0.02)
    (others,) = (flow for flow in setup.flows if flow.unseen)
    assert others.start_us == pytest.approx(6_000_000, abs=1_000_000)


def test_a_path_that_hardly_queues_at_first_is_not_taken_for_the_sender(tmp_path: Path) -> None:
    """v3 has a queue only while it probes; when the rate rose it shows as it probes again."""
    path = replace(PLAIN, changes=((3_000_000, "rate", 45e6),))
    found = fitted(path, tmp_path, FlowSetup("v3", 0, 6_000_000)).setup.path
    assert found.rate_bps == pytest.approx(path.rate_bps, rel=0.03)
    ((at, what, value),) = found.changes
    assert (what, value) == ("rate", pytest.approx(45e6, rel=0.03))
    assert 3_000_000 < at < 4_500_000


def test_how_a_flow_began_is_found(tmp_path: Path) -> None:
    """Whether ARP came first, whether iperf3's cookie did, and when data followed."""
    path = replace(PLAIN, unresolved=True)
    flow = FlowSetup("v2", 0, 3_000_000, cookie=False, begins_us=15_000)
    world = fitted(path, tmp_path, flow)
    found = world.setup.flows[0]
    assert world.setup.path.unresolved
    assert (found.cookie, found.begins_us) == (False, pytest.approx(15_000, abs=1000))
    own = intervals(outcomes_of(world.setup, 3))
    assert own["goodput_mbps"][1] == pytest.approx(world.recorded["goodput_mbps"], rel=0.02)
    (tmp_path / "iperf3").mkdir()
    world = fitted(PLAIN, tmp_path / "iperf3", FlowSetup("v2", 0, 3_000_000))
    assert not world.setup.path.unresolved
    begins = world.setup.flows[0].begins_us
    assert (world.setup.flows[0].cookie, begins) == (
        True,
        pytest.approx(1.5 * PLAIN.rtt_us, abs=1000),
    )


def _silences_ms(path: PathSetup, flow: FlowSetup) -> list[float]:
    """How long no ACK came, each time that it was for longer than a round trip and a half."""
    times: list[Any] = []

    def take(events: Any, _states: Any, out: Any) -> None:
        times.append(out["ns"][events["ctl"]["kind"] == MAIN])

    simulate(Setup(path, (flow,), flow.stop_us), take)
    gaps = np.diff(np.concatenate(times)[10:]) / 1e6
    return [float(gap) for gap in gaps if gap > 1.5 * path.rtt_us / 1000]


@pytest.mark.parametrize("cc", ["v1", "v2", "v3"])
@pytest.mark.parametrize("lost_us", [70_000, 110_000])
def test_acks_that_were_lost_for_less_than_a_timeout_are_found(
    cc: str, lost_us: int, tmp_path: Path
) -> None:
    """How long tells only what the sender has on its way: if it waits for ACKs, till it probes."""
    flow = FlowSetup(cc, 0, 6_000_000)
    path = replace(PLAIN, changes=((2_500_000, "acks", lost_us), (4_000_000, "acks", lost_us)))
    found = fitted(path, tmp_path, flow).setup.path
    assert [what for _, what, _ in found.changes] == ["acks", "acks"]
    for (at, _, lasted), (true, _, _) in zip(found.changes, path.changes, strict=True):
        assert at == pytest.approx(true, abs=6000)
        assert lasted > lost_us - 20_000
    assert len(_silences_ms(path, flow)) == 2
    # It ends a packet's queue earlier, or when a probe goes, two RTTs with their queues later.
    queue_ms = PLAIN.limit_packets * 1514 * 8e3 / PLAIN.rate_bps
    again = _silences_ms(found, flow)
    assert again == pytest.approx(_silences_ms(path, flow), abs=2 * queue_ms)


def test_a_silence_of_which_a_delayed_ack_tells_is_no_loss_of_acks(tmp_path: Path) -> None:
    slow = FlowSetup("v2", 0, 6_000_000, kind="on-off", on_us=50_000, off_us=150_000)
    assert not fitted(PLAIN, tmp_path, slow).setup.path.changes


def test_timeouts_where_acks_alone_were_lost_say_nothing_of_the_buffer(tmp_path: Path) -> None:
    path = replace(PLAIN, limit_packets=5000, changes=((3_000_000, "acks", 1.2e6),))
    flow = FlowSetup("v1", 0, 6_000_000)
    world = fitted(path, tmp_path, flow)
    assert world.fit
    assert world.fit.least_packets


@pytest.mark.parametrize(
    ("cc", "rate_bps", "rtt_us", "burst_bytes"),
    [
        ("v1", 12_000_000, 58_000, 348_000),
        ("v2", 5_000_000, 18_000, 19_000),
        ("v3", 60_000_000, 25_000, 860_000),
    ],
)
def test_a_policer_is_no_random_loss(
    cc: str, rate_bps: int, rtt_us: int, burst_bytes: int, tmp_path: Path
) -> None:
    """What its bucket does not cover is dropped, and nothing is queued."""
    path = PathSetup(rate_bps, rtt_us, policer=True, burst_bytes=burst_bytes)
    world = fitted(path, tmp_path, FlowSetup(cc, 0, 10_000_000))
    found = world.setup.path
    assert (found.policer, found.loss, found.limit_packets) == (True, 0, 0)
    assert found.rate_bps == pytest.approx(rate_bps, rel=0.01)
    assert found.burst_bytes == pytest.approx(burst_bytes, rel=0.06)
    assert found.rtt_us == pytest.approx(rtt_us, abs=300)
    own = intervals(outcomes_of(world.setup, 3))
    check_fit(world, own)
    assert own["goodput_mbps"][1] == pytest.approx(world.recorded["goodput_mbps"], rel=0.05)


def test_random_loss_is_no_policer(tmp_path: Path) -> None:
    """As much of it as makes a policer of it for v1, and so little data that none is queued."""
    flow = FlowSetup("v1", 0, 8_000_000, kind="rate-limited", rate_bps=4_000_000)
    found = fitted(replace(PLAIN, loss=0.02), tmp_path, flow).setup.path
    assert not found.policer
    assert found.loss == pytest.approx(0.02, rel=0.5)


def test_an_application_that_writes_slowly_is_no_slow_path(tmp_path: Path) -> None:
    flow = FlowSetup("v3", 0, 6_000_000, kind="rate-limited", rate_bps=6_000_000)
    world = fitted(PLAIN, tmp_path, flow)
    assert world.setup.flows[0].rate_bps == pytest.approx(6e6, rel=0.02)
    own = intervals(outcomes_of(world.setup, 3))
    check_fit(world, own)
    assert own["goodput_mbps"][1] == pytest.approx(world.recorded["goodput_mbps"], rel=0.03)
    wrong = replace(world, recorded=world.recorded | {"goodput_mbps": 9.0})
    with pytest.raises(BbrscopeError, match="cannot be fitted from the recording alone"):
        check_fit(wrong, own)


def test_others_on_the_path_are_no_slower_path(tmp_path: Path) -> None:
    """Though what they leave changes: first 7.1, then 6.1 Mbit/s."""
    flows = FlowSetup("v1", 0, 16_000_000), FlowSetup("cubic", 3_000_000, 16_000_000)
    path = replace(PLAIN, rate_bps=10_000_000, rtt_us=40_000, limit_packets=66)
    world = fitted(path, tmp_path, *flows)
    assert world.setup.path.rate_bps == pytest.approx(path.rate_bps, rel=0.03)
    (others,) = (flow for flow in world.setup.flows if flow.unseen)
    assert others.cc == "cubic"
    assert others.start_us == pytest.approx(3e6, abs=1e6)
    own = intervals(outcomes_of(world.setup, 3))
    for name in ("goodput_mbps", "rtt_p50_ms"):
        assert own[name][1] == pytest.approx(world.recorded[name], rel=0.1)


def test_jitter_is_told_and_is_no_busy_host(tmp_path: Path) -> None:
    """Not fitted, its ACKs are those of hosts that are always busy; written down, they are not."""
    path = PathSetup(12_000_000, 30_000, limit_packets=60, jitter_us=3000)
    flow = FlowSetup("v1", 0, 8_000_000)
    assert any("as with jitter" in told for told in fitted(path, tmp_path, flow).uncovered)
    with open_store(tmp_path / "s.duckdb") as store:
        world = recorded_world(store.con, run_info(store.con, store.run_id("sim")))
    own = intervals(outcomes_of(world.setup, 3))
    for name in ("goodput_mbps", "rtt_p50_ms"):
        assert own[name][1] == pytest.approx(world.recorded[name], rel=0.03)


def test_what_no_fit_has_is_told(tmp_path: Path) -> None:
    """Pauses of the application, and others that were there before the recording began."""
    flow = FlowSetup("v3", 0, 8_000_000, kind="on-off", on_us=1_000_000, off_us=1_000_000)
    (told,) = fitted(PLAIN, tmp_path, flow).uncovered
    assert "paused" in told
    (tmp_path / "beside").mkdir()
    flows = FlowSetup("v1", 2_000_000, 18_000_000), FlowSetup("cubic", 0, 18_000_000)
    path = replace(PLAIN, rate_bps=10_000_000, rtt_us=40_000, limit_packets=66)
    (told,) = fitted(path, tmp_path / "beside", *flows).uncovered
    assert "others may have used the path" in told
    (tmp_path / "alone").mkdir()
    alone = fitted(path, tmp_path / "alone", FlowSetup("v1", 0, 16_000_000))
    assert alone.uncovered == ()


@pytest.mark.parametrize(("cc", "rtt_us"), [("v1", 65_000), ("v3", 20_000)])
def test_a_round_trip_that_changed_is_no_queue(cc: str, rtt_us: int, tmp_path: Path) -> None:
    """It is as long as the shortest RTT from then on, and the buffer is what was queued beyond."""
    path = PathSetup(8_000_000, 40_000, 20, changes=((4_000_000, "rtt", rtt_us),))
    world = fitted(path, tmp_path, FlowSetup(cc, 0, 16_000_000))
    found = world.setup.path
    assert found.rtt_us == pytest.approx(path.rtt_us, abs=50)
    ((at, what, value),) = found.changes
    assert (what, value) == ("rtt", pytest.approx(rtt_us, abs=50))
    assert at == pytest.approx(4_000_000, abs=200_000)
    assert found.limit_packets == pytest.approx(path.limit_packets, rel=0.03)
    assert not world.uncovered


def test_a_round_trip_that_fell_and_was_not_met_since_is_not_told(tmp_path: Path) -> None:
    path = replace(PLAIN, rtt_us=60_000, changes=((5_000_000, "rtt", 25_000),))
    world = fitted(path, tmp_path, FlowSetup("v3", 0, 9_000_000))
    assert any("its round trip fell at" in each for each in world.uncovered)


def test_the_receivers_window_is_no_slow_path(tmp_path: Path) -> None:
    """No queue ever was: what the path carries is left open, and its buffer."""
    path = PathSetup(50_000_000, 60_000, limit_packets=250, memory_bytes=200_000)
    world = fitted(path, tmp_path, FlowSetup("v2", 0, 4_000_000))
    assert world.setup.path.memory_bytes == pytest.approx(200_000, rel=0.01)
    rates = [end.rate_bps for end in world.ends]
    assert rates[0] < path.rate_bps < rates[-1]
    (told,) = untold(world.ends)
    assert told.startswith("no queue ever was: what it carries is taken as between ")
    own = intervals(outcomes_of(world.setup, 3))
    assert own["goodput_mbps"][1] == pytest.approx(world.recorded["goodput_mbps"], rel=0.02)
    assert own["lost_packets"][1] == 0


def test_a_limit_of_the_pacing_is_no_slow_path(tmp_path: Path) -> None:
    world = fitted(PLAIN, tmp_path, FlowSetup("v1", 0, 4_000_000, most_paced=500_000))
    assert world.setup.flows[0].most_paced == 500_000
    own = intervals(outcomes_of(world.setup, 3))
    assert own["goodput_mbps"][1] == pytest.approx(world.recorded["goodput_mbps"], rel=0.02)
    assert own["lost_packets"][1] == 0


def test_the_rate_shows_though_the_application_pauses(tmp_path: Path) -> None:
    """The kernel's samples begin with what was sent before the pause."""
    path = replace(PLAIN, rtt_us=45_000, limit_packets=74)
    flow = FlowSetup("v2", 0, 5_000_000, kind="rate-limited", rate_bps=3_000_000)
    world = fitted(path, tmp_path, flow)
    assert world.setup.path.rate_bps == pytest.approx(path.rate_bps, rel=0.03)
    # Its pauses are those of an application that writes so much, as simulations have.
    assert not world.uncovered


def test_random_losses_at_some_times_only_are_told(tmp_path: Path) -> None:
    """What other rules would meet then is not what they meet all the time."""
    flow = FlowSetup("v1", 0, 10_000_000)
    late = fitted(replace(PLAIN, changes=((5_000_000, "loss", 0.02),)), tmp_path, flow)
    assert any("random losses come in bursts" in each for each in late.uncovered)
    (tmp_path / "even").mkdir()
    even = fitted(replace(PLAIN, loss=0.02), tmp_path / "even", flow)
    assert even.uncovered == ()


def test_the_slower_of_two_seconds_is_not_the_rate() -> None:
    """A queue in the first second, and in that in which others came; what had none tells less."""
    seconds = (0, 20e6, True), (1, 19.8e6, False), (3, 16.7e6, True)
    windows = [_Window(number, rate, told, told) for number, rate, told in seconds]
    assert _fastest(windows) == 20e6


def test_how_long_packets_wait_is_found_where_few_of_them_meet_no_queue() -> None:
    draws = np.random.default_rng(1)
    # A queue of 1 to 20 ms, empty for one packet in a hundred.
    queue_us = np.where(draws.random(8000) < 0.01, 0.0, draws.uniform(1000, 20_000, 8000))
    waits = np.where(draws.random(8000) < 0.03, 0.0, 8000.0)
    rtts = 40_000 + waits + queue_us + draws.uniform(0, 60, 8000)
    assert wait_us(rtts, 0.03) == pytest.approx(8000, abs=100)
