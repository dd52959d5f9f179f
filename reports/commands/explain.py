"""``bbrscope explain``: what a flow did, when and why."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..options import Time, names_option, run_argument, store_option

if TYPE_CHECKING:
    from ...analyze.explain import Flow, Line
    from ...collect.store import Store


@click.command()
@run_argument
@store_option
@click.option("--flow", type=click.IntRange(1), help="One flow [all that carry data].")
@click.option(
    "--between", type=Time(), nargs=2, metavar="FROM TO", help="Only this time, as in 12s 14s."
)
@click.option("--only", metavar="WHAT", help="inflight_hi, bw_lo, phase, cwnd ... or a code.")
@click.option("--all", "everything", is_flag=True, help="Also the decisions not to change.")
@click.option("--at", type=Time(), metavar="TIME", help="State and limits at one instant.")
@click.option("--full", is_flag=True, help="Fold nothing: one line for each change.")
@names_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, nothing folded.")
def command(
    run: str,
    store: Path,
    flow: int | None,
    between: tuple[int, int] | None,
    only: str | None,
    everything: bool,
    at: int | None,
    full: bool,
    names: str,
    as_json: bool,
) -> None:
    """Tell what RUN's flows decided, when and why, and what limited them.

    One line per phase change and per change of inflight_hi, inflight_lo and bw_lo: seconds since
    the flow began, what, why with its numbers, and in brackets the kernel function that decided.
    Steps of one bound within a phase are one line, and so are cycles that repeat in a long story
    (--full tells each).

    \b
    bbrscope explain v2_single_1bdp
    bbrscope explain v2_single_1bdp --only inflight_hi
    bbrscope explain v2_single_1bdp --between 12s 14s --all
    bbrscope explain v2_single_1bdp --at 12.3s
    bbrscope explain v2_single_1bdp --names draft --json
    """
    from ...analyze import explain, sampled
    from .. import captured_story

    if only is not None:
        only = _known(only)
    if between is not None and between[0] > between[1]:
        raise click.UsageError("--between FROM TO: FROM is after TO")
    with open_replayed(store, run) as opened:
        asked = at is not None or only is not None or everything
        if sampled.rung_of(opened.con, opened.run_id(run)):
            _tell_samples(opened, run, flow, between, asked, as_json)
            return
        captured = captured_story.flows_of(opened.con, opened.run_id(run))
        if captured is not None:
            _tell_packets(captured, run, flow, asked or between is not None, as_json)
            return
        flows = explain.flows_of(opened.con, opened.run_id(run))
        chosen = _choose(flows, run, flow)
        if at is not None:
            _print_instants(opened, chosen, at, names, as_json)
            return
        told = [
            (one, _lines(opened, one, only, everything, between))
            for one in chosen
            if flow or as_json or not one.tiny
        ]
        for one, _ in told:
            one.binding = explain.binding_of(opened.con, one)
    listing = everything or (only is not None and not _is_story(only))
    if as_json:
        _print_json(run, told, names)
        return
    for one, lines in told:
        _print_story(one, lines, names, full, between, listing, only is None)
    if flow is None:
        _print_tiny([one for one in flows if one.tiny], any_told=bool(told))


def open_replayed(path: Path, *runs: str) -> Store:
    """Open the store to read; replay first what of the runs was not replayed yet.

    Raises:
        BbrscopeError: a run was not replayed, and the store cannot be written.
    """
    from ...analyze import explain, results, session
    from ...collect.errors import BbrscopeError, StoreError
    from ...collect.store import open_store
    from ..progress import progress

    opened = open_store(path, read_only=True)
    try:
        ids = {opened.run_id(run): run for run in runs}
        missing = [run_id for run_id in ids if not explain.is_told(opened.con, run_id)]
        if not missing:
            return opened
    except BaseException:
        opened.close()
        raise
    opened.close()
    try:
        writable = open_store(path)
    except StoreError as error:
        run = ids[missing[0]]
        raise BbrscopeError(
            f"{run} has not been replayed, and its decisions cannot be stored: {error.fact}",
            f"replay it where {path} can be written: bbrscope replay {run} --store {path}",
        ) from error
    try:
        with progress(session.total_events(writable.con, missing), "replaying") as advance:
            for flows in session.replay_runs(writable.con, missing, advance=advance):
                results.keep(writable, flows)
    except BaseException:
        writable.close()
        raise
    return writable


def _tell_samples(
    store: Store,
    run: str,
    number: int | None,
    between: tuple[int, int] | None,
    asked: bool,
    as_json: bool,
) -> None:
    """Tell a run that has samples of `ss` alone."""
    from ...analyze import sampled
    from ...collect.errors import BbrscopeError
    from .. import sampled_story

    run_id = store.run_id(run)
    rung = sampled.rung_of(store.con, run_id)
    if asked and rung is not None:
        raise BbrscopeError(
            f"{run} has no decisions and no states: it was recorded by {rung.name}, which"
            f" cannot {rung.cannot}",
            f"bbrscope explain {run} tells the modes that were seen",
        )
    flows = sampled.flows_of(store.con, run_id)
    known = ", ".join(str(flow.flow) for flow in sorted(flows, key=lambda flow: flow.flow))
    chosen = [flow for flow in flows if number in (None, flow.flow)]
    if not chosen:
        raise BbrscopeError(f"{run} has no flow {number}", f"it has {known or 'none'}")
    if as_json:
        told = [sampled_story.document(flow, between) for flow in chosen]
        click.echo(json.dumps({"run": run, "flows": told}))
        return
    for flow in chosen:
        if number is not None or not flow.tiny:
            click.echo("\n".join(sampled_story.text(flow, between)))
    if number is None and (tiny := [str(flow.flow) for flow in chosen if flow.tiny]):
        click.echo(f"Left out flows that carried next to no data: {', '.join(tiny)}; --flow N.")


def _tell_packets(
    flows: list[dict[str, Any]], run: str, number: int | None, asked: bool, as_json: bool
) -> None:
    """Tell a run that has packets alone."""
    from ...collect.errors import BbrscopeError
    from ...collect.rungs import CAPTURE
    from .. import captured_story
    from ..html.prose import plural

    if asked:
        raise BbrscopeError(
            f"{run} has no decisions and no states: it was recorded by {CAPTURE.name}, which"
            f" cannot {CAPTURE.cannot}",
            f"bbrscope metrics {run} --by second tells how it went; bbrscope report {run} draws it",
        )
    chosen = [flow for flow in flows if number in (None, flow["flow"])]
    if not chosen:
        known = ", ".join(str(flow["flow"]) for flow in flows[:20])
        wanted = "with data" if number is None else number
        raise BbrscopeError(f"{run} has no flow {wanted}", f"it has {known or 'none'}")
    if as_json:
        told = [captured_story.document(flow) for flow in chosen]
        click.echo(json.dumps({"run": run, "flows": told}))
        return
    tiny = [flow for flow in chosen if captured_story.is_tiny(flow)]
    for flow in chosen:
        if number is not None or flow not in tiny:
            click.echo("\n".join(captured_story.text(flow)))
    if number is None and tiny:
        left = plural(len(tiny), "flow")
        click.echo(f"Left out {left} that carried next to no data; --flow N tells one.")


def _known(only: str) -> str:
    """The kernel's name of what --only asks for; wrong usage if no decision is about it."""
    from ...analyze.bbr.codes import CODES
    from ...analyze.explain import matching
    from ...analyze.names import kernel_name

    name = kernel_name(only)
    if not matching(name):
        abouts = sorted({code.about for code in CODES.values()})
        raise click.UsageError(
            f"--only {only}: no decision is about it; there are {', '.join(abouts)},"
            " and the codes of `bbrscope sql 'FROM decision_codes'`"
        )
    return name


