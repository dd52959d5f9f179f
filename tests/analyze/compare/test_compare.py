"""Groups of runs: what differs, by how much, and whether repetitions call it noise."""

from __future__ import annotations

import itertools
from pathlib import Path
from statistics import mean

import pytest
from bbrscope.analyze.compare.blocks import RunBlock, blocks
from bbrscope.analyze.compare.groups import METRICS, Quantity, differences, measure
from bbrscope.analyze.compare.noise import ALPHA, holm, interval, least_p, p_value
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from hypothesis import given
from hypothesis import strategies as st

GOODPUT, LOSS = (
    next(one for one in METRICS if one.name == name) for name in ("goodput_mbps", "loss_rate")
)
PHASE = Quantity("phase", "PROBE_RTT", "", "", points=True)
ONE_EACH = [RunBlock("", (1,), (2,))]

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
    assert p_value([(a, b)]) == pytest.approx(sum(far >= measured for far in apart) / len(apart))


@given(_values, _values)
def test_which_group_comes_first_does_not_matter(a: list[int], b: list[int]) -> None:
    assert p_value([(a, b)]) == pytest.approx(p_value([(b, a)]))


def test_many_repetitions_are_sampled_the_same_way_every_time() -> None:
    a, b = [float(n % 7) for n in range(20)], [float(n % 7) + 3 for n in range(20)]
    assert p_value([(a, b)]) == p_value([(a, b)]) < 0.001
    assert p_value([(a, a)]) == 1


def test_too_few_repetitions_leave_noise_unknown() -> None:
    assert least_p([(3, 3)]) > ALPHA >= least_p([(4, 4)])
    assert least_p([(3, 4)]) > ALPHA >= least_p([(3, 5)])
    assert least_p([(1, 1)] * 5) > ALPHA >= least_p([(1, 1)] * 6)
    (found,) = differences({GOODPUT: {1: 10.0, 2: 8.0}}, ONE_EACH, 0.1)
    assert (found.verdict, found.noise, found.p) == ("worse", "unknown", None)
    assert found.change == pytest.approx(-0.2)


def test_repetitions_tell_change_from_noise() -> None:
    steady = dict(enumerate([10.0, 10.1, 9.9, 10.05, 8.0, 8.1, 7.9, 8.05]))
    noisy = dict(enumerate([10.0, 6.0, 12.0, 8.0, 7.0, 11.0, 6.5, 7.5]))
    compared = [RunBlock("", (0, 1, 2, 3), (4, 5, 6, 7))]
    (found,) = differences({GOODPUT: steady}, compared, 0.1)
    assert (found.verdict, found.noise) == ("worse", "real")
    assert found.p == pytest.approx(2 / 70)
    (found,) = differences({GOODPUT: noisy}, compared, 0.1)
    assert abs(found.change) > 0.1
    assert (found.verdict, found.noise) == ("same", "noise")


def test_equal_changes_come_in_one_order() -> None:
    """The database hands out the quantities in whatever order it found them."""
    phases = [Quantity("phase", name, "", "", points=True) for name in ("DRAIN", "STARTUP")]
    for order in (phases, phases[::-1]):
        found = differences({one: {1: 0.2, 2: 0.4} for one in order}, ONE_EACH, 0.1)
        assert [one.quantity for one in found] == phases


def test_less_loss_is_better_and_next_to_none_is_none() -> None:
    (found,) = differences({LOSS: {1: 0.05, 2: 0.01}}, ONE_EACH, 0.1)
    assert found.verdict == "better"
    (found,) = differences({LOSS: {1: 0.0, 2: 0.00005}}, ONE_EACH, 0.1)
    assert found.verdict == "same"


def test_shares_of_time_differ_in_points() -> None:
    (found,) = differences({PHASE: {1: 0.02, 2: 0.04}}, ONE_EACH, 0.1)
    assert found.change == pytest.approx(0.02)
    assert found.verdict == "same"


def test_a_run_does_not_differ_from_itself(shipped: Store) -> None:
    run = shipped.run_id("v2_single_1bdp")
    found = differences(measure(shipped.con, [run]), [RunBlock("", (run,), (run,))], 0.0)
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
    phases = [value for (kind, name), value in measured.items() if name.startswith("PROBE_BW_")]
    assert sum(phases) == pytest.approx(probe_bw, abs=1e-3)
    assert measured["metric", "loss_rate"] == pytest.approx(lost / (lost + delivered), rel=1e-3)
    ups = shipped.con.execute(
        "SELECT count(*) FROM transitions WHERE run = 'v2_single_1bdp' AND flow = 1"
        " AND name = 'UP_ENTER'"
    ).fetchall()[0][0]
    assert measured["decision", "UP_ENTER"] == pytest.approx(ups * 60 / seconds)
    limits = [value for (kind, _), value in measured.items() if kind == "limit"]
    assert sum(limits) == pytest.approx(1)
    assert mean(limits) < 1


def test_pairs_tell_a_change_that_scenarios_hide() -> None:
    """Six scenarios far apart, each 5 % better: pooled, the scenarios' spread hides it."""
    values = {run: 10.0 * 2**run for run in range(6)}
    values |= {run + 6: 1.05 * value for run, value in list(values.items())}
    pairs = [RunBlock(str(run), (run,), (run + 6,)) for run in range(6)]
    (paired,) = differences({GOODPUT: values}, pairs, 0.01)
    assert (paired.noise, paired.verdict) == ("real", "better")
    assert paired.p == pytest.approx(2 / 2**6)
    assert paired.change == pytest.approx(0.05)
    assert paired.interval is not None
    assert 0 < paired.interval[0] < paired.b_mean - paired.a_mean < paired.interval[1]
    pooled = [RunBlock("", tuple(range(6)), tuple(range(6, 12)))]
    assert differences({GOODPUT: values}, pooled, 0.01)[0].noise == "noise"


