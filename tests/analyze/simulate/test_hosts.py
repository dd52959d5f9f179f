"""Timers and receivers' memory, as recordings of kernels show them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bbrscope.analyze.bbr.records import INIT
from bbrscope.analyze.simulate.sender.estimator import clock_ticks
from bbrscope.analyze.simulate.sender.timers import wheel_ns
from bbrscope.analyze.simulate.simulation import check_cwnd, simulate
from bbrscope.analyze.simulate.world.receiver import (
    _ack_snd_check,
    _adjust_space,
    _cleanup_rbuf,
    _grow_window,
    _read,
    _time_window,
    _update_rtt,
    send_ack,
)
from bbrscope.analyze.simulate.world.timestamps import timestamp_ms
from bbrscope.analyze.simulate.world.world_arrays import Arrays, arrays
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.probes.base.errors import BbrscopeError

_S, _MS = 1_000_000, 1_000_000  # us, ns
_PATH = PathSetup(10_000_000, 40_000, limit_packets=33)


def _world(cc: str = "v2", seed: int = 0) -> Arrays:
    return arrays(Setup(_PATH, (FlowSetup(cc, 0, _S),), _S, seed), record=False)


@pytest.mark.parametrize(
    ("jiffies", "wait_ms", "fires"),
    [
        # The three timeouts of v2_outage_rto: 241 ms, twice and four times.
        (4294702592, 482, 4294703080),
        (4294703080, 964, 4294704064),
        (4294704064, 40, 4294704064 + 41),
    ],
)
def test_timers_fire_where_the_wheel_has_a_place(jiffies: int, wait_ms: int, fires: int) -> None:
    # 2 ** 18 ticks later places of all levels are the same.
    now_ms = jiffies - (1 << 32) + (1 << 18) - clock_ticks(0, 1000)
    assert wheel_ns(now_ms * _MS + 300, wait_ms * 1000, 1000) == (now_ms + fires - jiffies) * _MS


def test_sacks_that_are_held_back_come_at_the_end_of_their_timers_range() -> None:
    """1 ms and 0.1 ms of slack: 1.120 ms to 1.123 ms after the packet in the captures."""
    memory = _world()
    flow = memory.parts["flows"]
    flow["ooo"], flow["dup_acks"], flow["rcv_rtt"] = 1, 3, 40_000 << 3
    _ack_snd_check(memory.sim, 0)
    assert flow["comp_ns"][0] == 1_100_000


def test_a_receivers_memory_grows_by_what_is_read_in_a_round_trip() -> None:
    """v2_single_1bdp's capture: after a cookie and 13 segments the window is 98,816 bytes at most,
    which is what 67 segments of 2984 bytes of memory leave beside the one that has come."""
    memory = _world()
    flow = memory.parts["flows"]
    assert flow["rcv_clamp"][0] == 64_088  # a segment less than half of 131,072
    flow["rcv_nxt"], flow["rcv_rtt"] = 14, 60_000 << 3
    _adjust_space(memory.sim, 0, 100 * _MS)
    assert flow["rcv_clamp"][0] == (67 * 2984 - 2344) // 2
    assert -(-int(flow["rcv_clamp"][0]) // 512) * 512 == 98_816


def test_a_window_does_not_grow_into_what_waits_for_a_hole() -> None:
    """A guest's receiver (6.1) advertised no more while 50 to 110 segments waited for holes."""
    memory = _world("v1")
    flow = memory.parts["flows"]
    flow["rcv_clamp"], flow["rcv_ssthresh"], flow["rcv_held"] = 340_000, 237_000, 87
    _grow_window(memory.sim, 0, 1)
    space = 340_000 - 87 * 2344 // 2
    assert flow["rcv_ssthresh"][0] == space
    flow["quick"], flow["rcv_held"] = 16, 200
    send_ack(memory.sim, 0)
    assert flow["quick"][0] == 0  # less than half is free
    flow["rcv_held"] = 0
    _grow_window(memory.sim, 0, 1)
    assert flow["rcv_ssthresh"][0] == space + 2 * 1448
    _grow_window(memory.sim, 0, 2)  # an skb in one piece: twice its length
    assert flow["rcv_ssthresh"][0] == space + 6 * 1448


def test_a_receivers_round_trip_is_the_shortest_until_timestamps_say_more() -> None:
    memory = _world()
    flow = memory.parts["flows"]
    for sample, of_window, comes_to in (
        (80_000, False, 80_000),
        (53_000, True, 53_000),
        (90_000, True, 53_000),
        (61_000, False, 54_000),
    ):
        _update_rtt(memory.sim, 0, sample, of_window)
        assert flow["rcv_rtt"][0] >> 3 == comes_to
    flow["rcv_right"], memory.world["now"] = 44, 1 * _MS
    _time_window(memory.sim, 0)
    assert (flow["rcv_rtt_seq"][0], flow["rcv_rtt_time"][0]) == (44, 1 * _MS)
    flow["rcv_nxt"], flow["rcv_wup"], memory.world["now"] = 44, 44, 51 * _MS
    _time_window(memory.sim, 0)
    assert flow["rcv_rtt"][0] >> 3 == 50_000