def _is_story(only: str) -> bool:
    """Do the story's own lines answer --only, with every change and not just its decision?"""
    from ...analyze.explain import BOUNDS

    return only in (*BOUNDS, "phase")


def _choose(flows: list[Flow], run: str, number: int | None) -> list[Flow]:
    from ...collect.errors import BbrscopeError

    if number is None:
        return flows
    chosen = [flow for flow in flows if flow.flow == number]
    if not chosen:
        have = ", ".join(str(flow.flow) for flow in sorted(flows, key=lambda flow: flow.flow))
        raise BbrscopeError(f"{run} has no flow {number}", f"it has {have or 'none'}")
    return chosen


def _lines(
    store: Store, flow: Flow, only: str | None, everything: bool, between: tuple[int, int] | None
) -> list[Line]:
    from ...analyze import explain

    if everything or (only is not None and not _is_story(only)):
        lines = explain.decisions_of(store.con, flow, only, everything, between)
    else:
        lines = explain.story(store.con, flow)
        if only is not None:
            lines = [line for line in lines if line.about == only]
    if between is None:
        return lines
    return [line for line in lines if between[0] <= line.t_ns <= between[1]]


def _print_story(
    flow: Flow,
    lines: list[Line],
    names: str,
    full: bool,
    between: tuple[int, int] | None,
    listing: bool,
    with_binding: bool,
) -> None:
    from .. import story

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in story.header(flow, names):
        click.echo(line)
    if listing:
        text = story.render_decisions(flow, lines, names, width, not full)
    else:
        text = story.render(flow, lines, names, width, not full, between)
    for line in text:
        click.echo(line)
    if with_binding and between is None:
        click.echo()
        for line in story.binding_table(flow, names):
            click.echo(line)
    click.echo()


def _print_tiny(flows: list[Flow], any_told: bool) -> None:
    if not flows:
        return
    numbers = ", ".join(f"{flow.flow} ({flow.summary['events']:,} events)" for flow in flows)
    click.echo(
        f"{'Left out' if any_told else 'There are only'} flows that carried next to no data:"
        f" {numbers}; --flow N tells one."
    )


def _print_json(run: str, told: list[tuple[Flow, list[Line]]], names: str) -> None:
    from .. import story

    document = {
        "run": run,
        "names": names,
        "flows": [story.document(flow, lines, names) for flow, lines in told],
    }
    click.echo(json.dumps(document))


def _print_instants(store: Store, flows: list[Flow], t_ns: int, names: str, as_json: bool) -> None:
    from ...analyze.instant import at
    from ...collect.errors import BbrscopeError
    from .. import story

    documents = []
    wanted = [flow for flow in flows if not flow.tiny] or flows[:1]
    if len(flows) == 1:
        wanted = flows
    errors: list[BbrscopeError] = []
    for flow in wanted:
        try:
            instant = at(store.con, flow, t_ns)
        except BbrscopeError as error:
            errors.append(error)
            continue
        if as_json:
            documents.append(story.instant_document(flow, instant, names))
        else:
            click.echo("\n".join(story.instant_text(flow, instant, names)))
    if errors and len(errors) == len(wanted):
        raise errors[0]
    if as_json:
        click.echo(json.dumps({"run": flows[0].run, "names": names, "flows": documents}))
