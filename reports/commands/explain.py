"""``bbrscope explain``: what a flow did, when and why."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..options import gather, names_option, run_argument, store_option
from ..parameter_types import TimeType
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.story.captured_flows import CapturedFlow
    from ...analyze.story.changes import Change
    from ...analyze.story.event_flows import EventFlow
    from ...analyze.story.flow_stories import FlowStory
    from ...analyze.story.instant import Instant
    from ...analyze.story.sampled_flows import SampledFlow
    from ...collect.bundle.rungs import Rung
    from ...collect.store.store import Store


@dataclass(frozen=True)
class ExplainRequest:
    """What to explain of which run, and how to print it; times are in ns on the run's clock."""

    run: str
    store: Path
    flow: int | None
    between: tuple[int, int] | None
    only: str | None
    everything: bool
    at: int | None
    full: bool
    names: str
    as_json: bool

    @property
    def asks_for_decisions(self) -> bool:
        """Does it take recorded decisions or states to answer?"""
        return self.at is not None or self.only is not None or self.everything

    @property
    def lists_decisions(self) -> bool:
        """Print decisions one by one, instead of the story's lines?"""
        return self.everything or (self.only is not None and not _is_story(self.only))

    def checked(self) -> ExplainRequest:
        """Return the request with the kernel's name of what --only asks for.

        Raises:
            click.UsageError: no decision is about that, or the window ends before it begins.
        """
        only = None if self.only is None else _known(self.only)
        if self.between is not None and self.between[0] > self.between[1]:
            raise click.UsageError("--between FROM TO: FROM is after TO")
        return replace(self, only=only)


@click.command()
@run_argument
@store_option
@click.option("--flow", type=click.IntRange(1), help="One flow [all that carry data].")
@click.option(
    "--between", type=TimeType(), nargs=2, metavar="FROM TO", help="Only this time, as in 12s 14s."
)
@click.option(
    "--only",
    metavar="WHAT",
    help="inflight_hi, bw_lo, phase, cwnd ... or a decision's code (`bbrscope schema --codes`).",
)
@click.option("--all", "everything", is_flag=True, help="Also the decisions not to change.")
@click.option("--at", type=TimeType(), metavar="TIME", help="State and limits at one instant.")
@click.option("--full", is_flag=True, help="Fold nothing: one line for each change.")
@names_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, nothing folded.")
@gather(ExplainRequest)
def command(request: ExplainRequest) -> None:
    """Tell what RUN's flows decided, when and why, and what limited them.

    First the story in sentences. Then one line per phase change and per change of inflight_hi,
    inflight_lo and bw_lo: seconds since the run's first flow began (the clock of the report and of
    diagnose), what, why with its numbers, and in brackets the kernel function that decided.
    Steps of one bound within a phase are one line, and so are cycles that repeat in a long story
    (--full tells each).

    \b
    bbrscope explain v2_single_1bdp
    bbrscope explain v2_single_1bdp --only inflight_hi
    bbrscope explain v2_single_1bdp --between 12s 14s --all
    bbrscope explain v2_single_1bdp --at 12.3s
    bbrscope explain v2_single_1bdp --names draft --json
    """
    from ...analyze.story import captured_flows, sampled_flows
    from ..api.replayed import open_replayed
    from ..text.run_notes import say_notes

    request = request.checked()
    with open_replayed(request.store, request.run) as opened:
        run_id = opened.run_id(request.run)
        if rung := sampled_flows.sampled_by(opened.con, run_id):
            _explain_samples(request, sampled_flows.flows_of(opened.con, run_id), rung)
            say_notes(opened.con, [run_id])
        elif (captured := captured_flows.flows_of(opened.con, run_id)) is not None:
            _explain_packets(request, captured)
            say_notes(opened.con, [run_id])
        else:
            _explain_events(request, opened)


