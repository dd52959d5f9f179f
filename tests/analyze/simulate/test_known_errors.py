"""Intervals of what-ifs hold kernels' runs as often as they say, on pairs that they never saw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bbrscope.analyze.simulate.closed_loop import intervals, outcomes_of, question_about, under
from bbrscope.analyze.simulate.known_errors import (
    ALONE,
    LEVEL,
    TOLERANCES,
    WITH_UNSEEN,
    KnownError,
    Predicted,
    company_of,
    expected,
    is_measured,
    of_others,
    shipped,
)
from bbrscope.analyze.simulate.verdicts import coverage
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup, Setup
from bbrscope.analyze.views.store_with_views import open_store


@pytest.mark.parametrize("name", TOLERANCES)
@pytest.mark.parametrize("described", [True, False])
def test_measured_pairs_of_other_scenarios_lie_within(name: str, described: bool) -> None:
    pairs = [error for error in shipped() if error.described == described]
    counted = coverage(name, pairs, shipped())
    assert counted.pairs > 30
    # Pairs of a scenario resemble each other, so that few scenarios decide.
    assert counted.in_interval / counted.pairs > LEVEL - 0.06
    assert counted.wrong == 0
    # A verdict leaves the true answer out only where the interval misses the kernel's value.
    out = counted.false + counted.missed
    assert out <= counted.pairs - counted.in_interval
    assert counted.told + counted.half + counted.open == counted.pairs - out
    assert counted.open < counted.told


@pytest.mark.parametrize("described", [True, False])
def test_claims_that_kernels_contradict_are_rarer_than_intervals_that_miss(described: bool) -> None:
    pairs = [error for error in shipped() if error.described == described]
    counted = [coverage(name, pairs, shipped()) for name in TOLERANCES]
    names = ("false", "wrong", "missed")
    contradicted = sum(getattr(one, name) for one in counted for name in names)
    assert contradicted / sum(one.pairs for one in counted) <= (1 - LEVEL) / 2


def _made_up(rng: np.random.Generator, scenario: int) -> KnownError:
    """A pair whose seeds spread half as much as kernels do, by a model that is off by 3 %."""
    middle, spread, off = 10.0, 0.02, rng.standard_t(4) * 0.03
    kernel = middle * float(np.exp(off + rng.normal() * spread))
    seeds = np.quantile(middle * np.exp(rng.normal(size=20) * spread), (0.05, 0.5, 0.95))
    low, mid, high = map(float, seeds)
    one = Predicted(kernel, middle, middle * float(np.exp(0.01)), (low, mid, high))
    return KnownError(
        str(scenario), f"a{scenario}", f"b{scenario}", True, ALONE, {"goodput_mbps": one}
    )


def test_intervals_hold_nine_tenths_whatever_the_errors_are() -> None:
    rng = np.random.default_rng(0)
    known = [_made_up(rng, scenario) for scenario in range(250)]
    counted = coverage("goodput_mbps", known, known)
    assert abs(counted.in_interval / counted.pairs - LEVEL) < 0.03
    assert counted.in_seeds / counted.pairs < 0.7
    one = known[0].predicted["goodput_mbps"]
    low, middle, high = expected("goodput_mbps", one.simulated, 10, 10, known)
    assert low < one.simulated[0] < middle == one.simulated[1] < one.simulated[2] < high
    # Nothing known of the engine: the seeds alone, and as far as the own rules are off.
    assert expected("goodput_mbps", one.simulated, 10, 10, []) == pytest.approx(one.simulated)
    wide = expected("goodput_mbps", one.simulated, 10, 12, [])
    assert wide[0] == pytest.approx(one.simulated[1] / 1.2)


def test_shares_of_a_path_are_judged_by_shares_alone() -> None:
    """What a flow holds against others is another matter than what it carries without them."""
    others = FlowSetup("cubic", 0, 10**7, unseen=True)
    setup = Setup(PathSetup(10_000_000, 40_000, 66), (FlowSetup("v1", 0, 10**7), others), 10**7)
    kind = company_of(setup)
    assert kind == WITH_UNSEEN
    assert company_of(replace(setup, flows=setup.flows[:1])) == ALONE
    like = [error for error in shipped() if error.company == kind]
    assert like
    assert of_others(shipped(), "mine", "run", described=False, company=kind) == like
    # Those that are known are of one scenario, which is not judged by itself: nothing is sure.
    one = like[0]
    known = of_others(shipped(), one.scenario, one.source, described=False, company=kind)
    assert not known
    assert not is_measured("goodput_mbps", 10.0, 10.0, known)


def test_errors_that_are_shipped_are_this_engines(shipped_path: Path) -> None:
    with open_store(shipped_path, read_only=True) as store:
        world = question_about(store, "v2_single_1bdp", (), "v3").world
    known = next(
        error.predicted
        for error in shipped()
        if (error.source, error.run, error.described) == ("v2_single_1bdp", "v3_single_1bdp", True)
    )
    simulated = intervals(outcomes_of(under(world.setup, "v3", {}), 20))
    for name, one in known.items():
        assert world.recorded[name] == pytest.approx(one.recorded, rel=1e-3)
        assert simulated[name] == pytest.approx(one.simulated, rel=1e-3), "write them again"
