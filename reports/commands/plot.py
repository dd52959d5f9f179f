"""``bbrscope plot``: one chart as a figure, with the data behind it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..choose import by_name
from ..html.pages import writer
from ..options import complete_runs, gather, store_option
from ..parameter_types import TimeType
from ..text.print_table import no_formula
from ..text.screen import say

if TYPE_CHECKING:
    from ..html.charts.figure import PlottedChart

FORMATS = (".svg", ".png", ".pdf")
DATA_FORMATS = (".csv", ".parquet")
# Pixels of a PNG per pixel of the figure: sharp in print.
SCALE = 3


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a chart."""
    from ..html.charts.figure import NAMES

    return [name for name in NAMES if name.startswith(incomplete)]


@dataclass(frozen=True)
class PlotRequest:
    """Which chart of which runs to draw, and the files to write."""

    name: str
    runs: tuple[str, ...]
    store: Path
    output: Path | None
    data: Path | None
    spec: bool
    flow: int | None
    between: tuple[int, int] | None
    dark: bool
    force: bool

    def check(self) -> None:
        """Find out before the work if its result could not be written.

        Raises:
            click.UsageError: there is no such chart, nothing to make, or no such file format.
            BbrscopeError: a file is there already.
        """
        from ..html.charts.figure import NAMES

        if self.name not in NAMES:
            raise click.BadParameter(
                f"{self.name!r} is none of {', '.join(NAMES)}", param_hint="NAME"
            )
        if not (self.output or self.data or self.spec):
            raise click.UsageError("say what to make: -o FILE, --data FILE or --spec")
        if self.between is not None and self.between[0] >= self.between[1]:
            raise click.BadParameter("FROM must be before TO", param_hint="--between")
        self._check_file(self.output, FORMATS, "-o")
        self._check_file(self.data, DATA_FORMATS, "--data")

    def _check_file(self, path: Path | None, formats: tuple[str, ...], option: str) -> None:
        if path is None:
            return
        if path.suffix.lower() not in formats:
            raise click.BadParameter(
                f"{path} ends in none of {', '.join(formats)}", param_hint=option
            )
        writer.check_free(path, self.force)


def _list(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from ..html.charts.figure import NAMES

    for name, about in NAMES.items():
        say(f"{name:12} {about}")
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
@click.option(
    "--flow",
    type=int,
    help="The flow [the first that counts (view senders); in CDFs and boxes, every one].",
)
@click.option(
    "--between",
    nargs=2,
    type=TimeType(),
    metavar="FROM TO",
    help="Draw this window only, with every recorded point in it.",
)
@click.option("--dark", is_flag=True, help="For a dark background.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@gather(PlotRequest)
def command(request: PlotRequest) -> None:
    """Draw the chart NAME of RUN as a figure for a paper; of several, one above the other.

    The charts are those of `bbrscope report`, in the same colours; --list names them. No browser
    is needed. The data are those drawn: when a figure is too narrow to show every point, the
    first, last, least and largest of each of 1500 spans of time; --between keeps every point.
    The data of a distribution are its quantiles in steps of 0.25 %.

    \b
    bbrscope plot volumes v2_single_1bdp -o volumes.svg
    bbrscope plot sequence v2_single_1bdp --between 0.2s 0.6s -o startup.pdf --data startup.csv
    bbrscope plot scatter v2_single_1bdp v3_x_tlp5 -o scatter.png
    bbrscope plot rtt-cdf v2_single_1bdp v3_x_tlp5 -o rtt.svg --data rtt.csv
    bbrscope plot rates v2_single_1bdp --spec > rates.vl.json
    """
    request.check()
    chart = _figure(request)
    spec, output, data = request.spec, request.output, request.data
    if spec:
        say(json.dumps(chart.spec))
    if output:
        writer.write_bytes(output, _drawn(chart, output.suffix.lower()))
        say(f"{output}: {request.name} of {', '.join(request.runs)}", err=spec)
    if data:
        writer.write_bytes(data, _table(chart, data.suffix.lower()))
        say(f"{data}: {plural(len(chart.rows), 'row')}", err=spec)


def _figure(request: PlotRequest) -> PlottedChart:
    from ..api.opening import open
    from ..text.run_notes import say_notes

    between = request.between
    window = (between[0] / 1e9, between[1] / 1e9) if between else None
    with open(request.store) as recordings:
        runs = by_name(recordings.store, request.runs)
        recordings.store.restrict_to(runs)
        say_notes(recordings.store.con, map(recordings.store.run_id, runs))
        return recordings.figure(request.name, runs, request.flow, window, request.dark)


def _drawn(chart: PlottedChart, suffix: str) -> bytes:
    """Draw a figure with the Vega that vl-convert brings along.

    Raises:
        BbrscopeError: Vega cannot.
    """
    import vl_convert

    try:
        if suffix == ".svg":
            return str(vl_convert.vegalite_to_svg(chart.spec)).encode("utf-8")
        if suffix == ".png":
            return bytes(vl_convert.vegalite_to_png(chart.spec, scale=SCALE))
        return bytes(vl_convert.vegalite_to_pdf(chart.spec))
    except ValueError as error:
        raise BbrscopeError(
            f"the figure cannot be drawn: {error}", "look at it with --spec, and report it"
        ) from error


def _table(chart: PlottedChart, suffix: str) -> bytes:
    import pyarrow as pa
    from pyarrow import csv, parquet

    table = pa.Table.from_pylist(chart.rows)
    sink = pa.BufferOutputStream()
    if suffix == ".csv":
        # Names of runs and flows may come from strangers.
        safe = [
            {k: no_formula(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in chart.rows
        ]
        csv.write_csv(pa.Table.from_pylist(safe, table.schema), sink)
    else:
        parquet.write_table(table, sink)
    return bytes(sink.getvalue())