def _explain_samples(request: ExplainRequest, flows: list[SampledFlow], rung: Rung) -> None:
    """Print the story of a run that has samples of `ss` and no events."""
    from ..text.stories import sampled_story

    run, between = request.run, request.between
    if request.asks_for_decisions:
        way_out = f"bbrscope explain {run} tells the modes that were seen"
        raise BbrscopeError(_no_decisions(run, rung), way_out)
    if between is not None and flows:
        between = (flows[0].zero_ns + between[0], flows[0].zero_ns + between[1])
    chosen = [flow for flow in flows if request.flow in (None, flow.flow)]
    if not chosen:
        raise _no_flow(run, request.flow, sorted(flow.flow for flow in flows))
    if request.as_json:
        documents = [sampled_story.document(flow, between) for flow in chosen]
        say(json.dumps({"run": run, "flows": documents}))
        return
    for flow in chosen:
        if request.flow is not None or not flow.tiny:
            say("\n".join(sampled_story.text(flow, between)))
    tiny = [str(flow.flow) for flow in chosen if flow.tiny]
    if request.flow is None and tiny:
        say(f"Left out flows that carried next to no data: {', '.join(tiny)}; --flow N.")


def _explain_packets(request: ExplainRequest, flows: list[CapturedFlow]) -> None:
    """Print the story of a run that has packets and no events."""
    from ...analyze.story.captured_flows import facts_of
    from ...collect.bundle.rungs import CAPTURE
    from ..text.stories import captured_story

    run, number = request.run, request.flow
    if request.asks_for_decisions or request.between is not None:
        raise BbrscopeError(
            _no_decisions(run, CAPTURE),
            f"bbrscope metrics {run} --by second tells how it went; bbrscope report {run} draws it",
        )
    chosen = [flow for flow in flows if number in (None, flow.flow)]
    if not chosen:
        wanted = "with data" if number is None else number
        raise _no_flow(run, wanted, [flow.flow for flow in flows[:20]])
    if request.as_json:
        documents = [captured_story.document(flow) for flow in chosen]
        say(json.dumps({"run": run, "flows": documents}))
        return
    for flow in chosen:
        if number is not None or not flow.tiny:
            say("\n".join(captured_story.text(flow, facts_of(flow))))
    tiny = sum(flow.tiny for flow in chosen)
    if number is None and tiny:
        left_out = plural(tiny, "flow")
        say(f"Left out {left_out} that carried next to no data; --flow N tells one.")


def _no_decisions(run: str, rung: Rung) -> str:
    return (
        f"{run} has no decisions and no states: it was recorded by {rung.name}, which"
        f" cannot {rung.cannot}"
    )


def _no_flow(run: str, wanted: int | str | None, known: list[int]) -> BbrscopeError:

    numbers = ", ".join(map(str, known)) or "none"
    return BbrscopeError(f"{run} has no flow {wanted}", f"it has {numbers}")


def _explain_events(request: ExplainRequest, store: Store) -> None:
    """Print the story of a run whose events were recorded."""
    from ...analyze.story import event_flows
    from ...analyze.views.materialize import read_materialized
    from ..text.run_notes import say_notes

    run_id = store.run_id(request.run)
    read_materialized(store.con, run_id)
    flows = event_flows.flows_of(store.con, run_id)
    chosen = _choose(request, flows)
    if request.at is not None:
        _print_instants(request, store, chosen, request.at)
        say_notes(store.con, [run_id])
        return
    stories = [
        _story(request, store, flow)
        for flow in chosen
        if request.flow or request.as_json or not flow.tiny
    ]
    if request.as_json:
        _print_json(request, stories)
        return
    for story in stories:
        _print_story(request, story)
    if request.flow is None:
        _print_tiny([flow for flow in flows if flow.tiny], any_printed=bool(stories))
    if not stories:
        say_notes(store.con, [run_id])


def _known(only: str) -> str:
    """The kernel's name of what --only asks for; wrong usage if no decision is about it."""
    from ...analyze.bbr.codes import CODES
    from ...analyze.story.decision_list import matching
    from ...analyze.story.names import kernel_name

    name = kernel_name(only)
    if not matching(name):
        abouts = sorted({code.about for code in CODES.values()})
        raise click.UsageError(
            f"--only {only}: no decision is about it; there are {', '.join(abouts)},"
            " and the codes of `bbrscope schema --codes`"
        )
    return name


def _is_story(only: str) -> bool:
    """Do the story's own lines answer --only, with every change and not just its decision?"""
    from ...analyze.story.changes import BOUNDS

    return only in (*BOUNDS, "phase")


def _choose(request: ExplainRequest, flows: list[EventFlow]) -> list[EventFlow]:
    if request.flow is None:
        return flows
    chosen = [flow for flow in flows if flow.flow == request.flow]
    if not chosen:
        raise _no_flow(request.run, request.flow, sorted(flow.flow for flow in flows))
    return chosen


