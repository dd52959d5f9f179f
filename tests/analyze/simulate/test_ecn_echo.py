"""ECN in the closed loop: classic echo until CWR where BBR asks for no other, else each mark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr.records import (
    MAIN,
    SET_STATE,
    TCP_CA_CWR,
    TCP_ECN_ECT_PERMANENT,
    TCP_ECN_QUEUE_CWR,
)
from bbrscope.analyze.simulate.simulation import simulate
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup

_PATH = PathSetup(20_000_000, 3000, limit_packets=200, marks_us=2000, ecn=True)


def _events(flow: FlowSetup) -> Any:
    """What the estimator was asked in two seconds."""
    rows: list[Any] = []
    simulate(Setup(_PATH, (flow,), 2_000_000), lambda events, _s, _o: rows.append(events.copy()))
    return np.concatenate(rows)


@pytest.mark.parametrize(("version", "share"), [("v1", 0.8), ("v2", 0.05), ("v3", 0.8)])
def test_a_classic_receiver_repeats_a_mark_until_cwr(version: str, share: float) -> None:
    events = _events(FlowSetup(version, 0, 2_000_000))
    main = events[events["ctl"]["kind"] == MAIN]
    # The recording v3_ecn_codel has ECE in 92 % of its ACKs; v2 keeps a shorter queue.
    assert main["rs"]["is_ece"].mean() > share
    # One reduction a round trip at most, however many ACKs say ECE.
    states = events[events["ctl"]["kind"] == SET_STATE]
    reductions = int((states["ctl"]["arg"] == TCP_CA_CWR).sum())
    assert 0 < reductions < 2_000_000 / 3000
    # CWR waits for new data, and goes with them.
    waits = main["tp"]["ecn_flags"] & TCP_ECN_QUEUE_CWR > 0
    assert 0 < waits.mean() < 0.5


def test_a_receiver_that_bbr_asks_echoes_each_mark_once() -> None:
    asked = {low: _events(FlowSetup("v3", 0, 2_000_000, ecn_low=low)) for low in (False, True)}
    mains = {low: events[events["ctl"]["kind"] == MAIN] for low, events in asked.items()}
    shares = {low: main["rs"]["is_ece"].mean() for low, main in mains.items()}
    # v3 heeds the marks of a route with ecn_low: the recording v3_x_ecn_low has 55 %.
    assert 0.3 < shares[True] < 0.75 < shares[False]
    rtts = {low: np.median(main["rs"]["rtt_us"]) for low, main in mains.items()}
    assert rtts[True] < rtts[False]


def test_a_receiver_with_another_control_repeats_the_mark() -> None:
    """The recording v3_x_ecn_low: half of its ACKs are for two packets, since few are for marks."""
    asked = FlowSetup("v3", 0, 2_000_000, ecn_low=True)
    pairs = {}
    for other in (False, True):
        events = _events(replace(asked, other_receiver=other))
        main = events[events["ctl"]["kind"] == MAIN]
        pairs[other] = (main["rs"]["acked_sacked"] == 2).mean()
        # The sender still asks, and so does not take ECT off what it sends again.
        assert (main["tp"]["ecn_flags"] & TCP_ECN_ECT_PERMANENT["v3"] > 0).all()
    assert pairs[False] < 0.3 < 0.4 < pairs[True]
