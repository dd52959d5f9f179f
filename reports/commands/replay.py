"""bbrscope replay: does the estimator agree with the kernel, bit for bit?"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ..options import runs_argument, store_option

if TYPE_CHECKING:
    from pathlib import Path

    from ...analyze.session import FlowReplay


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
) -> None:
    """Replay RUNS (default: all) and compare every field with the kernel after every event.

    Two modes must agree: step predicts each event from the recorded state before it, free-run
    knows only the state after init and the inputs. Exit status 1 if anything differs outside the
    recording's gaps.

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

        show(runs, store, settings, as_version, flow, seed, as_json)
        return
    documents, exact = _replay(runs, store, not no_decisions, jobs, fields, quiet=as_json)
    if as_json:
        click.echo(json.dumps({"runs": documents}))
    if not exact:
        sys.exit(1)


def _replay(
    names: tuple[str, ...], path: Path, decisions: bool, jobs: int | None, fields: bool, quiet: bool
) -> tuple[list[dict[str, Any]], bool]:
    from ...analyze import results, session
    from ...collect.store import open_store
    from ..progress import progress

    documents, exact = [], True
    with open_store(path) as opened:
        run_ids = [opened.run_id(name) for name in names or opened.runs(with_events=True)]
        total = session.total_events(opened.con, run_ids)
        with progress(total, "replaying") as advance:
            workers = jobs or os.cpu_count() or 1
            for flows in session.replay_runs(opened.con, run_ids, decisions, workers, advance):
                if decisions:
                    results.keep(opened, flows)
                documents.append(results.as_document(flows))
                exact = exact and all(flow.exact for flow in flows)
                if not quiet:
                    _print_run(flows, fields)
    return documents, exact


def _print_run(flows: list[FlowReplay], fields: bool) -> None:
    if not flows:
        return
    info = flows[0].info
    click.echo(f"{info.run}: decoded as {info.flavour} because {info.decoded_as}")
    for flow in flows:
        for mode, result in flow.passes.items():
            share = f"{100 * result.exact / result.compared:.2f} %" if result.compared else "-"
            click.echo(
                f"  flow {flow.flow} {mode:8}  {result.exact:>9,} of {result.compared:>9,} "
                f"events exact  {share}"
            )
            if fields:
                _print_fields(flow, mode)
            if flow.divergences[mode]:
                _print_divergence(flow.divergences[mode] or {})
        _print_notes(flow)


def _print_notes(flow: FlowReplay) -> None:
    columns = flow.events.columns
    if not flow.has_init and len(columns["ns"]):
        click.echo("    starts in the middle of the flow: replayed from its first full state")
    if flow.events.missing:
        click.echo(f"    the recording lacks {', '.join(flow.events.missing)}")
    for gap in flow.gaps[:5]:
        click.echo(f"    gap after line {columns['line'][gap.index]}: {gap.kind}: {gap.detail}")
    if len(flow.gaps) > 5:
        click.echo(f"    ... {len(flow.gaps) - 5} more gaps (bbrscope sql 'FROM gaps')")


def _print_fields(flow: FlowReplay, mode: str) -> None:
    from ...analyze.session import field_counts

    for name, (compared, exact) in field_counts(flow, mode).items():
        click.echo(f"      {name:28} {exact:>9,} of {compared:>9,}")


def _print_divergence(first: dict[str, Any]) -> None:
    click.echo(
        f"    first divergence: event {first['seq']} ({first['kind']}), line {first['line']}"
    )
    for name, values in first["fields"].items():
        click.echo(
            f"      {name}: expected {values['expected']}, got {values['got']}"
            f" (before: {values['before']})"
        )
    click.echo(f"      inputs: {', '.join(f'{k}={v}' for k, v in first['inputs'].items())}")
    click.echo(f"      decisions: {', '.join(first['decisions']) or 'none'}")
