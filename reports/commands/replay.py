"""bbrscope replay: does the estimator agree with the kernel, bit for bit?"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from .. import agreement
from ..options import names_option, runs_argument, store_option

if TYPE_CHECKING:
    from pathlib import Path

    from ...collect.store import Store


@click.command()
@runs_argument
@store_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--fields", is_flag=True, help="Print the agreement of every field.")
@click.option("--no-decisions", is_flag=True, help="Replay only: note and store no decisions.")
@click.option("--plain", is_flag=True, help="Run the estimator as plain Python, for debugging.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Flows replayed in parallel.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="What if this parameter had been VALUE (kernel units, or 5%)? Repeatable.",
)
@click.option(
    "--as",
    "as_version",
    type=click.Choice(["v1", "v2", "v3"]),
    help="What if this version's rules had been in force?",
)
@names_option
@click.option("--flow", type=int, default=None, help="With --set or --as: this flow only.")
@click.option("--seed", type=int, default=0, help="With --set or --as: for new random draws.")
def command(
    runs: tuple[str, ...],
    store: Path,
    as_json: bool,
    fields: bool,
    no_decisions: bool,
    plain: bool,
    jobs: int | None,
    settings: tuple[str, ...],
    as_version: str | None,
    flow: int | None,
    seed: int,
    names: str,
) -> None:
    """Replay RUNS (default: all) and compare every field with the kernel after every event.

    Two modes must agree: step predicts each event from the recorded state before it, free-run
    knows only the state after init and the inputs. Exit status 1 if anything differs outside the
    recording's gaps, or if a run that you name cannot be replayed: one of packets alone, or of
    samples (rungs tcp_probe and inet_diag). Without RUNS those are named and left out.

    With --set or --as the recorded inputs are replayed under other rules instead (open loop: once
    an output differs, the recorded inputs are no longer those that these rules would have seen).

    \b
    bbrscope replay v2_single_1bdp
    bbrscope replay v2_single_1bdp --set loss_thresh=5% --set inflight_headroom=0
    bbrscope replay v2_single_1bdp --as v3
    bbrscope replay --json | jq '.runs[].flows[] | {flow, mode, events, exact}'
    """
    if plain:
        # The switch is read when the estimator is imported, which has not happened yet.
        os.environ["BBRSCOPE_PLAIN"] = "1"
    if settings or as_version:
        from ..what_if import show

        show(runs, store, settings, as_version, flow, seed, as_json, names)
        return
    from ...analyze.names import translate

    def say(text: str) -> None:
        click.echo(translate(text, names))

    tell = None if as_json else agreement.Teller(say, fields)
    documents, exact = _replay(runs, store, not no_decisions, jobs, tell)
    if as_json:
        say(json.dumps({"runs": documents}))
    if not exact:
        sys.exit(1)


def _replayable(opened: Store) -> tuple[list[int], list[dict[str, Any]]]:
    """The runs that can be replayed, and documents that say why the others cannot."""
    from ...analyze.session import require_callbacks
    from ...collect.errors import BbrscopeError

    run_ids, documents = [], []
    for run in opened.runs():
        run_id = opened.run_id(run)
        try:
            require_callbacks(opened.con, run_id)
        except BbrscopeError as error:
            documents.append({"run": run, "flows": [], "refused": error.fact})
        else:
            run_ids.append(run_id)
    return run_ids, documents


def _replay(
    runs: tuple[str, ...],
    path: Path,
    decisions: bool,
    jobs: int | None,
    tell: agreement.Teller | None,
) -> tuple[list[dict[str, Any]], bool]:
    from ...analyze import results, session
    from ...collect.store import open_store
    from ..progress import progress

    documents: list[dict[str, Any]] = []
    exact = True
    with open_store(path) as opened:
        if runs:
            run_ids = [opened.run_id(run) for run in runs]
        else:
            run_ids, documents = _replayable(opened)
            for left_out in documents if tell is not None else ():
                click.echo(left_out["refused"])
        total = session.total_events(opened.con, run_ids)
        with progress(total, "replaying") as advance:
            workers = jobs or os.cpu_count() or 1
            for flows in session.replay_runs(opened.con, run_ids, decisions, workers, advance):
                if decisions:
                    results.keep(opened, flows)
                documents.append(results.as_document(flows))
                exact = exact and all(flow.exact for flow in flows)
                if tell is not None:
                    tell.run(flows)
    return documents, exact
