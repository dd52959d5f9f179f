"""A verdict is sure of what all values of its interval say, and else says what is left."""

from __future__ import annotations

import math

import pytest
from bbrscope.analyze.simulate.known_errors import ALONE, Interval, is_measured, shipped
from bbrscope.analyze.simulate.verdicts import (
    CHANCE,
    ENGINE,
    FAR,
    FIT,
    OWN_RULES,
    PATH,
    Told,
    verdict,
    words,
)


# Goodput is the same within 3 %: recorded are 10 Mbit/s, so from 9.7 to 10.3.
@pytest.mark.parametrize(
    ("interval", "signs"),
    [
        ((8.0, 8.5, 9.0), (-1,)),
        ((8.0, 8.5, 9.8), (-1, 0)),
        ((9.8, 10.0, 10.2), (0,)),
        ((9.8, 10.2, 10.4), (0, 1)),
        ((9.0, 10.0, 11.0), (-1, 0, 1)),
        ((10.4, 10.5, 11.0), (1,)),
    ],
)
def test_all_values_of_the_interval_are_claimed(interval: Interval, signs: tuple[int, ...]) -> None:
    assert verdict("goodput_mbps", 10, [interval], 10, interval).signs == signs


def test_nothing_lost_leaves_the_tolerance_of_a_count() -> None:
    assert verdict("lost_packets", 0, [(0, 2, 9)], 0, (0, 2, 9)).signs == (0,)
    assert verdict("lost_packets", 0, [(0, 2, 38)], 0, (0, 2, 38)).signs == (0, 1)
    assert verdict("lost_packets", 0, [(20, 30, 38)], 0, (20, 30, 38)).signs == (1,)


@pytest.mark.parametrize(
    ("simulated", "own", "doubt"),
    [
        ([(9.5, 9.8, 10.0)], 10.0, CHANCE),
        ([(9.4, 9.5, 9.6), (9.75, 9.8, 9.9)], 10.0, PATH),
        ([(9.4, 9.5, 9.6)], 9.0, OWN_RULES),
        ([(9.4, 9.5, 9.6)], 10.0, ENGINE),
    ],
)
def test_why_it_cannot_be_told(simulated: list[Interval], own: float, doubt: str) -> None:
    interval = 8.0, 9.5, 10.1
    said = verdict("goodput_mbps", 10, simulated, own, interval)
    assert said == Told(0, (-1, 0), doubt)
    text = words("goodput_mbps", "v3", 10, interval, said)
    assert text.startswith(
        "no difference that can be told: 8 to 10.1 Mbit/s, recorded is 10, less or the same: "
    )


def test_a_difference_beyond_the_error_is_named_though_some_values_are_near() -> None:
    interval = 8.0, 9.5, 9.8
    said = verdict("goodput_mbps", 10, [interval], 10, interval)
    assert said == Told(-1, (-1, 0), CHANCE)
    assert words("goodput_mbps", "v3", 10, interval, said) == (
        "v3 would probably have carried 8 to 9.8 Mbit/s instead of 10, less or the same: runs of"
        " one path differ as much by chance"
    )


def test_what_is_told_names_both_values() -> None:
    interval = 40.0, 45.0, 50.0
    less, same = Told(-1, (-1,)), Told(0, (0,))
    assert words("rtt_p50_ms", "v3", 60, interval, less) == (
        "v3 would have seen 40 to 50 ms instead of 60"
    )
    assert words("rtt_p50_ms", "v3", 45, interval, same) == (
        "no difference: 40 to 50 ms, recorded is 45"
    )


def test_what_no_fit_has_leaves_no_verdict_sure() -> None:
    interval = 8.0, 8.5, 9.0
    said = verdict("goodput_mbps", 10, [interval], 10, interval, is_covered=False)
    assert said == Told(-1, (-1,), FIT)
    assert words("goodput_mbps", "v3", 10, interval, said) == (
        "v3 would probably have carried 8 to 9 Mbit/s instead of 10: the recording shows what its"
        " fitted path does not have"
    )
    interval = 9.8, 10.0, 10.2
    said = verdict("goodput_mbps", 10, [interval], 10, interval, is_covered=False)
    assert words("goodput_mbps", "v3", 10, interval, said).startswith(
        "no difference that can be told: "
    )


def test_nothing_is_sure_where_own_rules_come_out_further_off_than_ever_measured() -> None:
    """The interval is made from errors of runs that this one is none of."""
    recorded, simulated = 10.0, (8.0, 8.2, 8.4)
    errors = [error for error in shipped() if not error.described and error.company == ALONE]
    most = max(
        abs(math.log(one.recorded / one.own))
        for one in (error.predicted["goodput_mbps"] for error in errors)
    )
    for own, doubt in (
        (recorded * math.exp(0.9 * most), ""),
        (recorded * math.exp(1.1 * most), FAR),
    ):
        like = is_measured("goodput_mbps", recorded, own, errors)
        said = verdict("goodput_mbps", recorded, [simulated], own, simulated, is_measured=like)
        assert said.likeliest == -1
        assert said.doubt == doubt
        text = words("goodput_mbps", "v3", recorded, simulated, said)
        assert ("probably" in text) == bool(doubt)
    assert not is_measured("goodput_mbps", 10.0, 10.0, [])
