"""The formulas that numbers are checked by, at values that the kernel's C gave for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.kernel_values import LOST_SKBS
from tests.truth.kernel_volumes import UNSET, Path, headroom, until_too_high

BW = 167_772  # 100 packets in 10 ms
PATH = Path(
    version=3,
    gso_max_size=65_536,
    min_rtt_us=30_000,
    bw=BW,
    max_bw=BW,
    pacing_rate=150_000,
    pacing_shift=10,
    pacing_gain=256,
    mss=1448,
    probes_up=False,
    init_cwnd=10,
)


@pytest.mark.parametrize(
    ("gain", "bdp", "rate"),
    [(739, 867, 41_381_651), (256, 300, 14_335_186), (320, 375, 17_918_982)],
)
def test_bdps_and_rates_are_the_kernels(gain: int, bdp: int, rate: int) -> None:
    assert PATH.bdp(BW, gain) == bdp
    assert PATH.rate(BW, gain, most=2**64 - 1) == rate
    assert PATH.rate(BW, gain, most=1_000_000) == 1_000_000


@pytest.mark.parametrize(
    ("version", "gso", "min_rtt_us", "rate", "goal"),
    [
        (1, 65_536, 30_000, 149_999, 1),
        (1, 65_536, 30_000, 150_000, 2),
        (1, 65_536, 30_000, 12_500_000, 8),
        (1, 65_536, 30_000, 125_000_000, 45),
        (2, 524_280, 30_000, 125_000_000, 84),
        (2, 524_280, 500, 125_000_000, 361),
        (3, 65_536, 500, 150_000, 45),
    ],
)
def test_bursts_are_the_kernels(
    version: int, gso: int, min_rtt_us: int, rate: int, goal: int
) -> None:
    path = replace(PATH, version=version, gso_max_size=gso, min_rtt_us=min_rtt_us, pacing_rate=rate)
    assert path.tso_goal() == goal


def test_before_the_first_rtt_the_bdp_is_the_initial_window() -> None:
    assert replace(PATH, min_rtt_us=UNSET).bdp(BW, 256) == 10


def test_v1_adds_room_for_bursts_and_the_others_have_at_least_that_much() -> None:
    assert replace(PATH, version=1).quantized(301) == 308
    assert replace(PATH, version=1, probes_up=True).quantized(301) == 310
    assert PATH.quantized(301) == 301
    assert PATH.quantized(1) == 6


@pytest.mark.parametrize(
    ("bound", "left"), [(4, 4), (5, 4), (6, 5), (10, 9), (27, 23), (1000, 852), (UNSET, UNSET)]
)
def test_the_headroom_is_the_kernels(bound: int, left: int) -> None:
    assert headroom(bound) == left


@pytest.mark.parametrize(
    ("flight", "lost", "segments", "prefix"),
    LOST_SKBS,
)
def test_where_loss_crossed_its_limit_is_the_kernels(
    flight: int, lost: int, segments: int, prefix: int
) -> None:
    assert until_too_high(flight, lost, segments) == prefix
