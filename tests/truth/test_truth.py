"""Findings against what is true of each flow: reviewed files, and numbers out of the raw rows.

`recordings/*.toml` say what is true, derived from each recording's set-up and raw rows; `facts`
derives the numbers among it anew, without the code that is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.diagnosis.engine import Diagnosis, diagnose
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.collect.store.store import Store

from tests.analyze.diagnosis.test_diagnosis_fires import HOSTS, PUT
from tests.truth import worked_out
from tests.truth.facts import Flow, Recording, lost_elsewhere, shares
from tests.truth.judged import HERE, Score, problems, truth
from tests.truth.readers import EXCUSED, READERS, VERDICTS
from tests.truth.recomputed import Recomputed
from tests.truth.test_explanations import check_run as stories_are_raw
from tests.truth.test_metrics import Told
from tests.truth.test_metrics import check as metrics_are_raw
from tests.truth.test_metrics import check_packets as packets_are_raw

# Least precision and recall that findings are to have, over all recordings.
LEAST_PRECISION, LEAST_RECALL = 0.97, 0.92

# Recordings that lack rows: counts of theirs are not what the kernel did.
LACKING = {"lossy_v3_ecn"}
# Where one call was missed, what stands between two rows is two changes at once.
NO_STORY = LACKING | {"lossy_v2_one_silent_miss"}
# Rules about troubles that no recording has are shown by rows that were put into one.
FIRES_ELSEWHERE = set(PUT) | set(HOSTS) | {"underuse_of_shallow_buffer", "unfair_without_loss"}
# These are shown by simulations (test_simulated_paths).
FIRES_ELSEWHERE |= {"marks_echoed", "path_shorter"}


def judge(store: Store, runs: Sequence[str]) -> tuple[Score, dict[str, Diagnosis]]:
    score = Score()
    made = {run: diagnose(store.con, store.run_id(run)) for run in runs}
    for run, diagnosis in made.items():
        score.add(run, diagnosis, truth(run)["flows"])
    return score, made


def test_the_shipped_recordings_are_judged_rightly(shipped: Store) -> None:
    score, made = judge(shipped, shipped.runs())
    assert (score.wrong, score.unreported) == ([], [])
    numbers = Recomputed(READERS, EXCUSED)
    for run, diagnosis in made.items():
        numbers.check(diagnosis, Recording(fixtures.path(run)))
    assert numbers.missing == set()


@pytest.mark.slow
def test_every_recording_is_judged_rightly(
    all_compared: Store, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = all_compared.runs()
    assert set(runs) == {file.stem for file in (HERE / "recordings").glob("*.toml")}
    score, made = judge(all_compared, runs)
    with capsys.disabled():
        print(f"\n{score.table()}")
    assert score.precision >= LEAST_PRECISION
    assert score.recall >= LEAST_RECALL
    assert set(score.found) | FIRES_ELSEWHERE == {rule.name for rule in rules()}
    compared, told, numbers = 0, Told(all_compared), Recomputed(READERS, EXCUSED)
    for run, diagnosis in made.items():
        if run in LACKING:
            numbers.leave_out(diagnosis)
        else:
            recording = Recording(traces / run)
            numbers.check(diagnosis, recording)
            Recomputed(VERDICTS, EXCUSED).verdicts(diagnosis, recording)
            check_truth(run, recording)
            compared += metrics_are_raw(told, recording)
            if int(recording.setup.get("n", 1)) > 1:
                compared += packets_are_raw(told, recording)
            if run not in NO_STORY:
                compared += stories_are_raw(all_compared, recording)
    with capsys.disabled():
        print(numbers.table())
    assert numbers.missing == set()
    assert compared > 8_000


def test_truth_files_speak_of_known_problems() -> None:
    known = problems()
    for file in (HERE / "recordings").glob("*.toml"):
        for flow in truth(file.stem)["flows"]:
            assert set(flow["problems"]) <= set(known)
            assert set(flow.get("no", {})) <= set(known)
            assert not set(flow["problems"]) & set(flow.get("no", {}))


# What is asked of a kernel's recording as of a simulated one.
DECIDED_ALIKE = "outage heavy_loss policer_mode initial_window_loss reordering".split()
# Problem -> whether it is true of a flow, by its raw rows. What needs the other senders, the
# link's rate or a path's set-up is in the files only.
RAW: dict[str, Callable[[Flow], object]] = {
    **{problem: worked_out.PROBLEMS[problem] for problem in DECIDED_ALIKE},
    "random_loss": lambda flow: lost_elsewhere(flow.of),
    "tail_loss": lambda flow: len(flow.tail_probes) >= 2,
    "marks_unanswered": lambda flow: flow.marked >= 0.01 and not flow.answers_marks,
    "application": lambda flow: flow.of.setup.get("extra") == "-b 4M" and (flow.unused or 0) > 0.5,
}
# These can be seen in events only where the set-up says what to compare with.
ONLY_WITH_SET_UP = {"random_loss", "application"}


def check_truth(run: str, of: Recording) -> None:
    """The file says what raw rows say, of each problem that they can decide."""
    for flow, reviewed in zip(of.flows, truth(run)["flows"], strict=True):
        for problem, holds in RAW.items():
            if problem in ONLY_WITH_SET_UP and not of.setup:
                continue
            assert bool(holds(flow)) == (problem in reviewed["problems"]), f"{run}: {problem}"
    if "unequal" in problems() and len(of.setup.get("starts", "").split()) == 2:
        parts = shares(of)
        for part, reviewed in zip(parts, truth(run)["flows"], strict=False):
            assert (2 * part < 0.8) == ("unequal" in reviewed["problems"]), f"{run}: {parts}"
