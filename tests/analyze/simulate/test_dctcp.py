"""DCTCP in the closed loop: its alpha by hand, its reductions, and the queue that it keeps."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.simulate.sender.dctcp import (
    dctcp_cwnd_undo,
    dctcp_init,
    dctcp_react_to_loss,
    dctcp_ssthresh,
    dctcp_update_alpha,
)
from bbrscope.analyze.simulate.simulation import Simulated, simulate
from bbrscope.analyze.simulate.world.world_arrays import arrays
from bbrscope.analyze.simulate.world.world_records import CC_DCTCP, CC_RENO
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup

_RATE, _RTT, _MARKS = 100_000_000, 10_000, 2000  # marks from 16 packets on
_S = 1_000_000


def _setup(cc: str = "dctcp", seconds: float = 5, *, ecn: bool = True, packets: int = 200) -> Setup:
    path = PathSetup(_RATE, _RTT, limit_packets=packets, marks_us=_MARKS, ecn=ecn)
    us = round(seconds * _S)
    return Setup(path, (FlowSetup(cc, 0, us),), us)


_BOTH = _setup(seconds=0.15, packets=20)  # has marks and losses


def _memory() -> Any:
    memory = arrays(_setup(), record=False)
    dctcp_init(memory.sim, 0)
    return memory


def _digest(outcome: Simulated) -> str:
    return sha256(outcome.flows.tobytes() + outcome.samples.tobytes()).hexdigest()


def test_alpha_is_what_tcp_dctcp_c_computes_by_hand() -> None:
    memory = _memory()
    flow, tp = memory.parts["flows"], memory.parts["events"]["tp"]
    # (delivered and marked in the window, alpha after it): less a 16th, plus 1024/16 of the share.
    windows = [
        (10, 10, 1024),  # 1024 - 64 + 64
        (80, 20, 976),  # 1024 - 64 + 1280 // 80
        (100, 0, 915),  # 976 - 61
        (3, 1, 879),  # 915 - 57 + 64 // 3
    ]
    delivered = marked = 0
    for sent, ce, alpha in windows:
        flow["una"] = flow["ca_end_seq"] - 1
        before = int(flow["ca_cnt"][0])
        dctcp_update_alpha(memory.sim, 0, marked + 1)
        assert flow["ca_cnt"][0] == before  # the window is not over yet
        delivered, marked = delivered + sent, marked + ce
        flow["una"] = flow["ca_end_seq"]
        flow["nxt"] = flow["una"] + 50
        tp["delivered"] = delivered
        dctcp_update_alpha(memory.sim, 0, marked)
        assert flow["ca_cnt"][0] == alpha
        assert flow["ca_end_seq"] == flow["nxt"]
    # Where a 16th of it is nothing, all of it goes: min_not_zero().
    flow["ca_cnt"], flow["una"] = 15, flow["ca_end_seq"]
    dctcp_update_alpha(memory.sim, 0, marked)
    assert flow["ca_cnt"][0] == 0


def test_a_mark_takes_half_of_alpha_and_a_loss_half() -> None:
    memory = _memory()
    flow, tp = memory.parts["flows"], memory.parts["events"]["tp"]
    flow["ca_cnt"], tp["snd_cwnd"] = 256, 100
    assert dctcp_ssthresh(memory.sim, 0) == 88  # 100 - 100 * 256 / 2048
    tp["snd_cwnd"] = 88
    dctcp_react_to_loss(memory.sim, 0)
    assert tp["snd_ssthresh"][0] == 44
    tp["snd_cwnd"] = 44
    assert dctcp_cwnd_undo(memory.sim, 0) == 88
    tp["snd_cwnd"] = 2
    assert dctcp_ssthresh(memory.sim, 0) == 2


def test_its_queue_stays_near_the_mark_at_nearly_the_full_rate() -> None:
    outcome = simulate(_setup())
    settled = outcome.samples[20:]  # ten a second
    sent = int(settled["sent"][-1] - settled["sent"][0])
    assert sent * 1514 * 8e9 / (settled["at"][-1] - settled["at"][0]) > 0.96 * _RATE
    waits_us = settled["size"] * 8e6 / _RATE
    assert 0.5 * _MARKS < np.median(waits_us) < _MARKS
    assert np.percentile(waits_us, 95) < 1.5 * _MARKS
    flow = outcome.flows[0]
    assert flow["cc"] == CC_DCTCP
    assert flow["retrans_segs"] == 0
    assert 0 < flow["ca_cnt"] < 1024 / 2


def test_alpha_and_cwnd_are_the_kernels_where_tbf_peeks() -> None:
    """Linux 6.1 in a guest, two runs of 5 s: alpha is 160 and 164 on average, cwnd 14.6 and 14.5.

    `ss` every 0.1 s; the path is tbf with fq_codel of nsperf-ecn-bulk's short form.
    """
    means = {}
    for peeks in (True, False):
        path = PathSetup(30_000_000, 4000, limit_packets=1000, marks_us=1500, peeks=peeks, ecn=True)
        ends = [
            simulate(Setup(path, (FlowSetup("dctcp", 0, 5 * _S),), us))
            for us in range(2 * _S, 5 * _S, 197_000)
        ]
        alpha = np.mean([end.flows["ca_cnt"][0] for end in ends])
        cwnd = np.mean([end.events["tp"]["snd_cwnd"][0] for end in ends])
        means[peeks] = float(alpha), float(cwnd)
    assert means[True] == (pytest.approx(162, rel=0.05), pytest.approx(14.6, rel=0.03))
    # htb lets fq_codel mark a packet as it goes, which is a packet's time later: so much shorter
    # is the queue at which as many are marked.
    assert means[False][1] == pytest.approx(means[True][1] - 1, abs=0.3)


def test_losses_count_for_more_than_marks() -> None:
    """Where the buffer is full before a packet has waited long enough for a mark."""
    outcome = simulate(_setup(packets=12))
    assert outcome.flows["retrans_segs"][0] > 10
    assert outcome.flows["ca_cnt"][0] == 0  # no marks for long


def test_without_ecn_it_is_reno() -> None:
    """dctcp_init() goes over to dctcp_reno."""
    ours, reno = (simulate(_setup(cc, ecn=False)) for cc in ("dctcp", "reno"))
    assert ours.flows["cc"][0] == CC_RENO
    assert _digest(ours) == _digest(reno)


def test_compiled_and_plain_code_agree() -> None:
    said = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "BBRSCOPE_PLAIN": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    outcome = simulate(_BOTH)
    assert outcome.flows["retrans_segs"][0] > 0
    assert outcome.flows["ca_cnt"][0] not in (0, 1024)
    assert said.stdout.strip() == _digest(outcome)


if __name__ == "__main__":
    print(_digest(simulate(_BOTH)))
