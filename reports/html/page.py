"""Assemble the page: select, draw, tell, and put it into the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...collect import query
from ...collect.errors import BbrscopeError
from .. import captured_story
from . import (
    diagnosis,
    document,
    facts,
    frame,
    listing,
    palette,
    prose,
    sampled,
    select,
    shares,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import duckdb

# More flows than this are listed, but not drawn, and more than that only counted: the page would
# grow without bound.
MOST_DRAWN, MOST_LISTED = 12, 200


# No phases, bounds or time in phases: packets do not tell them.
_NOTHING = (listing.Listing([]), listing.Listing([]), list[query.Row]())


@dataclass(frozen=True)
class Section:
    """One drawn flow of the page."""

    flow: select.Flow
    name: str
    story: list[prose.Prose]
    limits: list[words.Limit]
    colours: list[tuple[str, list[str]]]
    phases: listing.Listing
    bounds: listing.Listing
    accounting: list[query.Row]


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
        between: window in seconds since the first flow began, embedded in full and shown first.
        advance: called with the number of events of each flow that is done.
        names: "draft" shows the names of draft-ietf-ccwg-bbr instead of the kernel's.

    Raises:
        BbrscopeError: the run has no flow.
    """
    run = select.load_run(con, run_id)
    if not run.flows:
        raise BbrscopeError(
            f"{run.row['run']} has no flow that carried data: there is nothing to draw",
            f'see what it holds: bbrscope sql "FROM packets JOIN runs USING (run_id)'
            f" WHERE run = '{run.row['run']}'\"",
        )
    for flow in run.main[MOST_DRAWN:]:
        flow.main = False
    if not run.main and run.flows:
        run.flows[0].main = True
    window = None if between is None else (round(between[0] * 1e6), round(between[1] * 1e6))
    sections = []
    with select.views_held(con, run):
        for flow in run.main:
            select.load_flow(con, run, flow, window)
            sections.append(_section(con, run, flow))
            advance(flow.row["events"])
        select.load_queue(con, run, max((run.us(f.row["last_ns"]) for f in run.main), default=0))
        made = document.build(run, between, shares.load(con, run))
        return _render(con, run, made, sections, names)


def _section(
    con: duckdb.DuckDBPyConnection,
    run: select.Run,
    flow: select.Flow,
) -> Section:
    order = list(palette.COLOURS)
    colours = [
        (document.LANE_NAMES[lane], sorted(set(spans.category), key=order.index))
        for lane, spans in flow.lanes.items()
    ]
    if run.sampled:
        told, modes = sampled.story(run, flow), sampled.modes(con, run, flow)
        return Section(flow, name_of(flow), told, [], colours, modes, listing.Listing([]), [])
    if run.captured:
        told = [[captured_story.story(flow.row)], [captured_story.BEYOND]]
        return Section(flow, name_of(flow), told, [], colours, *_NOTHING)
    listings = listing.listings(con, run, flow)
    return Section(
        flow,
        name_of(flow),
        words.story(con, run, flow, listings),
        words.limits(con),
        colours,
        listings.phases,
        listings.bounds,
        facts.accounting(con, run, flow),
    )


def name_of(flow: select.Flow) -> str:
    """Return how a flow is called: its number and, if known, its ends."""
    local, remote = flow.row["local"], flow.row["remote"]
    return f"Flow {flow.number}" + (f": {local} \u2192 {remote}" if local and remote else "")


def _render(
    con: duckdb.DuckDBPyConnection,
    run: select.Run,
    made: document.Document,
    sections: list[Section],
    names: str,
) -> str:
    replays, findings = facts.agreement(con, run), facts.quality(con, run)
    values: dict[str, Any] = {
        "run": run,
        "sections": sections,
        "others": [flow for flow in run.flows if not flow.main],
        "most_listed": MOST_LISTED,
        "title": facts.title(con, run),
        "diagnosis": diagnosis.verdict(con, run),
        "verdict": facts.verdict(run, replays, findings),
        "replays": replays,
        "rung": facts.rung(run),
        "findings": findings,
        "counted": facts.counted(con, run),
        "recording": facts.recording(con, run),
        "manifest": facts.manifest(con, run),
        "reductions": facts.reductions(run),
        "name_of": name_of,
    }
    return frame.render("page.html.j2", made, names, values)
