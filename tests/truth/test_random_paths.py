"""Findings on simulated paths that nobody chose, against what their raw rows say.

BBRSCOPE_TESTS_SEEDS=1000-1200 judges other paths than the ones that CI does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.collect.lab import scenario
from bbrscope.probes.base.errors import ScenarioError

from tests.truth import random_paths
from tests.truth.facts import Recording
from tests.truth.judged import Score, problems
from tests.truth.readers import EXCUSED, READERS, VERDICTS
from tests.truth.readers_changes import READERS as CHANGES
from tests.truth.recomputed import Recomputed
from tests.truth.simulated import diagnosed, first_point
from tests.truth.worked_out import PROBLEMS, decidable, of_flow

LEAST_PRECISION, LEAST_RECALL = 0.97, 0.92
OF_CHANGES = {**CHANGES, "outage": READERS["outage"], "policer": READERS["policer"]}
# Drawn paths of which something false was said once, or something true was not.
ONCE_WRONG = sorted((Path(__file__).parent / "paths").glob("*.toml"))


def seeds() -> range:
    first, last = os.environ.get("BBRSCOPE_TESTS_SEEDS", "0-30").split("-")
    return range(int(first), int(last))


def simulated(seed: int, folder: Path) -> Path | None:
    """The bundle of a seed's path; None if the lab refuses it."""
    try:
        return first_point(scenario.load(str(random_paths.write(seed, folder))), folder)
    except ScenarioError:
        return None


def judge(score: Score, made: Diagnosis, of: Recording) -> None:
    """Judge what raw rows can decide; findings of other rules count where they are right."""
    true = [{"problems": of_flow(flow)} for flow in of.flows]
    named = {problem for flow in true for problem in flow["problems"]}
    known = problems()

    def judged(rule: str) -> bool:
        means = {problem for problem, its in known.items() if rule in its["rules"]}
        return decidable(means, of) or bool(means & named)

    findings = [each for each in made.findings if judged(each.rule.name)]
    score.add(made.run, replace(made, findings=findings), true)


def recompute(numbers: Recomputed, made: Diagnosis, of: Recording) -> None:
    """Compare numbers with raw rows, where all senders have some; of a path that changes, those of
    findings about that."""
    if len(of.lab["flows"]) > len(of.flows):
        return
    readers = OF_CHANGES if of.lab["changes"] else READERS
    findings = [each for each in made.findings if each.rule.name in readers]
    numbers.check(replace(made, findings=findings), of)


def test_paths_are_drawn_anew_from_each_seed_and_the_lab_takes_them(tmp_path: Path) -> None:
    texts = {random_paths.scenario_text(seed) for seed in range(100)}
    assert len(texts) == 100
    assert random_paths.scenario_text(7) == random_paths.scenario_text(7)
    for seed in range(100):
        assert scenario.load(str(random_paths.write(seed, tmp_path))).title == f"path {seed}"


def test_raw_rows_decide_known_problems() -> None:
    assert set(PROBLEMS) <= set(problems())


@dataclass
class Judged:
    """Simulated bundles: their findings judged, their numbers worked out anew, and which rules
    told something of each, by the scenario's name."""

    score: Score
    numbers: Recomputed
    rules: dict[str, set[str]]


def judge_bundles(bundles: Sequence[Path], folder: Path) -> Judged:
    found = Judged(Score(), Recomputed(READERS, EXCUSED), {})
    for bundle, diagnosis in diagnosed(bundles, folder):
        recording = Recording(bundle)
        judge(found.score, diagnosis, recording)
        recompute(found.numbers, diagnosis, recording)
        Recomputed(VERDICTS, EXCUSED).verdicts(diagnosis, recording)
        name = bundle.name.partition("+")[0]
        found.rules[name] = {one.rule.name for one in diagnosis.findings}
    return found


@pytest.mark.slow
def test_random_paths_are_judged_rightly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [bundle for seed in seeds() if (bundle := simulated(seed, tmp_path)) is not None]
    found = judge_bundles(made, tmp_path)
    with capsys.disabled():
        print(f"\n{found.score.table()}\n{found.numbers.table()}")
    assert found.numbers.missing == set()
    assert found.score.precision >= LEAST_PRECISION
    assert found.score.recall >= LEAST_RECALL


@pytest.mark.slow
def test_of_paths_that_were_judged_wrongly_once_nothing_false_is_said(tmp_path: Path) -> None:
    made = [first_point(scenario.load(str(path)), tmp_path) for path in ONCE_WRONG]
    found = judge_bundles(made, tmp_path)
    rules = found.rules
    assert len(made) == len(rules) > 5
    assert found.score.wrong == []
    assert "stuck_at_lower_bounds" in rules["marks_hold_one"]
    assert "not_converged" in rules["silent_beside_another"]
    assert "min_rtt_stale" in rules["longer_path_of_two"]
    assert "startup_too_early" in rules["greeted_through_a_queue"]
    changed = rules["longer_then_shorter_behind_a_queue"]
    assert {"min_rtt_stale", "path_shorter"} <= changed
    assert "inflight_hi_ratchet" in rules["cut_before_another_comes"]
    assert "startup_too_early" not in rules["startup_fills_small_window"]
    assert "ack_aggregation" in rules["acks_held_for_less_than_a_round_trip"]
    assert "underuse_of_shallow_buffer" in rules["acks_in_bursts_at_a_shallow_buffer"]
    assert "rtt_unfairness" in rules["far_and_near_without_loss"]
    assert not {"unfair_without_loss", "unequal_shares"} & rules["far_and_near_without_loss"]
