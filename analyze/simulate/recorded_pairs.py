"""Predict each recording from every other of its scenario: the engine's errors, measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from ..replay.run_info import run_info
from ..story.completeness import simulated_of_many
from .closed_loop import (
    LEAST_SEEDS,
    check_fit,
    interval_between,
    intervals,
    outcomes_between,
    outcomes_of,
    under,
)
from .fidelity import REACHED, ComparedColumn
from .known_errors import Interval, KnownError, Predicted, company_of, expected, of_others
from .recorded_world import METRICS, RecordedWorld, recorded_world
from .verdicts import Coverage, coverage

if TYPE_CHECKING:
    import duckdb


def recorded_pairs(
    con: duckdb.DuckDBPyConnection, runs: Mapping[str, int]
) -> list[tuple[RecordedWorld, RecordedWorld]]:
    """Ordered pairs of kernels' recordings: of one scenario, under different versions.

    `runs` are run_ids by name. Each pair comes twice: with the paths of the manifests, and with
    paths fitted from the recordings alone.
    """
    simulated = simulated_of_many(con, list(runs.values()))
    kernels = [run_id for run_id in runs.values() if run_id not in simulated]
    pairs = []
    for alone in (False, True):
        worlds = [world for run_id in kernels for world in _world(con, run_id, alone)]
        pairs += [(a, b) for a in worlds for b in worlds if _are_pair(a, b)]
    return pairs


def _are_pair(a: RecordedWorld, b: RecordedWorld) -> bool:
    return bool(a.scenario) and a.scenario == b.scenario and a.rules != b.rules


def _world(con: duckdb.DuckDBPyConnection, run_id: int, alone: bool) -> Iterator[RecordedWorld]:
    """The world of a run, unless there is none."""
    try:
        yield recorded_world(con, run_info(con, run_id), alone=alone)
    except BbrscopeError:
        return


def known_errors(
    pairs: list[tuple[RecordedWorld, RecordedWorld]], seeds: int = LEAST_SEEDS
) -> Iterator[KnownError | None]:
    """Predict the second of each pair from the first; None: its path is refused."""
    own: dict[tuple[str, bool], dict[str, Interval]] = {}
    for source, run in pairs:
        key = source.run, source.is_described
        if key not in own:
            own[key] = intervals(outcomes_of(source.setup, seeds))
        try:
            check_fit(source, own[key])
        except BbrscopeError:
            yield None
            continue
        ends = outcomes_between(source, under(source.setup, run.rules, {}), seeds)
        other = {name: interval_between(name, ends) for name in METRICS}
        predicted = {
            name: _rounded(run.recorded[name], source.recorded[name], own[key][name], other[name])
            for name in METRICS
        }
        how = source.is_described, company_of(source.setup)
        yield KnownError(source.scenario, source.run, run.run, *how, predicted)


def _rounded(kernel: float, recorded: float, own: Interval, other: Interval) -> Predicted:
    low, middle, high = (round(value, 4) for value in other)
    return Predicted(round(kernel, 4), round(recorded, 4), round(own[1], 4), (low, middle, high))


def as_markdown(errors: Sequence[KnownError], known: Sequence[KnownError]) -> str:
    """The tables of the docs: each prediction, and how often predictions are right.

    Intervals are those of what-ifs: from what is `known` of other scenarios.
    """
    heads = [column.heading for column in REACHED]
    lines = [f"| predicted from | path | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for error in errors:
        others = of_others(
            known, error.scenario, error.source, described=error.described, company=error.company
        )
        cells = [_cell(column, error, others) for column in REACHED]
        lines.append(f"| {_pair_words(error)} | {' | '.join(cells)} |")
    lines += ["", *_coverage_table(errors, known)]
    return "\n".join(lines)


def _pair_words(error: KnownError) -> str:
    path = "set-up" if error.described else "recording"
    return f"{error.run} from {error.source} | {path}"


def _cell(column: ComparedColumn, error: KnownError, others: Sequence[KnownError]) -> str:
    one = error.predicted[column.name]
    interval = expected(column.name, one.simulated, one.recorded, one.own, others)
    shown = [f"{value:.{column.digits}f}" for value in (one.kernel, *interval)]
    text = f"{shown[0]}: {', '.join(shown[1:])}"
    return text if interval[0] <= one.kernel <= interval[2] else f"**{text}**"


def _coverage_table(errors: Sequence[KnownError], known: Sequence[KnownError]) -> Iterator[str]:
    heads = (
        "path from | quantity | pairs | median agrees | in seeds' interval | in the interval"
        " | likeliest is right | sure, and right | one of two left | all left"
        " | sure of a difference, none there | sure of the wrong sign | difference left out"
    )
    yield f"| {heads} |"
    yield f"|{'---|' * (heads.count('|') + 1)}"
    for described in (True, False):
        of_kind = [error for error in errors if error.described == described]
        for column in REACHED if of_kind else ():
            counts = _counts(coverage(column.name, of_kind, known))
            path = "set-up" if described else "recording"
            yield f"| {path} | {column.heading} | {' | '.join(map(str, counts))} |"


def _counts(one: Coverage) -> list[int]:
    reached = [one.pairs, one.agree, one.in_seeds, one.in_interval]
    return [*reached, one.likeliest, one.told, one.half, one.open, one.false, one.wrong, one.missed]
