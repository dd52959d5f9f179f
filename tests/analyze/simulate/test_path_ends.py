"""What a recording does not tell of its path lies between the ends that other rules run on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.simulate.closed_loop import (
    interval_between,
    outcomes_between,
    outcomes_of,
    under,
)
from bbrscope.analyze.simulate.path_ends import untold
from bbrscope.analyze.simulate.recorded_world import RecordedWorld
from bbrscope.analyze.simulate.world.world_setup import FlowSetup, PathSetup

from .test_fitted_path import PLAIN, fitted


def _changes(world: RecordedWorld) -> list[tuple[float, float]]:
    """The first change of each end: when, and to what."""
    return [end.changes[0][::2] for end in world.ends]


@pytest.mark.parametrize(("cc", "rate"), [("v1", 45e6), ("v3", 45e6)])
def test_a_rate_rose_before_it_was_used(cc: str, rate: float, tmp_path: Path) -> None:
    path = replace(PLAIN, changes=((3_000_000, "rate", rate),))
    world = fitted(path, tmp_path, FlowSetup(cc, 0, 8_000_000))
    (early, _), (late, _) = _changes(world)
    assert early - world.setup.path.rtt_us <= 3_000_000 <= late
    (told,) = untold(world.ends)
    assert told.startswith("its rate rose between ")


def test_an_outage_ended_between_two_attempts(tmp_path: Path) -> None:
    path = replace(PLAIN, changes=((3_000_000, "down", 1.1e6),))
    world = fitted(path, tmp_path, FlowSetup("v1", 0, 6_000_000))
    (_, short), (_, long) = _changes(world)
    assert short < 1.1e6 < long
    (told,) = untold(world.ends)
    assert told.startswith("its outage at ")


def test_a_buffer_that_was_full_is_told(tmp_path: Path) -> None:
    assert fitted(PLAIN, tmp_path, FlowSetup("v1", 0, 3_000_000)).ends == ()
    assert [*untold(())] == []


def test_a_queue_that_was_never_full_leaves_the_losses_of_others_open(tmp_path: Path) -> None:
    """v3's queue is short; what v1 loses on the path is between what it loses on its ends."""
    path = PathSetup(10_000_000, 40_000, limit_packets=50)
    flow = FlowSetup("v3", 0, 6_000_000, kind="rate-limited", rate_bps=8_000_000)
    world = fitted(path, tmp_path, flow)
    assert world.fit
    assert 0 < world.fit.least_packets < 50
    bulk = tuple(replace(each, kind="bulk", rate_bps=0) for each in world.setup.flows)
    changed = under(replace(world.setup, flows=bulk), "v1", {})
    ends = outcomes_between(world, changed, 3)
    assert len(ends) == len(world.ends) == 3
    true_path = replace(changed.path, limit_packets=50)
    for name in ("goodput_mbps", "lost_packets"):
        low, _, high = interval_between(name, ends)
        for run in outcomes_of(replace(changed, path=true_path), 3):
            assert 0.99 * low <= run.metrics[name] <= 1.01 * high, name
    least, _, most = ([run.metrics["lost_packets"] for run in runs] for runs in ends)
    assert min(least) > max(most) == 0