def test_v3s_receiver_has_the_window_of_its_capture() -> None:
    memory = _world("v3")
    assert -(-int(memory.parts["flows"]["rcv_clamp"][0]) // 512) * 512 == 77_312


def test_segments_of_one_burst_are_read_together() -> None:
    memory = _world()
    flow = memory.parts["flows"]
    flow["rcv_nxt"], flow["rcv_rtt"], flow["last_data_ns"] = 12, 1 << 3, 99 * _MS
    memory.world["now"] = 99 * _MS + 10_000
    _read(memory.sim, 0)
    assert flow["rcv_copied"][0] == 0
    memory.world["now"] = 100 * _MS
    _read(memory.sim, 0)
    assert (flow["rcv_copied"][0], flow["rcv_space_time"][0]) == (12, 99 * _MS + 20_000)


@pytest.mark.parametrize(
    ("cc", "over_200_us", "beyond_us"), [("v1", 0.348, 356), ("v2", 0.348, 356), ("v3", 0.052, 247)]
)
def test_what_comes_right_behind_is_read_when_the_recorder_lets_go(
    cc: str, over_200_us: float, beyond_us: float
) -> None:
    """As in 583 (6.1) and 705 (6.12) such segments of the captures, where ACKs take 19 us."""
    setup = Setup(replace(_PATH, late_readers=True), (FlowSetup(cc, 0, _S),), _S)
    memory = arrays(setup, record=False)
    flow = memory.parts["flows"]
    flow["rcv_nxt"], flow["pushed"] = 1, 1
    waits = []
    for _ in range(4000):
        memory.world["heap_size"] = 0
        _cleanup_rbuf(memory.sim, 0, True)
        waits.append(19 + flow["delack_ns"][0] / 1000)
    late = [wait - 200 for wait in waits if wait > 200]
    assert min(waits) == pytest.approx(74, abs=1)
    assert len(late) / len(waits) == pytest.approx(over_200_us, abs=0.025)
    assert sum(late) / len(late) == pytest.approx(beyond_us, rel=0.1)


@pytest.mark.parametrize(("late_readers", "behind"), [(True, False), (False, True)])
def test_else_what_has_psh_is_read_and_answered_at_once(late_readers: bool, behind: bool) -> None:
    setup = Setup(replace(_PATH, late_readers=late_readers), (FlowSetup("v1", 0, _S),), _S)
    memory = arrays(setup, record=False)
    flow = memory.parts["flows"]
    flow["rcv_nxt"], flow["pushed"] = 1, 1
    _cleanup_rbuf(memory.sim, 0, behind)
    assert flow["rcv_wup"][0] == 1


def test_a_run_begins_at_any_point_of_a_timestamps_millisecond() -> None:
    phases = {int(_world(seed=seed).world["timestamp_phase_ns"][0]) for seed in range(10)}
    assert len(phases) == 10
    assert all(0 <= phase < _MS for phase in phases)
    memory = _world()
    memory.world["timestamp_phase_ns"] = 700_000
    assert [timestamp_ms(memory.sim, at) for at in (0, 299_999, 300_000)] == [0, 0, 1]


def test_a_run_begins_with_idle_hosts_that_answer_a_syn_at_once() -> None:
    """38 us to 50 us after the path's round trip in 28 of 31 recordings."""
    for seed in range(5):
        events: list[Any] = []
        setup = Setup(_PATH, (FlowSetup("v2", 0, 200_000),), 200_000, seed)
        simulate(setup, lambda pieces, _states, _rows, kept=events: kept.append(pieces.copy()))
        init = events[0][events[0]["ctl"]["kind"] == INIT][0]
        assert 40_040 <= init["tp"]["srtt_us"] >> 3 <= 40_050


@pytest.mark.parametrize("cwnd", [-5, 0, 1 << 60])
def test_rules_that_leave_no_cwnd_are_refused_in_words(cwnd: int) -> None:
    memory = _world()
    memory.parts["events"]["tp"]["snd_cwnd"] = cwnd
    setup = Setup(_PATH, (FlowSetup("v1", 0, _S, variant="./mybbr.py"),), _S)
    with pytest.raises(BbrscopeError, match=r"mybbr\.py set cwnd to"):
        check_cwnd(setup, memory.parts["events"])
