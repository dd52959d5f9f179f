"""Assemble the page: select, draw, tell, and put it into the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....analyze.diagnosis.meanwhile import diagnosed_meanwhile
from ....analyze.story.facts import StoryFacts
from ....analyze.story.flow_stories import RecordedFlow, flows_of, story_of
from ....analyze.story.sampled_flows import SampledFlow
from ....collect.store import query
from ....probes.base.errors import BbrscopeError
from ..charts import vega
from ..data import convergence, document, select, shares
from ..data.narrowed_views import run_views
from ..panels import palette
from ..sections import about_run, finding_cards, links, listing
from ..sections import linked_story as words
from ..sections.flow_table import flow_table
from . import frame

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb

    from ....analyze.diagnosis.engine import Diagnosis

# More flows than this are listed, but not drawn, and more than that only counted: the page would
# grow without bound.
MOST_DRAWN, MOST_LISTED = 12, 200


@dataclass(frozen=True)
class Section:
    """One drawn flow of the page."""

    flow: select.ReportFlow
    name: str
    story: list[links.Linked]
    limits: list[words.LimitBar]
    colours: list[tuple[str, list[str]]]
    phases: listing.Listing
    bounds: listing.Listing
    accounting: list[query.Row]
    facts: StoryFacts


def build(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    between: tuple[float, float] | None = None,
    advance: Callable[[int], None] = lambda done: None,
    names: str = "kernel",
) -> str:
    """Return the report of a run as one HTML page.

    Args:
        con: a store that is open.
        run_id: the run.
        between: window in seconds on the run's clock, embedded in full and shown first.
        advance: called with the number of events of each flow that is done.
        names: "draft" shows the names of draft-ietf-ccwg-bbr instead of the kernel's.

    Raises:
        BbrscopeError: the run has no flow.
    """
    run = _run(con, run_id)
    window = None if between is None else (round(between[0] * 1e6), round(between[1] * 1e6))
    recorded = {flow.flow: flow for flow in flows_of(con, run_id)}
    sections = []
    vega.begun_script()
    with diagnosed_meanwhile(con, run_id) as diagnosed, run_views(con, run.row):
        for flow in run.main:
            select.load_flow(con, run, flow, window)
            sections.append(_section(con, run, flow, recorded[flow.number]))
            advance(flow.row["events"])
        select.load_queue(con, run, max((run.us(f.row["last_ns"]) for f in run.main), default=0))
        charts = document.build(run, between, shares.load(con, run), convergence.load(con, run))
        return _render(con, run, charts, sections, diagnosed, names)


def _run(con: duckdb.DuckDBPyConnection, run_id: int) -> select.Run:
    """Return a run with the flows marked that are drawn: some, but not too many."""
    run = select.load_run(con, run_id)
    if not run.flows:
        raise BbrscopeError(
            f"{run.row['run']} has no flow that carried data: there is nothing to draw",
            f'see what it holds: bbrscope sql "FROM packets JOIN runs USING (run_id)'
            f" WHERE run = '{run.row['run']}'\"",
        )
    for flow in run.main[MOST_DRAWN:]:
        flow.main = False
    if not run.main:
        run.flows[0].main = True
    return run


def _section(
    con: duckdb.DuckDBPyConnection,
    run: select.Run,
    flow: select.ReportFlow,
    recorded: RecordedFlow,
) -> Section:
    order = list(palette.COLOURS)
    colours = [
        (document.LANE_NAMES[lane], sorted(set(spans.category), key=order.index))
        for lane, spans in flow.lanes.items()
    ]
    story = story_of(con, recorded)
    tables = listing.listings(story, len(run.main))
    if isinstance(recorded, SampledFlow):
        tables = listing.Listings(listing.modes(recorded), listing.Listing([]))
    return Section(
        flow,
        name_of(flow),
        words.story(story),
        words.limits(story),
        colours,
        tables.phases,
        tables.bounds,
        about_run.accounting(con, run, flow),
        story.facts,
    )


def name_of(flow: select.ReportFlow) -> str:
    """Return how a flow is called: its number and, if known, its ends."""
    local, remote = flow.row["local"], flow.row["remote"]
    return f"Flow {flow.number}" + (f": {local} \u2192 {remote}" if local and remote else "")


def _render(
    con: duckdb.DuckDBPyConnection,
    run: select.Run,
    charts: document.Document,
    sections: list[Section],
    diagnosed: Callable[[], Diagnosis],
    names: str,
) -> str:
    replays, notes = about_run.agreement(con, run), about_run.quality(con, run)
    values: dict[str, object] = {
        "run": run,
        "sections": sections,
        "others": [flow for flow in run.flows if not flow.main],
        "most_listed": MOST_LISTED,
        "most_on_paper": listing.MOST_ON_PAPER,
        "title": about_run.title(con, run),
        "flow_table": flow_table(
            con, run, {section.flow.number: section.facts for section in sections}
        ),
        "diagnosis": finding_cards.findings_section(run, diagnosed()),
        "verdict": about_run.verdict(con, run, replays),
        "replays": replays,
        "rung": about_run.rung(run),
        "quality_notes": notes,
        "counted": about_run.counted(con, run),
        "recording": about_run.recording(con, run),
        "manifest": about_run.manifest(con, run),
        "reductions": about_run.reductions(run),
        "name_of": name_of,
    }
    return frame.render("page.html.j2", charts, names, values)
