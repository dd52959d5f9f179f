"""``bbrscope study``: what a scenario's runs say, beside what its source says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.errors import BbrscopeError
from ..options import FORMATS, complete_runs, store_option
from .explain import open_replayed
from .lab import complete_scenarios

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analyze.study.study import Study

VERDICTS, RUNS = "verdicts", "runs"


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
    help="Which: verdicts, runs, or the name of a figure.",
)
@click.option(
    "--figures",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write every figure into this folder, as svg and png.",
)
def command(
    scenario: str,
    runs: tuple[str, ...],
    store: Path,
    output: Path | None,
    force: bool,
    quick: bool | None,
    output_format: str | None,
    table_name: str,
    folder: Path | None,
) -> None:
    """Judge what the runs of SCENARIO say, beside what its source says.

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
    from ...analyze.study import study
    from ...collect.lab import scenario as catalogue
    from ...collect.store import open_store
    from ..html import writer

    loaded = catalogue.load(scenario)
    path = output or Path(f"{loaded.name}.study.html")
    if output_format is None or output is not None:
        writer.check_free(path, force)
    if study.needs_replay(loaded):
        _replay(store, loaded.name, runs, quick)
    with open_store(store, read_only=True) as opened:
        found = study.conduct(opened, loaded, runs, quick)
    if folder is not None:
        _write_figures(found, folder, force)
    if output_format is not None:
        from ..tables import write_table

        write_table(_table(found, table_name), output_format)
    else:
        _tell(found)
    if output_format is None or output is not None:
        from ..html import study_page

        html = study_page.build(found)
        writer.write(path, html)
        size = len(html.encode()) / 1e6
        click.echo(f"{path}: {size:.2f} MB; open it in any browser, no network needed", err=True)


def _replay(path: Path, scenario: str, runs: tuple[str, ...], quick: bool | None) -> None:
    """Replay what of the runs was not replayed yet."""
    from ...analyze.study import points
    from ...collect.store import open_store

    with open_store(path, read_only=True) as opened:
        chosen = points.choose(opened, scenario, runs, quick).run_ids
        names = opened.con.execute(
            "SELECT run FROM runs WHERE list_contains(?, run_id) AND events > 0", [list(chosen)]
        ).fetchall()
    open_replayed(path, *(row[0] for row in names)).close()


def _table(found: Study, name: str) -> pa.Table:
    """Return a table of the study by its name.

    Raises:
        BbrscopeError: it has none of that name.
    """
    if name == VERDICTS:
        return verdicts(found)
    if name == RUNS:
        return found.runs
    for drawn in found.drawn:
        if drawn.figure.name == name:
            import pyarrow as pa

            return drawn.rows if drawn.tree is None else pa.Table.from_pylist(drawn.tree.rows())
    known = [VERDICTS, RUNS, *(drawn.figure.name for drawn in found.drawn)]
    raise BbrscopeError(f"no table called {name!r:.60}", f"there are {', '.join(known)}")


def verdicts(found: Study) -> pa.Table:
    """Return the verdicts as a table."""
    import pyarrow as pa

    columns = {
        "id": pa.string(),
        "verdict": pa.string(),
        "claim": pa.string(),
        "source": pa.string(),
        "expected": pa.float64(),
        "tolerance": pa.float64(),
        "measured": pa.string(),
        "why": pa.string(),
        "runs": pa.int64(),
        "quick": pa.bool_(),
    }
    rows = [
        {
            "id": each.claim.id,
            "verdict": each.state,
            "claim": each.claim.text,
            "source": each.claim.source,
            "expected": each.claim.expected,
            "tolerance": each.claim.tolerance,
            "measured": each.measured or None,
            "why": each.why or None,
            "runs": each.n,
            "quick": found.chosen.quick,
        }
        for each in found.verdicts
    ]
    return pa.Table.from_pylist(rows, pa.schema(list(columns.items())))


def _tell(found: Study) -> None:
    """Print the verdicts for people: one paragraph per claim."""
    from ..html.prose import plural
    from ..tables import printable

    chosen = found.chosen
    form = "quick form" if chosen.quick else "full form"
    click.secho(printable(f"{found.scenario.name}: {found.scenario.title}"), bold=True)
    click.echo(
        f"{printable(found.scenario.source)}; {plural(len(chosen.run_ids), 'valid run')}, {form}"
        + (f"; {chosen.other_form} of the other form left out" if chosen.other_form else "")
        + (f"; {len(chosen.invalid)} left out as invalid" if chosen.invalid else "")
    )
    colours = {"reproduced": "green", "not reproduced": "red"}
    for each in found.verdicts:
        click.secho(f"\n{each.state}", fg=colours.get(each.state), bold=True, nl=False)
        click.echo(printable(f": {each.claim.text} ({each.claim.source})"))
        told = "; ".join(filter(None, [each.measured, each.why]))
        click.echo(printable(f"  {told}") + (f"; {plural(each.n, 'run')}" if each.n else ""))
    for drawn in found.drawn:
        if drawn.tree is not None:
            click.echo(f"\n{drawn.figure.title}\n{drawn.tree.summary()}\n{drawn.tree.text()}")
        elif drawn.why_none and drawn.rows.num_rows:
            click.echo(f"\n{drawn.figure.title}\n  {drawn.why_none}")
    click.echo()


def _write_figures(found: Study, folder: Path, force: bool) -> None:
    """Write every chart as svg and png; several charts of a figure get numbers.

    Raises:
        BbrscopeError: a file is there already, or cannot be written.
    """
    from ..html import study_charts, writer

    charts = []
    for drawn in found.drawn:
        panels = study_charts.panels(drawn) if drawn.rows.num_rows else []
        for number, (name, chart) in enumerate(panels, 1):
            tail = f"-{number}" if len(panels) > 1 else ""
            titled = chart.properties(title=name) if name else chart
            charts += [
                (folder / f"{drawn.figure.name}{tail}.{kind}", titled, kind)
                for kind in ("svg", "png")
            ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BbrscopeError(f"cannot make {folder}: {error.strerror}", "name another") from error
    for path, _, _ in charts:
        writer.check_free(path, force)
    for path, chart, kind in charts:
        writer.write_bytes(path, study_charts.picture(chart, kind))
    click.echo(f"{folder}: {len(charts)} files", err=True)
