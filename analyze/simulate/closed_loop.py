"""The closed loop: a run simulated again under other rules, with the error beside the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..bbr.variants.own_variant import base_of, is_variant, parameters_under
from ..replay.parameter_settings import apply_settings, parse_settings
from ..replay.run_info import run_info
from .course import COURSE, recorded_course, simulated_course
from .course_steps import OverTime, over_time
from .fidelity_notes import reasons, sentence
from .known_errors import (
    Interval,
    KnownError,
    company_of,
    expected,
    is_measured,
    of_others,
    shipped,
)
from .milestones import Milestones, milestones
from .path_ends import untold
from .recorded_world import METRICS, RecordedWorld, recorded_world
from .simulation import Array, simulate
from .verdicts import verdict, words
from .watched import watched
from .world.world_setup import LOSS_BASED, PathSetup, Setup

if TYPE_CHECKING:
    from ...collect.store.store import Store

LEAST_SEEDS = 20
# From so many packets on, a simulation of 20 seeds takes many seconds.
_MANY_PACKETS = 500_000
# Beyond such a share of what was recorded, a path was not fitted but guessed wrong.
_MOST_OFF = {"goodput_mbps": 0.10, "rtt_p50_ms": 0.25}


@dataclass(frozen=True)
class SeedOutcome:
    """What one seed came to: METRICS; of its flows with BBR also milestones and steps of time."""

    metrics: dict[str, float]
    milestones: Milestones
    over_time: OverTime


@dataclass(frozen=True)
class ClosedLoopAnswer:
    """The answer: METRICS as [5 %, median, 95 %], under own and other rules.

    `own` and `other` are over the seeds. `other_for_kernel` is `other` widened by the own rules'
    error and by the errors that are known of the engine (known_errors.py), so that it holds 9 of
    10 kernels' runs. `verdicts` has a verdict per metric, in words. `holds` says how
    far to trust the answer; `is_outside`: there is a reason not to. `own_runs` have one run
    per seed, `other_runs` for each of the ends of `outcomes_between`.
    """

    world: RecordedWorld
    rules: str
    own: dict[str, Interval]
    other: dict[str, Interval]
    other_for_kernel: dict[str, Interval]
    verdicts: dict[str, str]
    holds: str
    is_outside: bool
    own_runs: Sequence[SeedOutcome]
    other_runs: Sequence[SeedOutcome]

    def as_json(self) -> dict[str, Any]:
        """As `bbrscope what-if --json` prints it."""
        own = {
            name: {"recorded": self.world.recorded[name], "simulated": list(self.own[name])}
            for name in METRICS
        }
        verdict = "; ".join(f"{name}: {text}" for name, text in self.verdicts.items())
        return {
            "run": self.world.run,
            "fitted": self.world.fitted,
            "own": own,
            "other": {name: list(self.other[name]) for name in METRICS},
            "other_for_kernel": {name: list(self.other_for_kernel[name]) for name in METRICS},
            "verdict": f"{verdict}. Fidelity: {self.holds}",
        }


@dataclass(frozen=True)
class Question:
    """A recorded world and the other rules to simulate it under; the store is not needed again."""

    world: RecordedWorld
    version: str | None
    settings: Mapping[str, int]
    recorded: Array

    def answer(
        self, seeds: int = LEAST_SEEDS, advance: Callable[[int], None] | None = None
    ) -> ClosedLoopAnswer:
        """Simulate; `predict` has more."""
        return predict(self.world, self.version, self.settings, seeds, advance)

    def recorded_steps(self) -> OverTime:
        """The recording in the simulation's steps of time."""
        setup = self.world.setup
        with_bbr = sum(flow.version is not None for flow in setup.flows)
        return over_time(self.recorded, with_bbr, setup.duration_us, setup.path.mss)


def question_about(
    store: Store, run: str, settings: Sequence[str], as_version: str | None
) -> Question:
    """Ask about a run of the store; `settings` as users write them.

    Raises:
        BbrscopeError: no such run or rules, or a path that cannot be fitted.
    """
    base = "" if as_version is None else base_of(as_version)
    info = run_info(store.con, store.run_id(run))
    flavour = info.flavour if as_version is None else base
    values = parse_settings(settings, flavour, readers=[as_version or info.rules])
    world = recorded_world(store.con, info)
    return Question(world, as_version, values, recorded_course(store.con, info))


