"""``bbrscope report``: one self-contained HTML file about a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.store.query import first_row
from ..api.replayed import open_replayed
from ..choose import by_condition, by_name
from ..html.pages import writer
from ..options import as_option, gather, names_option, runs_argument, set_option, store_option
from ..parameter_types import TimeType
from ..text.screen import say

if TYPE_CHECKING:
    from ...collect.store.store import Store

# Of the 1 GB that a report of a million events with packets may take.
DATABASE_MEMORY = "512MB"
SEVERAL = "comparison.html"


@dataclass(frozen=True)
class ReportRequest:
    """Which runs a report is of, and how and where it is written."""

    runs: tuple[str, ...]
    store: Path
    output: Path | None
    where: str | None
    between: tuple[int, int] | None
    names: str
    force: bool
    as_version: str | None
    settings: tuple[str, ...]
    seeds: int

    @property
    def rules(self) -> str:
        """The other rules of a what-if in words; empty: none are asked for."""
        named = Path(self.as_version).name if self.as_version else ""
        return " with ".join(filter(None, (named, ", ".join(self.settings))))

    @property
    def window_s(self) -> tuple[float, float] | None:
        """The window of --between in seconds."""
        return (self.between[0] / 1e9, self.between[1] / 1e9) if self.between else None

    def chosen(self) -> list[str]:
        """Return the names of the runs.

        Raises:
            click.UsageError: the options contradict each other.
            BbrscopeError: there is no such run.
        """
        if bool(self.runs) == bool(self.where):
            raise click.UsageError("name runs, or give a condition: --where SQL")
        if self.between is not None and self.between[0] >= self.between[1]:
            raise click.BadParameter("FROM must be before TO", param_hint="--between")
        if self.where:
            chosen = by_condition(self.store, self.where)
        else:
            chosen = _named(self.store, self.runs)
        if self.between is not None and len(chosen) > 1:
            raise click.UsageError("--between is for the report of one run")
        if self.rules and (self.between is not None or len(chosen) > 1):
            raise click.UsageError("--as and --set are for the whole of one run")
        return chosen


@click.command()
@runs_argument
@store_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help=f"File to write [RUN.html, {SEVERAL}]."
)
@click.option(
    "--where",
    metavar="SQL",
    help="Compare the runs that meet this condition over the columns of table runs.",
)
@click.option(
    "--between",
    nargs=2,
    type=TimeType(),
    metavar="FROM TO",
    help="Open with this window, and keep every recorded point in it (one RUN).",
)
@as_option
@set_option
@click.option(
    "--seeds",
    type=click.IntRange(20, 10_000),
    default=20,
    show_default=True,
    help="With --as or --set: simulations under each set of rules.",
)
@names_option
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
@gather(ReportRequest)
def command(request: ReportRequest) -> None:
    """Write one self-contained HTML file about RUN, or one that compares several.

    Of one run: first what happened, in words; then charts that share one time axis, with the
    phases behind them; every phase change and every change of a bound with its reason; time per
    phase; how far the replay and the recording may be trusted. A link that ends in #t=12.3-14.0
    opens that window.

    Of several runs (names, patterns such as 'v2_*', or --where): their metrics with differences
    from the first, goodput against RTT, fairness over time, and small charts side by side.

    Of a what-if (--as, --set; one RUN): the run as recorded, simulated under its own rules and
    under others, on one time axis with the band of the seeds; the difference beside the error, and
    how far it holds (`bbrscope what-if` has the same numbers).

    The file needs no network.

    \b
    bbrscope report v2_single_1bdp
    bbrscope report v2_single_1bdp -o monday.html --force
    bbrscope report edge7 --between 12s 14s
    bbrscope report v2_single_1bdp v2_x_spur
    bbrscope report v2_single_1bdp --as v3
    bbrscope report --where "version = 'v3' AND duration_ns > 10e9"
    """
    chosen = request.chosen()
    path = request.output or _usual_path(request, chosen)
    own = [Path(request.as_version)] if request.as_version else []
    writer.check_free(path, request.force, *own)
    if request.rules:
        size = _write_what_if(request, chosen[0], path)
        say(f"{path}: {size / 1e6:.2f} MB; open it in any browser, no network needed")
        return
    with open_replayed(request.store, *chosen) as opened:
        run_ids = [opened.run_id(name) for name in chosen]
        if len(run_ids) > 1:
            size = _write_comparison(opened, run_ids, path, request.names)
        else:
            size = write_report(opened, run_ids[0], path, request.window_s, request.names)
    say(f"{path}: {size / 1e6:.2f} MB; open it in any browser, no network needed")


def _usual_path(request: ReportRequest, chosen: list[str]) -> Path:
    if len(chosen) > 1:
        return Path(SEVERAL)
    # A stranger's store may name a run as no bundle can: the page stays in this folder.
    run = re.sub(r"[^\w.+@=-]", "_", chosen[0])
    words = "-".join([run, *re.findall(r"\w+", request.rules)])
    return Path(f"{words}.html")


def _write_what_if(request: ReportRequest, run: str, path: Path) -> int:
    """Simulate a run again and write the page about it. Return its size in bytes."""
    from ..html.pages import what_if_page
    from .what_if import answered

    settings, seeds = request.settings, request.seeds
    answer, recorded = answered(request.store, run, request.as_version, settings, seeds)
    html = what_if_page.build(answer, recorded, request.rules, request.names)
    writer.write(path, html)
    return len(html.encode("utf-8"))


def _named(store: Path, patterns: tuple[str, ...]) -> list[str]:
    from ...analyze.views.store_with_views import open_store

    with open_store(store, read_only=True) as opened:
        return by_name(opened, patterns)


def _write_comparison(store: Store, run_ids: list[int], path: Path, names: str) -> int:
    """Build and write the comparison of runs. Return its size in bytes."""
    from ..html.sections import compared
    from ..text.progress_bar import progress

    bound_memory(store)
    rows = store.con.execute(
        "SELECT events FROM runs WHERE list_contains(?, run_id)", [run_ids]
    ).fetchall()
    with progress(sum(row[0] or 0 for row in rows), "drawing") as advance:
        html = compared.build(store.con, run_ids, advance, names)
    writer.write(path, html)
    return len(html.encode("utf-8"))


def write_report(
    store: Store,
    run_id: int,
    path: Path,
    between: tuple[float, float] | None = None,
    names: str = "kernel",
) -> int:
    """Build and write the report of a run; `between` is in seconds. Return its size in bytes."""
    from ..html.pages import page
    from ..text.progress_bar import progress

    bound_memory(store)
    row = first_row(store.con, "SELECT events FROM runs WHERE run_id = ?", run_id)
    with progress(int(row[0]) if row else 0, "drawing") as advance:
        html = page.build(store.con, run_id, between, advance, names)
    writer.write(path, html)
    return len(html.encode("utf-8"))


def bound_memory(store: Store) -> None:
    """Let DuckDB keep less of the store in memory than it would, and spill what does not fit."""
    store.con.execute(f"SET memory_limit = '{DATABASE_MEMORY}'")
