"""``bbrscope export``: runs in the formats of other tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from ...probes.base.plurals import plural
from ..html.pages import writer
from ..options import gather, names_option, runs_argument, store_option
from ..parameter_types import TimeType
from ..text.screen import say

if TYPE_CHECKING:
    from ..exports.export_scope import ExportScope

# Formats, and what each is for.
FORMATS = {
    "parquet": "tables and views for DuckDB, Spark and polars, in a folder",
    "pcapng": "the capture with decisions as comments on packets, for Wireshark",
    "perfetto": "phases, decisions and every rate over time, for ui.perfetto.dev",
    "qlog": "flows as events of qlog, for qvis; .sqlog: as a JSON text sequence",
    "xplot": "a flow's time-sequence graph as tcptrace draws it, with windows and phases",
    "openmetrics": "the summary as metrics, for a CI's dashboards",
}
ONE_RUN = ("pcapng", "xplot")
# Options that only some formats have.
OWN_OPTIONS = {
    "chosen": ("--only", ("parquet",)),
    "views": ("--views", ("parquet",)),
    "capture": ("--capture", ("pcapng",)),
    "dialect": ("--dialect", ("qlog",)),
}


@dataclass(frozen=True)
class ExportRequest:
    """What to export of which runs, as what; times are in ns on the run's clock."""

    runs: tuple[str, ...]
    store: Path
    file_format: str
    output: Path
    flow: int | None
    between: tuple[int, int] | None
    names: str
    everything: bool
    capture: Path | None
    dialect: str | None
    chosen: tuple[str, ...]
    views: bool
    force: bool

    def check(self) -> None:
        """See that the options fit the format and each other.

        Raises:
            click.UsageError: they do not.
        """
        for name, (option, formats) in OWN_OPTIONS.items():
            if getattr(self, name) and self.file_format not in formats:
                raise click.UsageError(f"{option} is for --format {' or '.join(formats)}")
        if self.between is not None and self.between[0] > self.between[1]:
            raise click.UsageError("--between FROM TO: FROM is after TO")
        if self.file_format == "parquet":
            if self.flow or self.between or self.everything or self.names != "kernel":
                raise click.UsageError("parquet has whole runs; bbrscope sql selects among rows")
        elif not self.runs:
            raise click.UsageError("name the run: bbrscope export RUN ...")
        elif len(self.runs) > 1 and self.file_format in ONE_RUN:
            raise click.UsageError(f"{self.file_format} is of one run")


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete names of tables and views."""
    from ...analyze.views.parquet import exported

    return [name for part in exported() for name in part if name.startswith(incomplete)]


@click.command()
@runs_argument
@store_option
@click.option(
    "--format",
    "file_format",
    type=click.Choice(list(FORMATS)),
    required=True,
    help="; ".join(f"{name}: {what}" for name, what in FORMATS.items()) + ".",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File to write; for parquet the folder to make.",
)
@click.option("--flow", type=click.IntRange(1), help="One flow [all that carry data].")
@click.option(
    "--between", type=TimeType(), nargs=2, metavar="FROM TO", help="Only this time, as in 12s 14s."
)
@names_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every decision: those that each ACK takes about cwnd and extra_acked, and those to change"
    " nothing, too.",
)
@click.option(
    "--capture",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="pcapng: the run's bundle, or its capture: the store does not keep the packets.",
)
@click.option(
    "--dialect",
    type=click.Choice(["current", "0.3"]),
    help="qlog: event names of the current drafts, or of qlog 0.3, as qvis reads them.  [default:"
    " current]",
)
@click.option(
    "--only",
    "chosen",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names,
    help="parquet: this table or view only. Repeatable. [all tables, no views]",
)
@click.option("--views", is_flag=True, help="parquet: the views, too, with their results.")
@click.option("--force", is_flag=True, help="Overwrite FILE, or replace an earlier export.")
@gather(ExportRequest)
def command(request: ExportRequest) -> None:
    """Write runs in the formats of other tools.

    What is written is what `bbrscope explain` tells and `bbrscope schema` lists, as each tool shows
    it. It is written aside and then renamed: FILE is whole or not there. reports/exports has a page
    for each format, with what its tool shows.

    \b
    bbrscope export --format parquet -o lab
    bbrscope export monday tuesday --format parquet -o lab --only metrics_by_second
    bbrscope export v2_single_1bdp --format pcapng --capture fixtures/v2_single_1bdp -o story.pcapng
    tshark -r story.pcapng -Y 'frame.comment contains "inflight_hi"'
    """
    request.check()
    if request.file_format == "parquet":
        _parquet(request)
        return
    inputs = [request.capture] if request.capture else []
    writer.check_free(request.output, request.force, *inputs)
    from ..api.replayed import open_replayed
    from ..exports.export_scope import scope_of
    from ..text.run_notes import say_notes

    with open_replayed(request.store, *request.runs) as opened:
        scopes = [
            scope_of(opened, run, request.flow, request.between, request.names, request.everything)
            for run in request.runs
        ]
        with writer.written_aside(request.output) as file:
            said = _WRITERS[request.file_format](request, scopes, file)
        say_notes(opened.con, [scope.run_id for scope in scopes])
    say(f"{request.output}: {said}")


def _pcapng(request: ExportRequest, scopes: Sequence[ExportScope], file: IO[bytes]) -> str:
    from ..exports import pcapng
    from ..text.progress_bar import progress

    (scope,) = scopes
    with progress(pcapng.frames_of(scope), "exporting") as advance:
        done = pcapng.write(scope, request.capture, file, advance)
    said = f"{plural(done.packets, 'packet')}, {plural(done.comments, 'comment')}"
    if done.without_packet:
        early = plural(done.without_packet, "decision was", "decisions were")
        said += f"; {early} before the first packet"
    if done.secrets:
        blocks = plural(done.secrets, "block")
        said += f"; it holds the capture's {blocks} of decryption secrets"
    return said


def _perfetto(request: ExportRequest, scopes: Sequence[ExportScope], file: IO[bytes]) -> str:
    from ..exports import perfetto
    from ..text.progress_bar import progress

    with progress(sum(len(scope.flows) for scope in scopes), "exporting") as advance:
        packets = perfetto.write(scopes, file, advance)
    return f"{plural(packets, 'packet')}; open it in ui.perfetto.dev"


def _qlog(request: ExportRequest, scopes: Sequence[ExportScope], file: IO[bytes]) -> str:
    from ..exports import qlog

    sequence = request.output.suffix == ".sqlog"
    return plural(qlog.write(scopes, request.dialect or qlog.CURRENT, sequence, file), "event")


def _xplot(request: ExportRequest, scopes: Sequence[ExportScope], file: IO[bytes]) -> str:
    from ..exports import xplot

    (scope,) = scopes
    return f"{plural(xplot.write(scope, file), 'command')}; show it with xplot"


def _openmetrics(request: ExportRequest, scopes: Sequence[ExportScope], file: IO[bytes]) -> str:
    from ..exports import openmetrics_snapshot

    return plural(openmetrics_snapshot.write(scopes, file), "sample")


_WRITERS: dict[str, Callable[[ExportRequest, Sequence[ExportScope], IO[bytes]], str]] = {
    "pcapng": _pcapng,
    "perfetto": _perfetto,
    "qlog": _qlog,
    "xplot": _xplot,
    "openmetrics": _openmetrics,
}


def _parquet(request: ExportRequest) -> None:
    from ...analyze.views.parquet import export, exported, partial
    from ...analyze.views.store_with_views import open_store
    from ..text.progress_bar import progress
    from ..text.run_notes import say_notes

    tables, all_views = exported()
    names = list(request.chosen) or tables
    if request.views:
        names += [name for name in all_views if name not in names]
    _require_known(names, [*tables, *all_views])
    target = request.output
    with open_store(request.store, read_only=True, output=partial(target)) as opened:
        run_ids = [opened.run_id(name) for name in request.runs or opened.runs()]
        with progress(len(names), "exporting") as advance:
            counts = export(opened.con, target, run_ids, names, request.force, advance)
        say_notes(opened.con, run_ids)
    rows = sum(counts.values())
    say(
        f"{target}: {plural(len(counts), 'table')} of {plural(len(run_ids), 'run')},"
        f" {plural(rows, 'row')}"
    )


def _require_known(names: Sequence[str], known: Sequence[str]) -> None:
    import difflib

    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            way = f"near: {', '.join(near)}" if near else "`bbrscope schema` lists them"
            raise click.BadParameter(f"no table or view {name!r}; {way}", param_hint="--only")