def outcome_of(setup: Setup) -> SeedOutcome:
    """Simulate a world; METRICS are of all flows together, but RTTs of those with BBR alone.

    Flows that a recording does not show count in neither.
    """
    pieces: list[Array] = []
    versions = [int((flow.version or "v0")[1:]) for flow in setup.flows]

    def take(events: Array, states: Array, rows: Array) -> None:
        pieces.append(simulated_course(events, states, rows, versions))

    outcome = simulate(setup, take)
    course = np.concatenate(pieces) if pieces else np.zeros(0, COURSE)
    rtts = course["rtt_us"][course["rtt_us"] > 0]
    seen = np.array([not flow.unseen for flow in setup.flows])
    # Segment 0 is a runt.
    payload = int(outcome.flows["rcv_nxt"][seen].sum()) * setup.path.mss
    middle, high = np.quantile(rtts, (0.5, 0.95)) if len(rtts) else (0.0, 0.0)
    lost = sum(
        int(row["retrans_segs"]) if flow.cc in LOSS_BASED else int(event["tp"]["lost"])
        for flow, row, event in zip(setup.flows, outcome.flows, outcome.events, strict=True)
        if not flow.unseen
    )
    values = (payload * 8 / setup.duration_us, lost, middle / 1000, high / 1000)
    metrics = {name: float(value) for name, value in zip(METRICS, values, strict=True)}
    with_bbr = sum(version > 0 for version in versions)
    steps = over_time(course, with_bbr, setup.duration_us, setup.path.mss)
    return SeedOutcome(metrics, milestones(course, with_bbr), steps)


def outcomes_of(
    setup: Setup, seeds: int, advance: Callable[[int], None] | None = None
) -> list[SeedOutcome]:
    """Simulate a world under seeds 0 ... seeds - 1."""
    runs = []
    for seed in range(seeds):
        world = replace(setup, seed=seed)
        runs.append(watched(world, partial(outcome_of, world)))
        if advance is not None:
            advance(1)
    return runs


def typical(runs: Sequence[SeedOutcome]) -> SeedOutcome:
    """The run whose goodput is nearest to the median: one course to show beside a band."""
    middle = float(np.median([run.metrics["goodput_mbps"] for run in runs]))
    return min(runs, key=lambda run: abs(run.metrics["goodput_mbps"] - middle))


def intervals(runs: Sequence[SeedOutcome]) -> dict[str, Interval]:
    """METRICS as [5 %, median, 95 %] over the seeds."""
    return {name: _interval([run.metrics[name] for run in runs]) for name in METRICS}


def outcomes_between(
    world: RecordedWorld, setup: Setup, seeds: int, advance: Callable[[int], None] | None = None
) -> list[list[SeedOutcome]]:
    """Simulate a recorded world on each of the ends that its path lies between; else on this."""
    paths = [
        replace(
            setup.path,
            limit_packets=end.limit_packets,
            changes=end.changes,
            rate_bps=end.rate_bps,
        )
        for end in world.ends
    ]
    made: list[list[SeedOutcome]] = []
    for path in paths or [setup.path]:
        made.append(outcomes_of(replace(setup, path=path), seeds, None if made else advance))
    return made


def interval_between(name: str, outcomes: Sequence[Sequence[SeedOutcome]]) -> Interval:
    """[5 %, median, 95 %] over the seeds, from the lowest to the highest of all ends."""
    each = [_interval([run.metrics[name] for run in runs]) for runs in outcomes]
    middle = float(np.median([run.metrics[name] for runs in outcomes for run in runs]))
    return min(one[0] for one in each), middle, max(one[2] for one in each)


def _interval(values: list[float]) -> Interval:
    low, middle, high = (float(x) for x in np.quantile(values, (0.05, 0.5, 0.95)))
    return low, middle, high


def under(setup: Setup, version: str | None, settings: Mapping[str, int]) -> Setup:
    """The same world with the rules of a version or a variant where a flow has BBR."""
    flows = []
    for recorded in setup.flows:
        if recorded.version is None:
            flows.append(recorded)
            continue
        rules = version or recorded.variant or recorded.version
        ran = recorded.variant or recorded.version
        base = parameters_under(rules, ran, recorded.parameters)
        variant = rules if is_variant(rules) else ""
        flow = replace(recorded, cc=base_of(rules), variant=variant)
        flows.append(replace(flow, parameters=apply_settings(base, settings)))
    return replace(setup, flows=tuple(flows))


def predict(
    world: RecordedWorld,
    version: str | None,
    settings: Mapping[str, int],
    seeds: int = LEAST_SEEDS,
    advance: Callable[[int], None] | None = None,
) -> ClosedLoopAnswer:
    """Simulate a recorded world under its own rules and under others, over seeds.

    Raises:
        BbrscopeError: fewer than LEAST_SEEDS seeds, or the world cannot be simulated, or nothing
            was measured, or `check_fit` refuses the path.
    """
    if seeds < LEAST_SEEDS:
        raise BbrscopeError(
            f"{plural(seeds, 'seed says', 'seeds say')} little", f"use {LEAST_SEEDS} or more"
        )
    _check_measured(world, world.recorded, "the recording shows")
    check_length(world)
    changed = under(world.setup, version, settings)
    own_runs = outcomes_of(world.setup, seeds, advance)
    own = intervals(own_runs)
    medians = {name: interval[1] for name, interval in own.items()}
    _check_measured(world, medians, "its simulation, as short as the recording, shows")
    check_fit(world, own)
    ends = outcomes_between(world, changed, seeds, advance)
    other = {name: interval_between(name, ends) for name in METRICS}
    errors = of_others(
        shipped(),
        world.scenario,
        world.run,
        described=world.is_described,
        company=company_of(world.setup),
    )
    for_kernel = _for_kernel(world, own, other, errors)
    rules = version if version and version != world.rules else "these rules"
    verdicts = {}
    for name in METRICS:
        recorded, middle = world.recorded[name], own[name][1]
        of_ends = [intervals(runs)[name] for runs in ends]
        known = {
            "is_covered": not world.uncovered,
            "is_measured": is_measured(name, recorded, middle, errors),
        }
        said = verdict(name, recorded, of_ends, middle, for_kernel[name], **known)
        error = f" (own-rules error {abs(recorded - middle):.3g})"
        verdicts[name] = words(name, rules, recorded, for_kernel[name], said) + error
    why = [*reasons(world.setup, changed), *world.uncovered, *_far_off(world, own)]
    if world.begins_within:
        why.append("the recording begins within a flow, the simulation with its STARTUP")
    why += untold(world.ends)
    return ClosedLoopAnswer(
        world,
        rules,
        own,
        other,
        for_kernel,
        verdicts,
        sentence(why, world.setup, changed, guessed=not world.is_described),
        bool(why),
        own_runs,
        [run for runs in ends for run in runs],
    )


