"""``bbrscope report``: one self-contained HTML file about a run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import Time, names_option, run_argument, store_option

if TYPE_CHECKING:
    from ...collect.store import Store

# Of the 1 GB that a report of a million events with packets may take.
DATABASE_MEMORY = "400MB"


@click.command()
@run_argument
@store_option
@click.option("-o", "--output", type=click.Path(path_type=Path), help="File to write [RUN.html].")
@click.option(
    "--between",
    nargs=2,
    type=Time(),
    metavar="FROM TO",
    help="Open with this window, and keep every recorded point in it.",
)
@names_option
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(
    run: str,
    store: Path,
    output: Path | None,
    between: tuple[int, int] | None,
    names: str,
    force: bool,
) -> None:
    """Write one self-contained HTML file about RUN.

    First what happened, in words; then charts that share one time axis, with the phases behind
    them; every phase change and every change of a bound with its reason; time per phase; how far
    the replay and the recording may be trusted. The file needs no network. A link that ends in
    #t=12.3-14.0 opens that window.

    \b
    bbrscope report v2_single_1bdp
    bbrscope report v2_single_1bdp -o monday.html --force
    bbrscope report edge7 --between 12s 14s
    """
    from ..html import writer
    from .explain import open_replayed

    if between is not None and between[0] >= between[1]:
        raise click.BadParameter("FROM must be before TO", param_hint="--between")
    path = output or Path(f"{run}.html")
    writer.check_free(path, force)
    with open_replayed(store, run) as opened:
        run_id = opened.run_id(run)
        window = (between[0] / 1e9, between[1] / 1e9) if between else None
        size = write_report(opened, run_id, path, window, names)
    click.echo(f"{path}: {size / 1e6:.2f} MB; open it in any browser, no network needed")


def write_report(
    store: Store,
    run_id: int,
    path: Path,
    between: tuple[float, float] | None = None,
    names: str = "kernel",
) -> int:
    """Build and write the report of a run; `between` is in seconds. Return its size in bytes."""
    from ..html import page, writer
    from ..progress import progress

    bound_memory(store)
    row = store.con.execute("SELECT events FROM runs WHERE run_id = ?", [run_id]).fetchone()
    with progress(int(row[0]) if row else 0, "drawing") as advance:
        html = page.build(store.con, run_id, between, advance, names)
    writer.write(path, html)
    return len(html.encode("utf-8"))


def bound_memory(store: Store) -> None:
    """Let DuckDB keep less of the store in memory than it would, and spill what does not fit."""
    store.con.execute(f"SET memory_limit = '{DATABASE_MEMORY}'")
    store.con.execute("SET temp_directory = ?", [tempfile.gettempdir()])
