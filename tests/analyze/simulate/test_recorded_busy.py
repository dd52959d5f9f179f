"""How busy a recording's hosts were: found again in simulations whose hosts are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr.records import MAIN
from bbrscope.analyze.simulate.recorded_busy import lateness_us, with_lateness
from bbrscope.analyze.simulate.simulation import simulate
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup

_US = 20_000_000
_V1 = FlowSetup("v1", 0, _US)


def _lateness(path: PathSetup, flow: FlowSetup = _V1) -> Any:
    rows: list[Any] = []

    def take(events: Any, _states: Any, out: Any) -> None:
        main = events["ctl"]["kind"] == MAIN
        tp = events["tp"][main]
        columns = (out["ns"][main] / 1000, tp["delivered"], events["rs"]["rtt_us"][main])
        more = (tp[name] for name in ("sacked_out", "mss_cache", "delivered_ce"))
        rows.append(np.stack([*columns, *more]).astype(float))

    simulate(Setup(path, (flow,), _US), take)
    names = ("t_us", "delivered", "rtt_us", "sacked", "mss", "marked")
    return lateness_us(dict(zip(names, np.concatenate(rows, axis=1), strict=True)), path)


@pytest.mark.parametrize(
    ("every_us", "busy_us"), [(20_000, 500), (90_000, 900), (7200 * 10**6, 400)]
)
def test_late_acks_say_how_often_and_how_long_hosts_were_busy(every_us: int, busy_us: int) -> None:
    path = PathSetup(10_000_000, 40_000, limit_packets=66, busy_every_us=every_us, busy_us=busy_us)
    found = with_lateness(path, _lateness(path))
    assert found.busy_every_us == pytest.approx(every_us, rel=0.3)
    assert found.busy_us == pytest.approx(busy_us, rel=0.25)


def test_acks_that_a_change_of_marks_sends_are_no_late_ones() -> None:
    """dctcp_ece_ack_update() sends them a packet's time later than they were due: 2 ms here."""
    path = PathSetup(6_000_000, 20_000, limit_packets=200, marks_us=10_000, ecn=True)
    path = replace(path, busy_every_us=60_000, busy_us=400)
    found = with_lateness(path, _lateness(path, FlowSetup("v3", 0, _US, ecn_low=True)))
    assert found.busy_every_us == pytest.approx(60_000, rel=0.3)
    assert found.busy_us == pytest.approx(400, rel=0.25)


def test_few_acks_say_nothing() -> None:
    path = PathSetup(10_000_000, 40_000, limit_packets=66)
    assert with_lateness(path, np.full(999, 5000.0)).busy_us < 1000
