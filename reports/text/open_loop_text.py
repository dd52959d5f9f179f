"""Printing the open loop's answers: what other rules decide on the recorded inputs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from ...analyze.replay.exercised import exercised_by
from ...probes.base.plurals import plural
from .run_notes import say_notes
from .screen import say

if TYPE_CHECKING:
    from pathlib import Path

    from ...analyze.replay.drift import Drift, Moment
    from ...analyze.replay.open_loop import OpenLoopAnswer


def show(
    names: Sequence[str],
    path: Path,
    settings: Sequence[str],
    as_version: str | None,
    flow: int | None,
    seed: int,
    as_json: bool,
    vocabulary: str,
) -> None:
    """Ask for each flow of the runs and print the answers."""
    from ...analyze.bbr.variants.own_variant import base_of
    from ...analyze.replay.open_loop import ask_run
    from ...analyze.story.names import translate
    from ...analyze.views.store_with_views import open_store

    base = None if as_version is None else base_of(as_version)
    with open_store(path, read_only=True) as store:
        asked = names or store.runs()
        say_notes(store.con, map(store.run_id, asked))
        answers = [
            answer
            for name in asked
            for answer in ask_run(store, name, settings, as_version, flow, seed)
        ]

    def say_translated(text: str) -> None:
        say(translate(text, vocabulary))

    if as_json:
        document: dict[str, object] = {"open_loop": [asdict(answer) for answer in answers]}
        if base is not None:
            document |= asdict(exercised_by([answer.decided for answer in answers], base))
        say_translated(json.dumps(document))
        return
    for answer in answers:
        _print(answer, say_translated)
    if base is not None:
        _print_exercised(answers, base, say_translated)


def _seconds(moment: Moment) -> str:
    return f"{moment.t_ns / 1e9:.3f} s (event {moment.seq})"


def _print(answer: OpenLoopAnswer, say: Callable[[str], None]) -> None:
    drift = answer.drift
    rules = f"{answer.as_version}'s rules" if answer.as_version != answer.version else "its rules"
    say(f"{answer.run} flow {answer.flow}: recorded with {answer.version}, under {rules}")
    if answer.as_version == answer.version:
        for name, (old, new) in answer.changed.items():
            say(f"  {name}: {old} -> {new}")
    else:
        say(
            f"  {plural(len(answer.changed), 'parameter differs', 'parameters differ')} (--json"
            " lists them)"
        )
    for caveat in answer.caveats:
        say(f"  note: {caveat}")
    if answer.first_decision is None:
        say("  Every decision is the same.")
    else:
        only, other = answer.first_decision.recorded, answer.first_decision.other
        say(f"  first different decision: {_seconds(answer.first_decision)}")
        say(f"    recorded:   {', '.join(_without(only, other)) or '(none)'}")
        say(f"    other rules: {', '.join(_without(other, only)) or '(none)'}")
    if drift.first_output is None:
        say("  cwnd and pacing rate are the same throughout: the answer is exact.")
        return
    first = drift.first_output
    say(f"  first different output: {_seconds(first)}")
    say(f"    recorded:   {', '.join(first.recorded)}")
    say(f"    other rules: {', '.join(first.other)}")
    say("  drift over the whole flow    recorded   other rules")
    say(f"    mean cwnd (packets)      {drift.mean_cwnd[0]:10.1f}  {drift.mean_cwnd[1]:10.1f}")
    pacing = [rate * 8 / 1e6 for rate in drift.mean_pacing]
    say(f"    mean pacing (Mbit/s)     {pacing[0]:10.2f}  {pacing[1]:10.2f}")
    say(f"    phase changes            {drift.transitions[0]:10}  {drift.transitions[1]:10}")
    _print_trust(drift, say)


def _print_trust(drift: Drift, say: Callable[[str], None]) -> None:
    exact, close = 100 * drift.exact_share, 100 * drift.close_share
    say(f"  trust: exact for the first {exact:.1f} % of the time. After that the recorded inputs")
    say("  are those of packets sent under the old rules (open loop); cwnd and pacing stay")
    say(f"  within 5 % of the recorded ones on {close:.1f} % of events, and the phase is the same")
    say(f"  on {100 * drift.same_phase_share:.1f} %.")


def _print_exercised(
    answers: Sequence[OpenLoopAnswer], base: str, say: Callable[[str], None]
) -> None:
    """Print which codes the recordings exercise under the other rules."""
    codes = exercised_by([answer.decided for answer in answers], base)
    known = len(codes.never) + len(codes.exercised)
    runs = len({answer.run for answer in answers})
    counted = f"{plural(runs, 'recording')}, {plural(len(answers), 'flow')}"
    say(f"{counted}: under these rules they decide")
    say(
        f"{len(codes.exercised)} of {plural(known, 'code')} ({base}'s, and those of its own that"
        " it decided):"
    )
    for words in (
        ", ".join(f"{name} {count}" for name, count in codes.exercised.items()),
        f"never decided: {', '.join(codes.never) or '(none)'}",
    ):
        say(textwrap.fill(words, 100, initial_indent="  ", subsequent_indent="  "))


def _without(names: list[str], others: list[str]) -> list[str]:
    """What only one side decided; all of it if the difference is one of order."""
    only = [name for name in names if name not in others]
    return only or ([] if set(names) <= set(others) and len(names) < len(others) else names)
