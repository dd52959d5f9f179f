"""Folding shortens a story without losing a change."""

from __future__ import annotations

from dataclasses import replace

from bbrscope.analyze.story.changes import Change
from bbrscope.analyze.story.folding import (
    Cycle,
    Stretch,
    fold_cycles,
    fold_repeated,
    fold_steps,
    fold_stretches,
)


def line(t: int, about: str, old: object, new: object, name: str) -> Change:
    return Change(t, t, about, old, new, name, (), 1448, until_ns=t)  # type: ignore[arg-type]  # phases or numbers, as the test needs


UP = ("phase", "PROBE_BW_REFILL", "PROBE_BW_UP", "UP_ENTER")
DOWN = ("phase", "PROBE_BW_UP", "PROBE_BW_DOWN", "DOWN_BY_QUEUE")
REFILL = ("phase", "PROBE_BW_DOWN", "PROBE_BW_REFILL", "REFILL_BY_CLOCK")


def raise_hi(t: int, old: int, name: str = "HI_RAISE_SLOPE") -> Change:
    return line(t, "inflight_hi", old, old + 1, name)


def test_raises_within_one_phase_become_one_line() -> None:
    lines = [line(0, *UP), raise_hi(1, 10), raise_hi(2, 11), raise_hi(3, 12), line(4, *DOWN)]
    folded = fold_steps(lines)
    assert [item.about for item in folded] == ["phase", "inflight_hi", "phase"]
    steps = folded[1]
    assert (steps.old, steps.new, steps.count, steps.until_ns) == (10, 13, 3, 3)
    assert steps.last is lines[3]


def test_another_decision_another_phase_or_a_doubt_begins_a_new_line() -> None:
    lines = [
        raise_hi(1, 10),
        raise_hi(2, 11, "HI_RAISE_OBSERVED"),
        line(3, *DOWN),
        replace(raise_hi(4, 12, "HI_RAISE_OBSERVED"), phase_seq=3),
        replace(raise_hi(5, 13, "HI_RAISE_OBSERVED"), phase_seq=3, doubt="gap"),
    ]
    assert len(fold_steps(lines)) == 5


def test_steps_of_two_phases_stay_apart_where_the_phases_are_not_listed() -> None:
    """--only inflight_lo lists no phases: 39 -> 36 in one phase, and later 22 -> 19 in another."""
    first = [line(t, "inflight_lo", 40 - t, 39 - t, "INFLO_CUT_LOSS") for t in (1, 2, 3)]
    later = [line(t, "inflight_lo", 32 - t, 31 - t, "INFLO_CUT_LOSS") for t in (10, 11, 12)]
    cuts = [*first, *(replace(cut, phase_seq=9) for cut in later)]
    folded = [(item.old, item.new, item.count) for item in fold_steps(cuts)]
    assert folded == [(39, 36, 3), (22, 19, 3)]
    assert [item.count for item in fold_repeated(cuts)] == [3, 3]


def test_a_step_folds_only_where_the_one_before_arrived() -> None:
    """Within a phase another decision may have moved the bound in between."""
    cuts = [
        line(1, "inflight_lo", 39, 36, "INFLO_CUT_LOSS"),
        line(2, "inflight_lo", 30, 19, "INFLO_CUT_LOSS"),
    ]
    assert [(item.old, item.new) for item in fold_steps(cuts)] == [(39, 36), (30, 19)]


def test_bounds_that_alternate_fold_each_for_itself() -> None:
    lines = []
    for i in range(4):
        lines += [
            line(i, "bw_lo", 100 - i, 99 - i, "BWLO_CUT"),
            line(i, "inflight_lo", 50 - i, 49 - i, "INFLO_CUT_LOSS"),
        ]
    assert [(item.old, item.new, item.count) for item in fold_steps(lines)] == [
        (100, 96, 4),
        (50, 46, 4),
    ]


def test_cycles_that_repeat_are_reported_once_and_nothing_is_lost() -> None:
    lines = [line(10 * i + k, *what) for i in range(5) for k, what in enumerate((UP, DOWN, REFILL))]
    lines.append(line(99, "phase", "PROBE_BW_DOWN", "PROBE_RTT", "PRTT_ENTER_EXPIRED"))
    cycle, last = fold_cycles(lines)
    assert isinstance(cycle, Cycle)
    assert (cycle.length, cycle.repeats) == (3, 5)
    assert [*cycle.lines, last] == lines


def test_two_rounds_are_not_a_cycle() -> None:
    lines = [line(10 * i + k, *what) for i in range(2) for k, what in enumerate((UP, DOWN, REFILL))]
    assert fold_cycles(lines) == lines


def test_a_restless_stretch_keeps_its_counts_and_stops_at_rare_changes() -> None:
    rare = line(50, "phase", "PROBE_BW_DOWN", "PROBE_RTT", "PRTT_ENTER_EXPIRED")
    routine = [line(i, *(UP, DOWN, REFILL)[i % 3]) for i in range(14)] + [raise_hi(20, 7)]
    before, line_between, *after = fold_stretches([*routine, rare, line(51, *UP)])
    assert isinstance(before, Stretch)
    assert list(before.lines) == routine
    assert line_between is rare
    assert after == [line(51, *UP)]
    counts = before.by_change()
    assert counts["phase", "PROBE_BW_REFILL", "PROBE_BW_UP"] == {"UP_ENTER": 5}
    assert counts["inflight_hi", None, None] == {"HI_RAISE_SLOPE": 1}
    assert before.values("inflight_hi") == [7, 8]


def test_repeated_decisions_fold_only_when_adjacent() -> None:
    names = ["CRUISE_STAY"] * 3 + ["REFILL_BY_CLOCK"] + ["CRUISE_STAY"]
    folded = fold_repeated([line(i, "phase", None, None, name) for i, name in enumerate(names)])
    assert [(item.name, item.count) for item in folded] == [
        ("CRUISE_STAY", 3),
        ("REFILL_BY_CLOCK", 1),
        ("CRUISE_STAY", 1),
    ]


def test_in_a_long_story_probe_rtt_is_part_of_the_stretch() -> None:
    routine = [line(i, *(UP, DOWN, REFILL)[i % 3]) for i in range(14)]
    rtt = line(20, "phase", "PROBE_BW_DOWN", "PROBE_RTT", "PRTT_ENTER_EXPIRED")
    (line_between,) = fold_stretches([*routine, rtt, *routine], probe_rtt=True)
    assert isinstance(line_between, Stretch)
    assert len(line_between.lines) == 29


def test_the_values_of_a_stretch_are_those_between_folded_steps_too() -> None:
    """v3's bound that is held at what the last round delivered goes down, and up again."""
    phases = [line(i, *(UP, DOWN, REFILL)[i % 3]) for i in range(12)]
    held = [(28, 20), (20, 24), (24, 23)]
    steps = [line(12, "inflight_lo", *move, "INFLO_HELD_LATEST") for move in held]
    (folded,) = fold_steps(steps)
    assert (folded.old, folded.new, folded.count) == (28, 23, 3)
    (stretch,) = fold_stretches([*phases, folded])
    assert isinstance(stretch, Stretch)
    assert stretch.values("inflight_lo") == [28, 20, 24, 23]
