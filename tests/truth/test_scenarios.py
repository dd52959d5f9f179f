"""Findings on the lab's quick scenarios, simulated, against what is true of their flows.

`scenarios/*.toml` say what is true, worked out of raw rows and the set-up, not of what rules find.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.collect.bundle.bundle import EVENTS
from bbrscope.collect.lab import scenario

from tests.recordings import manifest
from tests.truth import readers_lab, worked_out
from tests.truth.facts import Recording
from tests.truth.judged import HERE, Score, problems, truth
from tests.truth.recomputed import Recomputed
from tests.truth.simulated import diagnosed, first_point

LEAST_PRECISION, LEAST_RECALL = 0.97, 0.92
NAMES = sorted(file.stem for file in (HERE / "scenarios").glob("*.toml"))
# Flows of two versions: one recording is of one kernel, which has one BBR.
TWO_VERSIONS = "song-v1v2"


def simulated(name: str, folder: Path) -> Path:
    values = {axis: [value] for axis, value in truth(name, "scenarios")["point"].items()}
    quick = scenario.override(scenario.quick(scenario.load(name)), values)
    assert len(list(scenario.points(quick))) == 1
    return first_point(quick, folder)


def recompute(numbers: Recomputed, made: Diagnosis, of: Recording) -> None:
    """Compare numbers with raw rows, where all senders have some: a simulation captures nothing."""
    if len(of.lab["flows"]) == len(made.flows):
        findings = [each for each in made.findings if each.rule.name in readers_lab.READERS]
        numbers.check(replace(made, findings=findings), of)


def check_truth(name: str, of: Recording) -> None:
    """The file says what raw rows say, of each problem that they can decide, but where it says why
    its meaning does not hold."""
    for number, (flow, reviewed) in enumerate(
        zip(of.flows, truth(name, "scenarios")["flows"], strict=True)
    ):
        for problem, holds in worked_out.PROBLEMS.items():
            if problem not in reviewed.get("no", {}):
                note = holds(flow)
                known = reviewed["problems"].get(problem)
                assert (note is None) == (known is None), f"{name} {number}: {problem}: {note}"


def test_every_scenario_has_its_truth() -> None:
    assert {*NAMES, TWO_VERSIONS} == set(scenario.names())
    for name in NAMES:
        for flow in truth(name, "scenarios")["flows"]:
            assert set(flow["problems"]) <= set(problems()), name
            assert set(flow.get("no", {})) <= set(worked_out.PROBLEMS), name


def test_flows_of_two_versions_are_never_one_recording(tmp_path: Path) -> None:
    """So there is nothing to judge: no kernel's events hold both, and the lab records none."""
    quick = scenario.quick(scenario.load(TWO_VERSIONS))
    bundle = first_point(quick, tmp_path)
    assert manifest(bundle)["simulated"]
    assert not (bundle / EVENTS).exists()


@pytest.mark.slow
def test_simulated_scenarios_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    score, numbers = Score(), Recomputed(readers_lab.READERS, {})
    bundles = [simulated(name, tmp_path) for name in NAMES]
    for name, (bundle, made) in zip(NAMES, diagnosed(bundles, tmp_path), strict=True):
        score.add(name, made, truth(name, "scenarios")["flows"])
        recording = Recording(bundle)
        check_truth(name, recording)
        recompute(numbers, made, recording)
    with capsys.disabled():
        print(f"\n{score.table()}\n{numbers.table()}")
    assert numbers.missing == set()
    # The STARTUP that does not end here is the application's, and told as that.
    assert set(numbers.compared) == set(readers_lab.READERS) - {"startup_never_left"}
    assert score.precision >= LEAST_PRECISION
    assert score.recall >= LEAST_RECALL