def _story(request: ExplainRequest, store: Store, flow: EventFlow) -> FlowStory:
    """A flow's story with the changes that were asked for; its facts are of all of it."""
    from ...analyze.story import decision_list, event_flows, flow_stories

    flow.binding = event_flows.binding_of(store.con, flow)
    story = flow_stories.story_of(store.con, flow)
    only, between = request.only, request.between
    window = None if between is None else (flow.zero_ns + between[0], flow.zero_ns + between[1])
    changes: list[Change] = list(story.changes)
    if request.lists_decisions:
        changes = decision_list.decisions_of(store.con, flow, only, request.everything, window)
    elif only is not None:
        changes = [change for change in changes if change.about == only]
    if window is not None:
        changes = [change for change in changes if window[0] <= change.ns <= window[1]]
    return replace(story, changes=tuple(changes))


def _print_story(request: ExplainRequest, story: FlowStory) -> None:
    from ...analyze.story.event_flows import EventFlow
    from ..text.stories import flow_story
    from ..text.stories.change_table import ChangeTable

    flow, names = story.flow, request.names
    assert isinstance(flow, EventFlow)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    table = ChangeTable(flow.zero_ns, flow.version, names, width)
    text = flow_story.header(flow, names)
    whole = request.only is None and request.between is None
    if whole and not request.lists_decisions:
        text += ["", *flow_story.summary(flow, story.facts, names, width), ""]
    if request.lists_decisions:
        text += table.decisions(story.changes, not request.full)
    else:
        text += table.story(story.changes, not request.full) or [_nothing(request.between)]
    if whole:
        text += ["", *flow_story.binding_table(flow, names)]
    say("\n".join([*text, ""]))


def _nothing(between: tuple[int, int] | None) -> str:
    if between is None:
        return "  nothing changed"
    return f"  nothing changed between {between[0] / 1e9:.3f} and {between[1] / 1e9:.3f} s"


def _print_tiny(flows: list[EventFlow], any_printed: bool) -> None:
    if not flows:
        return
    numbers = ", ".join(
        f"{flow.flow} ({plural(flow.summary['events'], 'event')})" for flow in flows
    )
    if not any_printed and flows[0].completeness.no_main:
        what = "main() was never recorded: what flows carried, and what ACKs did, is not known"
        say(f"{what}; --flow N tells of the other calls: {numbers}.")
        return
    which = "Left out flows" if any_printed else "There are only flows"
    say(f"{which} that carried next to no data: {numbers}; --flow N tells one.")


def _print_json(request: ExplainRequest, stories: list[FlowStory]) -> None:
    from ..text.stories.story_json import document

    flows = [document(story, request.names) for story in stories]
    say(json.dumps({"run": request.run, "names": request.names, "flows": flows}))


def _print_instants(
    request: ExplainRequest, store: Store, flows: list[EventFlow], t_ns: int
) -> None:
    """Print every flow that was recorded at one instant of the run's clock.

    Raises:
        BbrscopeError: none was.
    """
    from ..text.stories import instant_text

    names = request.names
    instants, errors = _instants(store, flows, t_ns)
    if errors and not instants:
        raise errors[0]
    if request.as_json:
        documents = [
            instant_text.instant_document(flow, instant, names) for flow, instant in instants
        ]
        say(json.dumps({"run": flows[0].run, "names": names, "flows": documents}))
        return
    for flow, instant in instants:
        say("\n".join(instant_text.instant_text(flow, instant, names)))
    for error in errors:
        say(error.fact)


def _instants(
    store: Store, flows: list[EventFlow], t_ns: int
) -> tuple[list[tuple[EventFlow, Instant]], list[BbrscopeError]]:
    """Return flows with their state at an instant, and why the others have none."""
    from ...analyze.story.instant import at

    instants: list[tuple[EventFlow, Instant]] = []
    errors: list[BbrscopeError] = []
    busy = [flow for flow in flows if not flow.tiny] or flows[:1]
    for flow in flows if len(flows) == 1 else busy:
        try:
            instants.append((flow, at(store.con, flow, flow.zero_ns + t_ns)))
        except BbrscopeError as error:
            errors.append(error)
    return instants, errors
