"""Integer arithmetic of the kernel, against values computed by the kernel's own C expressions.

The vectors were produced by compiling tcp_bbr.c's and tcp_bbr2.c's expressions; they are data here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bbrscope.analyze.bbr import ints, params
from bbrscope.analyze.bbr.control.pacing import bbr_rate_bytes_per_sec, bbr_tso_segs_goal
from bbrscope.analyze.bbr.model.bandwidth import bbr_calculate_bw_sample
from bbrscope.analyze.bbr.model.inflight import bbr_bdp, bbr_inflight_with_headroom
from bbrscope.analyze.bbr.model.upper_bounds import bbr_inflight_hi_from_lost_skb, loss_limit_of
from bbrscope.analyze.bbr.plain import records
from bbrscope.analyze.bbr.records import RATE_SAMPLE, SOCKET, STATE
from bbrscope.probes.base.jit import jit
from hypothesis import given
from hypothesis import strategies as st

from tests.kernel_values import LOST_SKBS

U32 = st.integers(0, 2**32 - 1)


def _record(dtype: np.dtype, **fields: int) -> Any:
    array = np.zeros(1, dtype)
    for name, value in fields.items():
        array[name] = value
    return records(array)[0]


def _state(**fields: int) -> Any:
    return _record(STATE, **fields)


def _socket(**fields: int) -> Any:
    return _record(SOCKET, **fields)


def _params(values: dict[str, Any]) -> Any:
    return records(params.make(values))[0]


@given(U32, U32)
def test_before_and_after_follow_serial_arithmetic(a: int, b: int) -> None:
    signed = ((a - b + 2**31) % 2**32) - 2**31
    assert ints_before(a, b) == (signed < 0)
    assert ints_after(a, b) == (-signed < 0 if signed != -(2**31) else True)


@jit
def ints_before(a: int, b: int) -> bool:
    return ints.before(a, b)


@jit
def ints_after(a: int, b: int) -> bool:
    return ints.after(a, b)


@jit
def ints_mul_shift(a: int, b: int, shift: int) -> int:
    return ints.mul_shift(a, b, shift)


@jit
def ints_delta(t1: int, t0: int) -> int:
    return ints.tcp_stamp_us_delta(t1, t0)


@given(U32, U32, st.integers(0, 63))
def test_products_keep_all_64_bits_before_the_shift(a: int, b: int, shift: int) -> None:
    assert ints_mul_shift(a, b, shift) == (a * b >> shift) % 2**32


@given(st.integers(0, 2**48), st.integers(0, 2**48))
def test_time_differences_are_never_negative_and_cut_to_32_bits(t1: int, t0: int) -> None:
    assert ints_delta(t1, t0) == max(t1 - t0, 0) % 2**32


@pytest.mark.parametrize(
    ("delivered", "interval_us", "truncated", "rounded_up"),
    [
        (100, 10_000, 167_772, 167_773),
        (1, 30_000, 559, 560),
        (44, 1_000, 738_197, 738_198),
        (3, 7, 7_190_235, 7_190_236),
        (250_000, 1_000_000, 4_194_304, 4_194_304),
    ],
)
def test_v2_and_v3_round_bandwidth_samples_up(
    delivered: int, interval_us: int, truncated: int, rounded_up: int
) -> None:
    sample = np.zeros(1, RATE_SAMPLE)
    sample["delivered"], sample["interval_us"] = delivered, interval_us
    bbr_calculate_bw_sample(_state(), records(sample)[0])
    assert sample["sample_bw"][0] == rounded_up
    assert delivered * 2**24 // interval_us == truncated


@pytest.mark.parametrize(
    ("gain", "rate"),
    [
        (739, 41_381_651),
        (710, 39_757_743),
        (320, 17_918_982),
        (256, 14_335_186),
        (232, 12_991_262),
        (192, 10_751_389),
        (88, 4_927_720),
    ],
)
def test_pacing_rates(gain: int, rate: int) -> None:
    assert bbr_rate_bytes_per_sec(_socket(mss_cache=1448), 167_772, gain, 1, 1) == rate


def test_only_v1_paces_at_zero() -> None:
    socket = _socket(mss_cache=1448)
    assert bbr_rate_bytes_per_sec(socket, 0, 256, 1, 0) == 0
    assert bbr_rate_bytes_per_sec(socket, 0, 256, 1, 1) == 1


@given(U32, st.integers(1, 65_535), st.integers(0, 2047))
def test_rates_wrap_like_u64(bw: int, mss: int, gain: int) -> None:
    expected = bw * mss % 2**64 * gain % 2**64 >> 8
    expected = expected * 990_000 % 2**64 >> 24
    assert bbr_rate_bytes_per_sec(_socket(mss_cache=mss), bw, gain, 1, 0) == expected


@pytest.mark.parametrize(
    ("bw", "gains"),
    [
        (167_772, {256: 300, 512: 600, 576: 675, 739: 867, 128: 150}),
        (738_198, {256: 1321, 512: 2641, 576: 2971, 739: 3811, 128: 661}),
    ],
)
def test_bdp_in_packets_rounds_up(bw: int, gains: dict[int, int]) -> None:
    p = _params(params.V2 | {"HZ": 1000})
    state = _state(min_rtt_us=30_000)
    assert {gain: bbr_bdp(state, bw, gain, p) for gain in gains} == gains


def test_bdp_without_an_rtt_sample_is_the_initial_window() -> None:
    state = _state(min_rtt_us=2**32 - 1, init_cwnd=42)
    assert bbr_bdp(state, 738_198, 512, _params(params.V2)) == 42
    assert bbr_bdp(state, 738_198, 512, _params(params.V1)) == 10


@pytest.mark.parametrize(
    ("version", "rate", "min_rtt_us", "goal"),
    [
        ("v1", 149_999, 30_000, 1),
        ("v1", 150_000, 30_000, 2),
        ("v1", 12_500_000, 30_000, 8),
        ("v1", 125_000_000, 30_000, 45),
        ("v3", 12_500_000, 500, 45),
        ("v3", 125_000_000, 500, 45),
        ("v2", 125_000_000, 500, 361),
        ("v2", 125_000_000, 30_000, 84),
    ],
)
def test_tso_goal(version: str, rate: int, min_rtt_us: int, goal: int) -> None:
    values = params.DEFAULTS[version] | {"HZ": 1000, "max_tcp_header": 256}
    if version == "v2":
        values["gso_max_size"] = 524_280  # as 6.1 has it
    socket = _socket(mss_cache=1448, sk_pacing_rate=rate, sk_pacing_shift=10)
    assert bbr_tso_segs_goal(_state(min_rtt_us=min_rtt_us), socket, _params(values)) == goal


@pytest.mark.parametrize(
    ("tx_in_flight", "lost", "pcount", "expected"),
    LOST_SKBS,
)
def test_where_in_a_flight_the_loss_limit_was_crossed(
    tx_in_flight: int, lost: int, pcount: int, expected: int
) -> None:
    sample = _record(RATE_SAMPLE, tx_in_flight=tx_in_flight, lost=lost)
    p = _params(params.V2)
    assert bbr_inflight_hi_from_lost_skb(sample, pcount, p, None) == expected


@pytest.mark.parametrize(
    ("hi", "bound"), [(4, 4), (5, 4), (6, 5), (10, 9), (27, 23), (100, 86), (1000, 852)]
)
def test_headroom(hi: int, bound: int) -> None:
    state = _state(inflight_hi=hi)
    assert bbr_inflight_with_headroom(state, _params(params.V2)) == bound


@pytest.mark.parametrize(
    ("tx_in_flight", "limit"),
    [(51, 0), (52, 1), (100, 1), (103, 2), (154, 3), (205, 4), (1000, 19)],
)
def test_one_lost_packet_is_too_many_below_52_in_flight(tx_in_flight: int, limit: int) -> None:
    assert loss_limit_of(tx_in_flight, _params(params.V2)) == limit
