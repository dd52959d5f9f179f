"""Groups of runs: what differs, by how much, and whether repetitions call it noise."""

from __future__ import annotations

import itertools
from statistics import mean

import pytest
from bbrscope.analyze.compare import METRICS, Quantity, differences, measure
from bbrscope.analyze.noise import ALPHA, least_p, p_value
from bbrscope.collect.store import Store
from hypothesis import given
from hypothesis import strategies as st

GOODPUT, LOSS = (
    next(one for one in METRICS if one.name == name) for name in ("goodput_mbps", "loss_rate")
)
PHASE = Quantity("phase", "PROBE_RTT", "", "", points=True)

_values = st.lists(st.integers(-50, 50), min_size=1, max_size=5)


@given(_values, _values)
def test_p_is_the_share_of_all_ways_that_part_the_means_as_far(a: list[int], b: list[int]) -> None:
    """By the definition, in whole numbers: nothing is lost to rounding."""
    together = [*a, *b]
    apart = [
        abs(len(b) * sum(one) - len(a) * (sum(together) - sum(one)))
        for one in itertools.combinations(together, len(a))
    ]
    measured = abs(len(b) * sum(a) - len(a) * sum(b))
    assert p_value(a, b) == pytest.approx(sum(far >= measured for far in apart) / len(apart))


@given(_values, _values)
def test_which_group_comes_first_does_not_matter(a: list[int], b: list[int]) -> None:
    assert p_value(a, b) == pytest.approx(p_value(b, a))


def test_many_repetitions_are_sampled_the_same_way_every_time() -> None:
    a, b = [float(n % 7) for n in range(20)], [float(n % 7) + 3 for n in range(20)]
    assert p_value(a, b) == p_value(a, b) < 0.001
    assert p_value(a, a) == 1


def test_too_few_repetitions_leave_noise_unknown() -> None:
    assert least_p(3, 3) > ALPHA >= least_p(4, 4)
    assert least_p(3, 4) > ALPHA >= least_p(3, 5)
    (found,) = differences({GOODPUT: {1: 10.0, 2: 8.0}}, [1], [2], 0.1)
    assert (found.verdict, found.noise, found.p) == ("worse", "unknown", None)
    assert found.change == pytest.approx(-0.2)


def test_repetitions_tell_change_from_noise() -> None:
    steady = dict(enumerate([10.0, 10.1, 9.9, 10.05, 8.0, 8.1, 7.9, 8.05]))
    noisy = dict(enumerate([10.0, 6.0, 12.0, 8.0, 7.0, 11.0, 6.5, 7.5]))
    a, b = [0, 1, 2, 3], [4, 5, 6, 7]
    (found,) = differences({GOODPUT: steady}, a, b, 0.1)
    assert (found.verdict, found.noise) == ("worse", "real")
    assert found.p == pytest.approx(2 / 70)
    (found,) = differences({GOODPUT: noisy}, a, b, 0.1)
    assert abs(found.change) > 0.1
    assert (found.verdict, found.noise) == ("same", "noise")


def test_less_loss_is_better_and_next_to_none_is_none() -> None:
    (found,) = differences({LOSS: {1: 0.05, 2: 0.01}}, [1], [2], 0.1)
    assert found.verdict == "better"
    (found,) = differences({LOSS: {1: 0.0, 2: 0.00005}}, [1], [2], 0.1)
    assert found.verdict == "same"


def test_shares_of_time_differ_in_points() -> None:
    (found,) = differences({PHASE: {1: 0.02, 2: 0.04}}, [1], [2], 0.1)
    assert found.change == pytest.approx(0.02)
    assert found.verdict == "same"


def test_a_run_does_not_differ_from_itself(shipped: Store) -> None:
    run = shipped.run_id("v2_single_1bdp")
    found = differences(measure(shipped.con, [run]), [run], [run], 0.0)
    assert {one.quantity.kind for one in found} == {"metric", "phase", "limit", "decision"}
    assert {one.verdict for one in found} == {"same"}


def test_measures_are_those_of_the_stores_views(shipped: Store) -> None:
    run = shipped.run_id("v2_single_1bdp")
    measured = {
        (quantity.kind, quantity.name): values[run]
        for quantity, values in measure(shipped.con, [run, shipped.run_id("v1_x_lt")]).items()
    }
    startup, probe_bw, seconds, lost, delivered = shipped.con.execute(
        "SELECT share_startup, share_probe_bw, duration_ns / 1e9, lost, delivered"
        " FROM flow_summary WHERE run = 'v2_single_1bdp' AND flow = 1"
    ).fetchall()[0]
    assert measured["phase", "STARTUP"] == pytest.approx(startup, abs=1e-3)
    told = [value for (kind, name), value in measured.items() if name.startswith("PROBE_BW_")]
    assert sum(told) == pytest.approx(probe_bw, abs=1e-3)
    assert measured["metric", "loss_rate"] == pytest.approx(lost / (lost + delivered), rel=1e-3)
    ups = shipped.con.execute(
        "SELECT count(*) FROM transitions WHERE run = 'v2_single_1bdp' AND flow = 1"
        " AND name = 'UP_ENTER'"
    ).fetchall()[0][0]
    assert measured["decision", "UP_ENTER"] == pytest.approx(ups * 60 / seconds)
    limits = [value for (kind, _), value in measured.items() if kind == "limit"]
    assert sum(limits) == pytest.approx(1)
    assert mean(limits) < 1