def test_what_one_of_many_quantities_shows_by_chance_is_not_called_real() -> None:
    """Of twenty quantities, one is apart in all of four and four runs: by chance, one in 35 is."""
    compared = [RunBlock("", (0, 1, 2, 3), (4, 5, 6, 7))]
    apart = dict(enumerate([1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 13.0, 14.0]))
    mixed = dict(enumerate([1.0, 12.0, 3.0, 14.0, 11.0, 2.0, 13.0, 4.0]))
    measured = {Quantity("metric", "apart", "", ""): apart}
    measured |= {Quantity("metric", f"mixed {n}", "", ""): mixed for n in range(19)}
    found = {one.quantity.name: one for one in differences(measured, compared, 0.1)}
    assert found["apart"].p == pytest.approx(2 / 70)
    assert found["apart"].p_adjusted == pytest.approx(20 * 2 / 70)
    # Nor is it called noise: more runs would tell.
    assert (found["apart"].noise, found["apart"].verdict) == ("unknown", "differs")
    assert found["mixed 1"].noise == "noise"


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_holms_correction_is_that_of_its_definition(thousandths: list[int]) -> None:
    p_values = [number / 1000 for number in thousandths]
    adjusted = holm(p_values)
    for alpha in (0.0105, 0.0505, 0.2005, 0.5005):
        rejected, left = set(), sorted(range(len(p_values)), key=lambda i: p_values[i])
        while left and p_values[left[0]] * len(left) <= alpha:
            rejected.add(left.pop(0))
        assert {i for i, p in enumerate(adjusted) if p <= alpha} == rejected


def test_a_change_from_nothing_has_no_percentage() -> None:
    queue = next(one for one in METRICS if one.name == "queue_delay_us")
    (found,) = differences({queue: {1: 0.0, 2: 63_788.0}}, ONE_EACH, 0.1)
    assert found.from_nothing
    assert found.verdict == "worse"
    assert not differences({queue: {1: 20_000.0, 2: 63_788.0}}, ONE_EACH, 0.1)[0].from_nothing


def test_few_runs_have_no_interval() -> None:
    assert interval([([1.0, 2.0], [3.0, 4.0])]) is None
    low, high = interval([([1.0, 2.0, 3.0], [11.0, 12.0, 13.0])]) or (0, 0)
    assert 8 <= low < 10 < high <= 12


def test_the_interval_is_that_of_all_resamples() -> None:
    """Of three and three runs there are 27 x 27 resamples: their quantiles, without chance."""
    a, b = [1.0, 2.0, 4.0], [9.0, 15.0, 16.0]
    means = [[mean(one) for one in itertools.product(group, repeat=3)] for group in (a, b)]
    apart = sorted(y - x for x in means[0] for y in means[1])
    low, high = interval([(a, b)]) or (0, 0)
    near = [apart[round(share * len(apart))] for share in (0.015, 0.035, 0.965, 0.985)]
    assert near[0] <= low <= near[1] < near[2] <= high <= near[3]


def test_runs_are_compared_with_those_of_their_scenario_and_seed(tmp_path: Path) -> None:
    lab = [
        # run_id, scenario, seed, cc
        (1, "bulk", 11, "bbr"),
        (2, "bulk", 12, "bbr"),
        (3, "lossy", 11, "bbr"),
        (4, "bulk", 12, "cubic"),
        (5, "bulk", 11, "cubic"),
        (6, "cellular", 11, "cubic"),
    ]
    with open_store(tmp_path / "s.duckdb") as store:
        for run_id, scenario, seed, cc in lab:
            store.con.execute("INSERT INTO runs BY NAME SELECT ? AS run_id", [run_id])
            store.con.execute(
                "INSERT INTO lab_runs BY NAME SELECT ? AS run_id, ? AS scenario, ? AS seed,"
                " ? AS params",
                [run_id, scenario, seed, f'{{"cc": "{cc}", "rate": "10mbit"}}'],
            )
        found = {(block.a, block.b) for block in blocks(store.con, [1, 2, 3], [4, 5, 6])}
        assert found == {((1,), (5,)), ((2,), (4,))}
        # Without a common scenario, what was asked for is compared.
        (whole,) = blocks(store.con, [3], [6])
        assert (whole.a, whole.b) == ((3,), (6,))


def test_simulations_are_compared_with_those_of_their_path_and_seed(tmp_path: Path) -> None:
    simulations = [
        # run_id, rate, seed, congestion control
        (1, 10, 1, "v1"),
        (2, 10, 2, "v1"),
        (3, 90, 1, "v1"),
        (4, 10, 2, "v3"),
        (5, 10, 1, "v3"),
        (6, 90, 7, "v3"),
    ]
    with open_store(tmp_path / "s.duckdb") as store:
        for run_id, rate, seed, cc in simulations:
            store.con.execute(
                "INSERT INTO runs BY NAME SELECT ? AS run_id, ? AS setup",
                [run_id, f'{{"rate": "{rate}mbit", "ccs": "{cc}"}}'],
            )
            store.con.execute(
                "INSERT INTO host_facts BY NAME SELECT ? AS run_id, 'simulated' AS scope,"
                " 'seed' AS name, ? AS value",
                [run_id, str(seed)],
            )
        found = {(block.a, block.b) for block in blocks(store.con, [1, 2, 3], [4, 5, 6])}
        assert found == {((1,), (5,)), ((2,), (4,))}
        # Paths are not pooled, whatever their seeds are.
        (link,) = blocks(store.con, [1, 3], [6])
        assert (link.a, link.b) == ((3,), (6,))
