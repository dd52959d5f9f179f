"""Findings against what is true of each flow: reviewed files, and numbers out of the raw rows.

`recordings/*.toml` say what is true, derived from each recording's set-up and raw rows; `facts`
derives the numbers among it anew, without the code that is judged here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bbrscope import fixtures
from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding, diagnose
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.collect.store.store import Store

from tests.analyze.diagnosis.test_diagnosis_fires import HOSTS, PUT
from tests.truth.facts import LEAST_SILENCE_S, Flow, Recording, shares
from tests.truth.judged import HERE, Score, problems, truth
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
    for run, diagnosis in made.items():
        check_numbers(diagnosis, Recording(fixtures.path(run)))


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
    compared, told = 0, Told(all_compared)
    for run, diagnosis in made.items():
        if run not in LACKING:
            recording = Recording(traces / run)
            check_numbers(diagnosis, recording)
            check_truth(run, recording)
            compared += metrics_are_raw(told, recording)
            if int(recording.setup.get("n", 1)) > 1:
                compared += packets_are_raw(told, recording)
            if run not in NO_STORY:
                compared += stories_are_raw(all_compared, recording)
    assert compared > 8_000


def test_truth_files_speak_of_known_problems() -> None:
    known = problems()
    for file in (HERE / "recordings").glob("*.toml"):
        for flow in truth(file.stem)["flows"]:
            assert set(flow["problems"]) <= set(known)
            assert set(flow.get("no", {})) <= set(known)
            assert not set(flow["problems"]) & set(flow.get("no", {}))


# Problem -> whether it is true of a flow, by its raw rows. What needs the other senders, the
# link's rate or a path's set-up is in the files only.
RAW: dict[str, Callable[[Flow], bool]] = {
    "outage": lambda flow: bool(flow.outages),
    "heavy_loss": lambda flow: heavy(flow),
    "random_loss": lambda flow: lost_elsewhere(flow.of),
    "policer_mode": lambda flow: flow.frozen > 0,
    "initial_window_loss": lambda flow: flow.lost_of_initial_window > 0,
    "tail_loss": lambda flow: len(flow.tail_probes) >= 2,
    "reordering": lambda flow: flow.reordered >= 10,
    "marks_unanswered": lambda flow: flow.marked >= 0.01 and not flow.answers_marks,
    "application": lambda flow: flow.of.setup.get("extra") == "-b 4M" and (flow.unused or 0) > 0.5,
}
# These can be seen in events only where the set-up says what to compare with.
ONLY_WITH_SET_UP = {"random_loss", "application"}


def heavy(flow: Flow) -> bool:
    lost, delivered = flow.without_timeouts()
    return lost >= 30 and lost >= 0.02 * (lost + delivered)


def lost_elsewhere(of: Recording) -> bool:
    """Twice as many were lost as the queue dropped, and 30 more; without what timeouts marked."""
    dropped = of.dropped()
    lost = sum(flow.without_timeouts()[0] for flow in of.flows)
    return dropped is not None and lost >= max(2 * dropped, dropped + 30)


def check_truth(run: str, of: Recording) -> None:
    """The file says what raw rows say, of each problem that they can decide."""
    for flow, reviewed in zip(of.flows, truth(run)["flows"], strict=True):
        for problem, holds in RAW.items():
            if problem in ONLY_WITH_SET_UP and not of.setup:
                continue
            assert holds(flow) == (problem in reviewed["problems"]), f"{run}: {problem}"
    if "unequal" in problems() and len(of.setup.get("starts", "").split()) == 2:
        parts = shares(of)
        for part, reviewed in zip(parts, truth(run)["flows"], strict=False):
            assert (2 * part < 0.8) == ("unequal" in reviewed["problems"]), f"{run}: {parts}"


# Rule -> its numbers, by the raw rows of the flow; times are seconds of the run's clock.
NUMBERS: dict[str, Callable[[Flow], dict[str, Any]]] = {
    "outage": lambda flow: {
        "timeouts_count": len(flow.timeouts),
        "timeouts_at": flow.timeouts,
        "silences_count": len(flow.outages),
        "total_s": sum(lasted for _, lasted in flow.outages),
        "silence_s": max(lasted for _, lasted in flow.outages),
        "silence_at": max(flow.outages, key=lambda outage: outage[1])[0],
        "undone_count": flow.undo_count,
        "srtt_us": flow.usual_us,
        "limit_s": max(LEAST_SILENCE_S, 4e-6 * flow.usual_us),
    },
    "heavy_loss": lambda flow: {
        "lost_packets": flow.without_timeouts()[0],
        "part_share": flow.without_timeouts()[0] / sum(flow.without_timeouts()),
        "base_us": flow.base_us,
    },
    "loss_near_gain_cliff": lambda flow: {
        "loss_share": flow.loss_share,
        "carried_bps": flow.goodput,
    },
    "loss_above_threshold": lambda flow: {
        "loss_share": flow.loss_share,
        "lowest_packets": flow.after_init["bbr.inflight_hi"].min(),
    },
    "probes_overflow": lambda flow: {"loss_share": flow.loss_share},
    "stuck_at_lower_bounds": lambda flow: {
        "loss_share": flow.loss_share,
        "goodput_bps": flow.goodput,
    },
    "loss_outside_bottleneck": lambda flow: {
        "lost_packets": flow.without_timeouts()[0],
        "dropped_packets": flow.of.dropped(),
        "elsewhere_packets": flow.without_timeouts()[0] - (flow.of.dropped() or 0),
        "elsewhere_share": (flow.without_timeouts()[0] - (flow.of.dropped() or 0))
        / (flow.total("tp.lost") + flow.total("tp.delivered")),
        "undone_count": flow.undo_count,
    },
    "policer": lambda flow: {
        "held_s": flow.frozen,
        "loss_share": flow.loss_share,
        "entries_at": flow.frozen_from,
    },
    "initial_window_loss": lambda flow: {
        "lost_packets": flow.lost_of_initial_window,
        "window_packets": flow.after_init["tp.snd_cwnd"][0],
        "base_us": flow.base_us,
    },
    "tail_loss": lambda flow: {
        "probes_count": len(flow.tail_probes),
        "probes_at": flow.tail_probes,
        "timeouts_count": len(flow.tail_timeouts),
        "timeouts_at": flow.tail_timeouts,
        "tails_count": len(flow.tail_probes) + len(flow.tail_timeouts),
        "base_us": flow.base_us,
    },
    "reordering": lambda flow: {
        "spells_count": flow.reordered,
        "lost_packets": flow.total("tp.lost"),
        "undone_count": flow.undo_count,
    },
    "probe_rtt_long": lambda flow: {
        "probes_count": len(flow.probe_rtts),
        "total_s": sum(flow.probe_rtts),
        "longest_s": max(flow.probe_rtts),
        "total_share": sum(flow.probe_rtts) / flow.seconds,
    },
    "inflight_cap": lambda flow: {"base_us": flow.base_us},
    "ack_aggregation": lambda flow: {"most_packets": flow.most_extra},
    "bufferbloat": lambda flow: {"bloated_s": flow.bloated, "base_us": flow.base_us},
    "standing_queue": lambda flow: {"base_us": flow.base_us},
    "min_rtt_inflated": lambda flow: {"held_s": flow.min_rtt_high, "base_us": flow.base_us},
    "ecn_ignored": lambda flow: {
        "ce_share": flow.marked,
        "ce_packets": flow.total("tp.delivered_ce"),
        "lost_packets": flow.total("tp.lost"),
        "base_us": flow.base_us,
    },
    "application_limited": lambda flow: {"goodput_bps": flow.goodput},
}


def check_numbers(made: Diagnosis, of: Recording) -> None:
    """Each number of a finding that raw rows have is what they have."""
    numbers = sorted(made.flows, key=lambda number: made.flows[number].first_ns)
    flows = dict(zip(numbers, of.flows, strict=True))
    for finding in made.findings:
        if finding.rule.name in NUMBERS:
            flow = flows[numbers[0] if finding.flow is None else finding.flow]
            for name, number in NUMBERS[finding.rule.name](flow).items():
                number_in_text = on_the_clock(finding, name, made.zero_ns)
                where = f"{made.run}: {finding.rule.name}.{name}"
                assert number_in_text == pytest.approx(number, rel=1e-6, abs=2e-6), where


def on_the_clock(finding: Finding, name: str, zero_ns: int) -> Any:
    value = finding.values[name]
    if not name.endswith("_at"):
        return value
    if isinstance(value, list):
        return [(ns - zero_ns) / 1e9 for ns in value]
    return (value - zero_ns) / 1e9
