"""``bbrscope fleet``: what costs a fleet most, what changed, which flows are worst."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...analyze.lake.breakdowns import BREAKDOWNS
from ...analyze.views.runs.sender_views import LEAST_ACKS, LEAST_SHARE
from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..html.pages import writer
from ..options import format_option, gather
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.lake.fleet import Answer
    from ...collect.store.store import Store


@dataclass(frozen=True)
class FleetRequest:
    """Which lake to ask, how to break its findings down, and where to write what."""

    lake: Path
    by: tuple[str, ...]
    most: int
    cost: str
    output: Path | None
    reports: int
    force: bool
    output_format: str


@click.command()
@click.argument("lake", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--by",
    type=click.Choice(list(BREAKDOWNS)),
    multiple=True,
    help="Break findings down by this; path: class of RTT, rate and loss. May be given again "
    "[version; on a page and in json all five].",
)
@click.option(
    "--most", type=click.IntRange(1), default=10, show_default=True, help="Rows of each table."
)
@click.option(
    "--cost",
    type=click.Choice(["seconds", "bytes"]),
    default="seconds",
    show_default=True,
    help="Rank findings and flows by this.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write one HTML page.")
@click.option(
    "--reports",
    type=click.IntRange(0),
    default=0,
    help="Write reports of the runs with the N worst flows beside the page, linked from it.",
)
@click.option("--force", is_flag=True, help="Overwrite the page if it exists.")
@format_option("table", "json")
@gather(FleetRequest)
def command(request: FleetRequest) -> None:
    """Say of all flows in a lake which findings cost most, what changed, and which are worst.

    Answers, each a table: findings by the seconds and bytes that they cost, over all and broken
    down; what changed between the last seven days and the seven before, separated from noise by a
    permutation test; the worst flows; v3 beside v1 on paths of similar RTT, rate and loss, and what
    each limit cost both where v3 is slower; what limited sending; and how flows did, which is all
    that is known of runs without events. json has them by name. The page ends
    with questions in SQL to go on from.

    \b
    bbrscope fleet lake
    bbrscope fleet lake --by path --by kernel
    bbrscope fleet lake -o fleet.html --reports 5
    bbrscope sql "SELECT host, name, sum(cost_s) AS s FROM findings JOIN lake_runs USING (run_id)
      GROUP BY ALL ORDER BY s DESC" --store lake
    """
    from ...analyze.lake.fleet import answers
    from ...analyze.views.store_with_views import open_store
    from ...collect.lake.lake_place import is_lake
    from ..text.run_notes import simulated

    if request.output is not None:
        writer.check_free(request.output, request.force)
    if not is_lake(request.lake):
        raise BbrscopeError(
            f"{request.lake} is not a lake", "make one: bbrscope lake add DIR BUNDLE..."
        )
    with open_store(request.lake, read_only=True) as opened:
        in_full = request.output is not None or request.output_format == "json"
        by = request.by or (tuple(BREAKDOWNS) if in_full else ("version",))
        cost = {"seconds": "cost_s", "bytes": "cost_bytes"}[request.cost]
        answered = list(answers(opened.con, by, request.most, cost))
        counted = _counted(opened)
        notes = [*simulated(opened.con), *_of_versions(opened)]
        if request.output is not None:
            _write_page(opened, request, counted, notes, answered)
    for note in notes:
        say(note, err=True)
    if request.output is not None:
        say(f"{request.output}: open it in any browser, no network needed")
    elif request.output_format == "json":
        said = {answer.name: answer.rows.to_pylist() for answer in answered}
        say(json.dumps(said, default=str))
    else:
        _print(counted, answered)


def _of_versions(opened: Store) -> list[str]:
    """Say if not all runs were diagnosed alike: rules and views change with bbrscope."""
    query = "SELECT count(DISTINCT views), list_sort(list(DISTINCT made_by)) FROM lake_runs"
    ((digests, makers),) = opened.con.execute(query).fetchall()
    if digests < 2:
        return []
    return [
        f"runs were diagnosed by {plural(digests, 'state')} of bbrscope ({', '.join(makers)}):"
        " costs may differ for that alone; made_by and views in lake_runs tell which"
    ]


def _counted(opened: Store) -> str:
    runs, eventless, flows, seconds, left_out = opened.con.execute(
        "SELECT (SELECT count(*) FROM runs),"
        " (SELECT count(*) FROM runs WHERE coalesce(events, 0) = 0),"
        " count(*), coalesce(sum(duration_s), 0),"
        " (SELECT count(*) FROM fleet_senders WHERE flow IS NOT NULL AND NOT counts)"
        " FROM fleet_flows"
    ).fetchall()[0]
    text = f"{plural(runs, 'run')}, {plural(flows, 'flow')}, {seconds / 3600:,.2f} hours of sending"
    if left_out:
        text += (
            f"; {plural(left_out, 'flow')} left out that carried next to no data (less than"
            f" {LEAST_SHARE:.0%} of what the run's largest did, as control connections do, or with"
            f" fewer than {LEAST_ACKS} ACKs)"
        )
    if not eventless:
        return text
    many = "has" if eventless == 1 else "have"
    return (
        f"{text}; {eventless:,} of the runs {many} no events: metrics, but no findings and limits"
    )


def _print(counted: str, answered: Sequence[Answer]) -> None:
    from ..text.print_table import render

    say(counted)
    for answer in answered:
        say(f"\n{answer.title} ({answer.about})\n")
        say(render(answer.rows) if answer.rows.num_rows else answer.empty)


def _write_page(
    opened: Store,
    request: FleetRequest,
    counted: str,
    notes: Sequence[str],
    answered: Sequence[Answer],
) -> None:
    from ..html.pages import fleet_page
    from .report import write_report

    assert request.output is not None
    (worst,) = (answer for answer in answered if answer.name == "worst")
    runs = list(dict.fromkeys(worst.rows["run"].to_pylist()))[: request.reports]
    folder = request.output.with_name(f"{request.output.stem}_reports")
    if runs:
        folder.mkdir(exist_ok=True)
    links = {}
    for run in runs:
        path = folder / f"{urllib.parse.quote(run, safe='')}.html"
        write_report(opened, opened.run_id(run), path)
        links[run] = f"{folder.name}/{path.name}"
    html = fleet_page.build(str(request.lake), counted, answered, links, notes)
    writer.write(request.output, html)
