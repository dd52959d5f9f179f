"""``bbrscope study``: what a scenario's runs measured, against what its source claims."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..api.replayed import not_replayed, replay
from ..options import FORMATS, complete_runs, gather, store_option
from ..text.screen import say
from .lab import complete_scenarios

if TYPE_CHECKING:
    import pyarrow as pa
    from altair.typing import ChartType

    from ...analyze.study.claims import Verdict
    from ...analyze.study.study import Drawn, Study
    from ...collect.lab.scenario import Scenario

VERDICTS, RUNS = "verdicts", "runs"
VERDICT_COLUMNS = (
    "id verdict claim source direction expected tolerance measured values why runs quick".split()
)
COLOURS = {"reproduced": "green", "not reproduced": "red"}
KINDS = ("svg", "png")


@dataclass(frozen=True)
class StudyRequest:
    """Which runs of a scenario to judge, and what to print and write."""

    scenario: str
    runs: tuple[str, ...]
    store: Path
    output: Path | None
    force: bool
    quick: bool | None
    output_format: str | None
    table_name: str
    folder: Path | None

    @property
    def writes_report(self) -> bool:
        """A table on standard output replaces the report, unless -o asks for both."""
        return self.output_format is None or self.output is not None


@click.command()
@click.argument("scenario", shell_complete=complete_scenarios)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)
@store_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Report to write [SCENARIO.study.html]."
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option(
    "--quick/--full",
    default=None,
    help="Runs of this form [full if there is any].",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    help="Print a table to standard output, and write no report.",
)
@click.option(
    "--table",
    "table_name",
    metavar="NAME",
    default=VERDICTS,
    show_default=True,
    help="With --format, which table: verdicts, runs, or the name of a figure.",
)
@click.option(
    "--figures",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write every figure into this folder, as svg and png.",
)
@gather(StudyRequest)
def command(request: StudyRequest) -> None:
    """Compare what the runs of SCENARIO measured with what its source claims.

    Each claim of the source gets a verdict: reproduced, not reproduced, or not comparable, with the
    numbers that were measured, or what would have to be run. The report has the source's own
    figures and tables, drawn from these runs. SCENARIO is a name of `bbrscope lab list`, or your
    own file; RUN narrows it down to some of its runs. Runs that the lab marked invalid are left
    out.

    \b
    bbrscope study song-single-buffer
    bbrscope study song-cubic --full -o monday.html --figures monday/
    bbrscope study song-cubic --format csv > verdicts.csv
    bbrscope study song-cubic --table share-by-buffer --format json
    """
    from ...collect.lab import scenario
    from ..html.pages import writer

    loaded = scenario.load(request.scenario)
    path = request.output or Path(f"{loaded.name}.study.html")
    if request.writes_report:
        writer.check_free(path, request.force, Path(request.scenario))
    study = _conduct(request, loaded)
    if request.folder is not None:
        _write_figures(study, request.folder, request.force)
    if request.output_format is None:
        _print(study)
    else:
        from ..text.print_table import write_table

        write_table(_table(study, request.table_name), request.output_format)
    if request.writes_report:
        _write_report(study, path)


def _conduct(request: StudyRequest, scenario: Scenario) -> Study:
    """Judge the runs that the store holds; replay first what the claims need replayed."""
    from ...analyze.study import study
    from ...analyze.views.store_with_views import open_store
    from ..text.run_notes import say_notes

    if study.needs_replay(scenario):
        _replay(request.store, scenario.name, request.runs, request.quick)
    with open_store(request.store, read_only=True) as opened:
        judged = study.conduct(opened, scenario, request.runs, request.quick)
        names = [str(run["run"]) for run in judged.runs.to_pylist()]
        say_notes(opened.con, [opened.run_id(name) for name in names])
        return judged


def _write_report(study: Study, path: Path) -> None:
    from ..html.pages import study_page, writer

    html = study_page.build(study)
    writer.write(path, html)
    size = len(html.encode()) / 1e6
    say(f"{path}: {size:.2f} MB; open it in any browser, no network needed", err=True)


def _replay(path: Path, scenario: str, runs: tuple[str, ...], quick: bool | None) -> None:
    """Replay what of the runs was not replayed yet; of views, a study finds what it reads."""
    from ...analyze.study import points
    from ...analyze.views.store_with_views import open_store

    with open_store(path, read_only=True) as opened:
        chosen = points.choose(opened, scenario, runs, quick).run_ids
        names = opened.con.execute(
            "SELECT run FROM runs WHERE list_contains(?, run_id) AND events > 0", [list(chosen)]
        ).fetchall()
        missing = not_replayed(opened, [row[0] for row in names])
    if missing:
        replay(path, missing, rows_of_views=False)


def _table(study: Study, name: str) -> pa.Table:
    """Return a table of the study by its name.

    Raises:
        BbrscopeError: it has none of that name.
    """
    if name == VERDICTS:
        return verdicts(study)
    if name == RUNS:
        return study.runs
    for drawn in study.drawn:
        if drawn.figure.name == name:
            import pyarrow as pa

            return drawn.rows if drawn.tree is None else pa.Table.from_pylist(drawn.tree.rows())
    known = [VERDICTS, RUNS, *(drawn.figure.name for drawn in study.drawn)]
    raise BbrscopeError(f"no table called {name!r:.60}", f"there are {', '.join(known)}")


def verdicts(study: Study) -> pa.Table:
    """Return the verdicts as a table."""
    import pyarrow as pa

    rows = [
        {
            "id": each.claim.id,
            "verdict": each.state,
            "claim": each.claim.text,
            "source": each.claim.source,
            "direction": each.claim.side or None,
            "expected": each.claim.expected,
            "tolerance": each.claim.tolerance,
            "measured": each.measured or None,
            "values": [float(x) for x in each.numbers.values if not isinstance(x, str | None)],
            "why": each.why or None,
            "runs": each.n,
            "quick": study.chosen.quick,
        }
        for each in study.verdicts
    ]
    types = {
        "expected": pa.float64(),
        "tolerance": pa.float64(),
        "values": pa.list_(pa.float64()),
        "runs": pa.int64(),
        "quick": pa.bool_(),
    }
    schema = [(name, types.get(name, pa.string())) for name in VERDICT_COLUMNS]
    return pa.Table.from_pylist(rows, pa.schema(schema))


def _print(study: Study) -> None:
    """Print the verdicts for people: one paragraph per claim."""
    from ..text.print_table import printable

    _print_runs(study)
    for verdict in study.verdicts:
        _print_verdict(verdict)
    for drawn in study.drawn:
        if drawn.tree is not None:
            title = printable(drawn.figure.title)
            say(f"\n{title}\n{drawn.tree.summary()}\n{drawn.tree.text()}")
        elif drawn.why_none and drawn.rows.num_rows:
            say(f"\n{printable(drawn.figure.title)}\n  {printable(drawn.why_none)}")
    say()


def _print_runs(study: Study) -> None:
    """Print what the scenario is, and which of its runs were judged."""
    from ..text.print_table import printable

    chosen = study.chosen
    form = "quick form" if chosen.quick else "full form"
    say(printable(f"{study.scenario.name}: {study.scenario.title}"), bold=True)
    say(
        f"{printable(study.scenario.source)}; {plural(len(chosen.run_ids), 'valid run')}, {form}"
        + (f"; {chosen.other_form} of the other form left out" if chosen.other_form else "")
        + (f"; {len(chosen.invalid)} left out as invalid" if chosen.invalid else "")
    )


def _print_verdict(verdict: Verdict) -> None:
    from ..text.claim_words import expected
    from ..text.print_table import printable

    say(f"\n{verdict.state}", fg=COLOURS.get(verdict.state), bold=True, nl=False)
    say(printable(f": {verdict.claim.text} ({verdict.claim.source})"))
    source = f"expected {wanted}" if (wanted := expected(verdict.claim)) else ""
    numbers = "; ".join(filter(None, [verdict.measured, source, verdict.why]))
    runs = f"; {plural(verdict.n, 'run')}" if verdict.n else ""
    say(printable(f"  {numbers}") + runs)


def _write_figures(study: Study, folder: Path, force: bool) -> None:
    """Write every chart as svg and png.

    Raises:
        BbrscopeError: a file is there already, or cannot be written.
    """
    from ..html.charts import study_charts
    from ..html.pages import writer

    charts = [chart for drawn in study.drawn for chart in _charts(drawn)]
    files = [(folder / f"{name}.{kind}", chart, kind) for name, chart in charts for kind in KINDS]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BbrscopeError(f"cannot make {folder}: {error.strerror}", "name another") from error
    for path, _, _ in files:
        writer.check_free(path, force)
    notes = [f"simulated runs; fidelity: {text}" for text in study.fidelity]
    for path, chart, kind in files:
        writer.write_bytes(path, study_charts.picture(chart, kind, notes))
    say(f"{folder}: {plural(len(files), 'file')}", err=True)


def _charts(drawn: Drawn) -> list[tuple[str, ChartType]]:
    """Return a figure's charts by file name; several charts of a figure get numbers."""
    from ..html.charts import study_charts

    panels = study_charts.panels(drawn) if drawn.rows.num_rows else []
    charts = []
    for number, (title, chart) in enumerate(panels, 1):
        tail = f"-{number}" if len(panels) > 1 else ""
        titled = chart.properties(title=title) if title else chart
        charts.append((f"{drawn.figure.name}{tail}", titled))
    return charts
