"""``bbrscope plot``: one chart as a figure, with the data behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.errors import BbrscopeError
from ..choose import by_name
from ..html import writer
from ..options import Time, complete_runs, store_option
from .explain import open_replayed

if TYPE_CHECKING:
    from ..html.figure import Figure

FORMATS = (".svg", ".png", ".pdf")
DATA_FORMATS = (".csv", ".parquet")
# Pixels of a PNG per pixel of the figure: sharp in print.
SCALE = 3


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a chart."""
    from ..html.figure import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


def _list(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from ..html.figure import NAMES

    for name, about in NAMES.items():
        click.echo(f"{name:10} {about}")
    ctx.exit()


@click.command()
@click.option(
    "--list",
    is_eager=True,
    is_flag=True,
    expose_value=False,
    callback=_list,
    help="List the charts.",
)
@click.argument("name", shell_complete=complete_names)
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_runs)
@store_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write: .svg, .png or .pdf.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Write the data behind it: .csv or .parquet."
)
@click.option("--spec", is_flag=True, help="Print the Vega-Lite specification, data included.")
@click.option("--flow", type=int, help="The flow [the first that counts].")
@click.option(
    "--between",
    nargs=2,
    type=Time(),
    metavar="FROM TO",
    help="Draw this window only, with every recorded point in it.",
)
@click.option("--dark", is_flag=True, help="For a dark background.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
def command(
    name: str,
    runs: tuple[str, ...],
    store: Path,
    output: Path | None,
    data: Path | None,
    spec: bool,
    flow: int | None,
    between: tuple[int, int] | None,
    dark: bool,
    force: bool,
) -> None:
    """Draw the chart NAME of RUN as a figure for a paper; of several, one above the other.

    The charts are those of `bbrscope report`, in the same colours; --list names them. No browser
    is needed. The data are those drawn: when a figure is too narrow to show every point, first,
    last, least and largest of each of 1500 spans of time; --between keeps every point.

    \b
    bbrscope plot volumes v2_single_1bdp -o volumes.svg
    bbrscope plot sequence v2_single_1bdp --between 0.2s 0.6s -o startup.pdf --data startup.csv
    bbrscope plot scatter v2_single_1bdp v3_x_tlp5 -o scatter.png
    bbrscope plot rates v2_single_1bdp --spec > rates.vl.json
    """
    from ..html import figure

    if name not in figure.NAMES:
        raise click.BadParameter(
            f"{name!r} is none of {', '.join(figure.NAMES)}", param_hint="NAME"
        )
    if not (output or data or spec):
        raise click.UsageError("say what to make: -o FILE, --data FILE or --spec")
    if between is not None and between[0] >= between[1]:
        raise click.BadParameter("FROM must be before TO", param_hint="--between")
    for path, formats, option in ((output, FORMATS, "-o"), (data, DATA_FORMATS, "--data")):
        if path is not None and path.suffix.lower() not in formats:
            raise click.BadParameter(
                f"{path} ends in none of {', '.join(formats)}", param_hint=option
            )
        if path is not None:
            writer.check_free(path, force)
    made = _make(name, runs, store, flow, between, dark)
    if spec:
        click.echo(json.dumps(made.spec))
    if output:
        writer.write_bytes(output, _drawn(made, output.suffix.lower()))
        click.echo(f"{output}: {name} of {', '.join(runs)}", err=spec)
    if data:
        writer.write_bytes(data, _table(made, data.suffix.lower()))
        click.echo(f"{data}: {len(made.rows):,} rows", err=spec)


def _make(
    name: str,
    runs: tuple[str, ...],
    store: Path,
    flow: int | None,
    between: tuple[int, int] | None,
    dark: bool,
) -> Figure:
    from ...collect.store import open_store
    from ..html.figure import figure

    with open_store(store, read_only=True) as opened:
        chosen = by_name(opened, runs)
    window = (between[0] / 1e9, between[1] / 1e9) if between else None
    with open_replayed(store, *chosen) as opened:
        ids = [opened.run_id(run) for run in chosen]
        return figure(opened.con, name, ids, flow, window, dark)


def _drawn(made: Figure, suffix: str) -> bytes:
    """Draw a figure with the Vega that vl-convert brings along.

    Raises:
        BbrscopeError: Vega cannot.
    """
    import vl_convert

    try:
        if suffix == ".svg":
            return str(vl_convert.vegalite_to_svg(made.spec)).encode("utf-8")
        if suffix == ".png":
            return bytes(vl_convert.vegalite_to_png(made.spec, scale=SCALE))
        return bytes(vl_convert.vegalite_to_pdf(made.spec))
    except ValueError as error:
        raise BbrscopeError(
            f"the figure cannot be drawn: {error}", "look at it with --spec, and report it"
        ) from error


def _table(made: Figure, suffix: str) -> bytes:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.Table.from_pylist(made.rows)
    sink = pa.BufferOutputStream()
    if suffix == ".csv":
        csv.write_csv(table, sink)
    else:
        parquet.write_table(table, sink)
    return bytes(sink.getvalue())
