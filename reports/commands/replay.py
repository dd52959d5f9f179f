"""bbrscope replay: does the estimator agree with the kernel, bit for bit?"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ...analyze.bbr.variants.catalogue import help_text
from ..options import as_option, gather, names_option, runs_argument, set_option, store_option_for
from ..text import agreement
from ..text.print_table import printable
from ..text.screen import say

if TYPE_CHECKING:
    from pathlib import Path

    from ...collect.store.store import Store


Document = dict[str, object]


@dataclass(frozen=True)
class ReplayRequest:
    """Which runs to replay, and what to store and print of it."""

    runs: tuple[str, ...]
    store: Path
    as_json: bool
    fields: bool
    no_decisions: bool
    jobs: int | None
    names: str


@click.command(epilog=help_text())
@runs_argument
@store_option_for("The DuckDB store; with --set or --as a lake, too")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--fields", is_flag=True, help="Print the agreement of every field.")
@click.option("--no-decisions", is_flag=True, help="Replay only: note and store no decisions.")
@click.option("--plain", is_flag=True, help="Run the estimator as plain Python, for debugging.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Flows replayed in parallel.")
@set_option
@as_option
@names_option
@click.option("--flow", type=int, default=None, help="With --set or --as: this flow only.")
@click.option("--seed", type=int, default=0, help="With --set or --as: for new random draws.")
@gather(ReplayRequest)
def command(
    request: ReplayRequest,
    plain: bool,
    settings: tuple[str, ...],
    as_version: str | None,
    flow: int | None,
    seed: int,
) -> None:
    """Replay RUNS (default: all) and compare every field with the kernel after every event.

    Two modes must agree: step predicts each event from the recorded state before it, free-run
    knows only the state after init and the inputs. Exit status 1 if anything differs outside the
    recording's gaps, or if a run that you name cannot be replayed: one of packets only, or of
    samples (rungs tcp_probe and inet_diag). Without RUNS those are named and left out.

    With --set or --as the recorded inputs are replayed under other rules instead (open loop: once
    an output differs, the recorded inputs are no longer those that these rules would have seen).
    It names the first decision that differs, and with --as which codes these recordings exercise.

    \b
    bbrscope replay v2_single_1bdp
    bbrscope replay v2_single_1bdp --set loss_thresh=5% --set inflight_headroom=0
    bbrscope replay v2_single_1bdp --as v3
    bbrscope replay --as ./mybbr.py
    bbrscope replay --json | jq '.runs[].flows[] | {flow, mode, events, exact}'
    """
    if plain:
        # The switch is read when the estimator is imported, which has not happened yet.
        os.environ["BBRSCOPE_PLAIN"] = "1"
    if settings or as_version:
        from ..text.open_loop_text import show

        show(
            request.runs,
            request.store,
            settings,
            as_version,
            flow,
            seed,
            request.as_json,
            request.names,
        )
    elif not _replay_and_print(request):
        sys.exit(1)


def _replay_and_print(request: ReplayRequest) -> bool:
    """Replay and say how it agrees with the kernel; return whether it does throughout."""
    from ...analyze.story.names import translate
    from ...analyze.views.store_with_views import open_to_change
    from ..text.run_notes import simulated

    def say_translated(text: str) -> None:
        say(translate(text, request.names))

    printer = None if request.as_json else agreement.AgreementText(say_translated, request.fields)
    with open_to_change(request.store) as opened:
        run_ids, documents = _chosen(opened, request.runs)
        for refused in documents if printer is not None else ():
            say(printable(str(refused["refused"])))
        for note in simulated(opened.con, run_ids):
            say(printable(note), err=True)
        replayed, exact = _replay(opened, run_ids, request, printer)
    if request.as_json:
        texts = [*map(json.dumps, documents), *replayed]
        say_translated(f'{{"runs": [{", ".join(texts)}]}}')
    return exact


def _chosen(opened: Store, runs: tuple[str, ...]) -> tuple[list[int], list[Document]]:
    """The ids of these runs; without any, of those that can be replayed, and why others cannot."""
    return ([opened.run_id(run) for run in runs], []) if runs else _replayable(opened)


def _replayable(opened: Store) -> tuple[list[int], list[Document]]:
    """The runs that can be replayed, and documents that say why the others cannot."""
    from ...analyze.replay.run_info import refusals
    from ...collect.store.query import run_names

    runs = run_names(opened.con)
    refused = refusals(opened.con, [*runs])
    documents: list[Document] = [
        {"run": run, "flows": [], "refused": refused[run_id].fact}
        for run_id, run in runs.items()
        if run_id in refused
    ]
    return [run_id for run_id in runs if run_id not in refused], documents


def _replay(
    opened: Store,
    run_ids: list[int],
    request: ReplayRequest,
    printer: agreement.AgreementText | None,
) -> tuple[list[str], bool]:
    """Replay runs and store the results; return the JSON of each if asked, and if all are exact."""
    from ...analyze.replay import keep_results as results
    from ...analyze.replay import replay_runs as session
    from ...analyze.views.materialize import materialize_replayed
    from ..text.progress_bar import progress

    decisions, jobs = not request.no_decisions, request.jobs or os.cpu_count() or 1
    documents: list[str] = []
    exact = True
    with progress(session.total_events(opened.con, run_ids), "replaying") as advance:
        given = opened.con, run_ids, decisions, jobs, advance
        if decisions:
            runs = results.keep_all(opened, session.replay_parts(*given))
        else:
            runs = session.replay_runs(*given)
        for flows in runs:
            if printer is None:
                documents.append(json.dumps(results.as_document(flows)))
            exact = exact and all(flow.exact for flow in flows)
            if printer is not None:
                printer.run(flows)
    materialize_replayed(opened, run_ids, jobs)
    return documents, exact
