"""bbrscope what-if: a run again under other rules, in a closed loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...analyze.bbr.variants.catalogue import help_text
from ..options import as_option, set_option, store_option
from ..text.screen import say
from ..text.what_if_words import QUANTITY_WORDS, path_words

if TYPE_CHECKING:
    from ...analyze.simulate.closed_loop import ClosedLoopAnswer
    from ...analyze.simulate.course_steps import OverTime


@click.command(epilog=help_text())
@click.argument("run")
@store_option
@as_option
@set_option
@click.option(
    "--seeds",
    type=click.IntRange(20, 10_000),
    default=20,
    show_default=True,
    help="Simulations under each set of rules.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    run: str,
    store: Path,
    as_version: str | None,
    settings: tuple[str, ...],
    seeds: int,
    as_json: bool,
) -> None:
    """Say what RUN would have reached under other rules, by simulating it again (closed loop).

    The path comes from the manifest or is fitted from the recording. The run is first simulated
    under its own rules: how far that is from what was recorded is the own-rules error. What is
    printed of the other rules holds a kernel's run 9 times of 10: it is the spread over the seeds,
    widened by that error and by the errors that are known of the engine (`bbrscope simulate
    --pairs` measures them). A difference is one beyond 3 % (goodput), 15 % or 10 packets (losses),
    5 % (RTTs) of what was recorded; within the error it is none. The verdict is sure of what holds
    for the whole interval; else it says "that can be told" or "probably", what is left, and why.
    --json has the spread over the seeds as other, and what is printed as other_for_kernel. The open
    loop, exact up to the first difference, is `bbrscope replay RUN --as v3`. To see it over time,
    with the seeds' band: `bbrscope report RUN --as v3`.

    \b
    bbrscope what-if v2_single_1bdp --as v3
    bbrscope what-if v2_single_1bdp --set loss_thresh=5% --json
    bbrscope what-if v2_single_1bdp --as bbr-prime
    bbrscope what-if v2_single_1bdp --as ./mybbr.py
    """
    if as_version is None and not settings:
        raise click.UsageError("say other rules: --as v3, or --set loss_thresh=5%")
    answer, _ = answered(store, run, as_version, settings, seeds)
    if as_json:
        say(json.dumps(answer.as_json()))
        return
    _print(answer)


def answered(
    store: Path, run: str, as_version: str | None, settings: tuple[str, ...], seeds: int
) -> tuple[ClosedLoopAnswer, OverTime]:
    """Simulate a run of the store again; the answer, and the recording in its steps of time.

    Raises:
        BbrscopeError: unknown rules, or a path that cannot be fitted or simulated.
    """
    from ...analyze.simulate.closed_loop import question_about
    from ...analyze.views.store_with_views import open_store
    from ..text.progress_bar import progress
    from ..text.run_notes import say_notes

    with open_store(store, read_only=True) as opened:
        say_notes(opened.con, [opened.run_id(run)])
        question = question_about(opened, run, settings, as_version)
    with progress(2 * seeds, "simulating") as advance:
        return question.answer(seeds, advance), question.recorded_steps()


def _print(answer: ClosedLoopAnswer) -> None:
    world = answer.world
    say(f"{world.run}: {path_words(world.fitted)}")
    say(f"  {'':18s}   recorded            own rules, simulated          other rules, a kernel")
    for name, words in QUANTITY_WORDS.items():
        own, other = (
            " ".join(f"{value:9.2f}" for value in interval[name])
            for interval in (answer.own, answer.other_for_kernel)
        )
        say(f"  {words:18s} {world.recorded[name]:10.2f}   {own}   {other}")
    for name, text in answer.verdicts.items():
        say(f"  {QUANTITY_WORDS[name]}: {text}")
    say("intervals: [5 %, median, 95 %]; simulated: over the seeds; a kernel: with known errors")
    say(f"fidelity: {answer.holds}")