def _check_measured(world: RecordedWorld, metrics: Mapping[str, float], shows: str) -> None:
    """Refuse to compare what nobody measured: no RTT is 0, and 0 is no goodput of a sender's.

    Raises:
        BbrscopeError: goodput or RTT is missing.
    """
    lacking = {"goodput": metrics["goodput_mbps"], "RTT": metrics["rtt_p50_ms"]}
    if missing := " and ".join(f"no {name}" for name, value in lacking.items() if not value > 0):
        raise BbrscopeError(
            f"{world.run}: {shows} {missing}: nothing can be compared",
            f"see what it lacks: bbrscope explain {world.run}",
        )


def check_length(world: RecordedWorld) -> None:
    """Refuse to simulate senders that have data for hours where next to none was recorded.

    Raises:
        BbrscopeError: so it is: they paused, or the recording's clock jumped.
    """
    setup, carried = world.setup, _carried_mbps(world.setup.path)
    packets = carried * setup.duration_us / 8 / setup.path.mss
    is_bulk = any(flow.kind == "bulk" for flow in setup.flows)
    if is_bulk and packets > _MANY_PACKETS and world.recorded["goodput_mbps"] < carried / 100:
        raise BbrscopeError(
            f"{world.run}: in {setup.duration_us / 1e6:,.0f} s the path carries"
            f" {packets:,.0f} packets, and less than a hundredth of them was recorded: flows"
            " paused, or the clock jumped",
            f"see where: bbrscope explain {world.run}",
        )


def _for_kernel(
    world: RecordedWorld,
    own: Mapping[str, Interval],
    other: Mapping[str, Interval],
    errors: Sequence[KnownError],
) -> dict[str, Interval]:
    """What was simulated under other rules, as intervals that hold a kernel's run."""
    path = world.setup.path
    round_trips = [path.rtt_us, *(value for _, what, value in path.changes if what == "rtt")]
    base_ms = min(round_trips) / 1000
    least = {"rtt_p50_ms": base_ms, "rtt_p95_ms": base_ms}
    made = {}
    for name in METRICS:
        of_seeds = other[name]
        low, middle, high = expected(name, of_seeds, world.recorded[name], own[name][1], errors)
        # No RTT is shorter than the path's, and nothing comes faster than it carries.
        low = max(low, min(of_seeds[0], least.get(name, 0.0)))
        if name == "goodput_mbps" and world.is_described:
            high = min(high, max(of_seeds[2], _carried_mbps(world.setup.path)))
        made[name] = low, middle, high
    return made


def _carried_mbps(path: PathSetup) -> float:
    """The payload that the path carries at its fastest."""
    rates = [path.rate_bps, *(value for _, what, value in path.changes if what == "rate")]
    return max(rates) * path.mss / (path.mss + path.headers) / 1e6


def check_fit(world: RecordedWorld, own: Mapping[str, Interval]) -> None:
    """Refuse a path that was fitted from the recording alone and does not reproduce it.

    Raises:
        BbrscopeError: see `_far_off`.
    """
    off = _far_off(world, own)
    if off and not world.is_described:
        raise BbrscopeError(
            f"{world.run}: the path cannot be fitted from the recording alone:"
            f" {'; '.join([off[0], *world.uncovered])}",
            "write rate, delay, limit and loss into the setup of the run's manifest; flows"
            " that pause, and others on the path but CUBIC, are not fitted",
        )


def _far_off(world: RecordedWorld, own: Mapping[str, Interval]) -> list[str]:
    """Which of METRICS its own rules do not come to, in words.

    The recorded value is not among what the seeds come to, and the seeds' median differs from it by
    more than _MOST_OFF allows: under random loss runs of one path may differ by more.
    """
    return [
        f"under its own rules {name} comes out at {own[name][1]:.4g}, recorded is"
        f" {world.recorded[name]:.4g}"
        for name, most in _MOST_OFF.items()
        if abs(own[name][1] - world.recorded[name]) > most * world.recorded[name]
        and not own[name][0] <= world.recorded[name] <= own[name][2]
    ]
