"""Hosts of one CPU: what comes waits for what is at work, as in the captures of kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr.records import MAIN
from bbrscope.analyze.replay.run_info import run_info
from bbrscope.analyze.simulate.recorded_busy import with_busy_hosts
from bbrscope.analyze.simulate.recorded_world import recorded_world
from bbrscope.analyze.simulate.simulation import simulate
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.collect.store.store import Store

_PATH = PathSetup(10_000_000, 40_000, limit_packets=33, busy_every_us=10**9, busy_us=1)
_RUN_US = 400_000
# bw_hi is in packets/us << 24; so much does the link carry.
_LINK = 10_000_000 / 8e6 / 1514 * 2**24


def _calls(cc: str, ack_us: int) -> tuple[Any, Any, Any]:
    """Events, states and rows of each call of cong_control() since data were acknowledged."""
    kept: list[tuple[Any, Any, Any]] = []

    def take(events: Any, states: Any, rows: Any) -> None:
        main = events["ctl"]["kind"] == MAIN
        kept.append((events[main], states[main], rows[main]))

    path = replace(_PATH, ack_us=ack_us, late_readers=ack_us > 0)
    flow = FlowSetup(cc, 0, _RUN_US, begins_us=60_000)
    simulate(Setup(path, (flow,), _RUN_US), take)
    events, states, rows = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    return events[1:], states[1:], rows[1:]


@pytest.mark.parametrize(
    ("cc", "ack_us", "apart_us", "written_us"),
    # The captures: 98 to 102 us and 86 us under v3, 98 to 139 and 88 (v2), 55 to 111 and 164 (v1).
    [("v3", 51, 98, 88), ("v2", 51, 98, 88), ("v1", 51, 98, 164), ("v3", 0, 0, 0)],
)
def test_an_ack_waits_for_the_one_before_and_what_that_lets_go(
    cc: str, ack_us: int, apart_us: int, written_us: int
) -> None:
    """The first two segments go together, and their ACKs come so; the first lets two more go."""
    events, _, rows = _calls(cc, ack_us)
    apart = np.diff(rows["ns"][:2])[0] / 1000
    assert apart == pytest.approx(apart_us, abs=12)
    # The third was sent as soon as the application had written more.
    written = rows["rcv_us"][2] - events["rs"]["rtt_us"][2]
    assert written == pytest.approx(written_us, abs=1)


@pytest.mark.parametrize(("cc", "later_us"), [("v1", 27), ("v2", 36), ("v3", 36)])
def test_a_sender_sends_when_the_recorder_has_what_it_asks_for(cc: str, later_us: int) -> None:
    """In the captures interval and RTT differ by so much where an ACK let a segment go."""
    events, _, rows = _calls(cc, 51)
    twelfth = int(np.flatnonzero(events["tp"]["delivered"] >= 14)[0])
    waited = rows["rcv_us"][twelfth] - events["rs"]["rtt_us"][twelfth]
    assert waited == pytest.approx(later_us, abs=1)


@pytest.mark.parametrize(("ack_us", "above"), [(51, 1.0044), (0, 1.0031)])
def test_v3s_startup_has_the_kernels_sample_above_the_link(ack_us: int, above: float) -> None:
    """1.0044 times the link's rate in v3_single_1bdp, v3_outage_rto, v3_loss_1pct, v3_vs_cubic."""
    _, states, _ = _calls("v3", ack_us)
    assert states["bw_hi"].max() / _LINK == pytest.approx(above, abs=0.0003)


def test_calls_say_how_long_an_ack_takes(shipped: Store) -> None:
    """v2_single_1bdp: 52 us between calls of which the first let nothing go, at the least."""
    run_id = shipped.run_id("v2_single_1bdp")
    slow = with_busy_hosts(shipped.con, run_id, _PATH, 0, [1])
    assert slow.ack_us == 52
    # Who carries 1 Gbit/s, a packet in 12 us, has more than such a CPU.
    fast = with_busy_hosts(shipped.con, run_id, replace(_PATH, rate_bps=10**9), 0, [1])
    assert fast.ack_us == 0
    # Too few calls: as in most recordings.
    few = recorded_world(shipped.con, run_info(shipped.con, shipped.run_id("v2_x_spur")))
    assert few.setup.path.ack_us in range(50, 54)
