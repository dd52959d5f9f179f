"""``bbrscope lake``: fill, check and tend a lake of runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..options import gather
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.lake.fan_out import Workers
    from ...analyze.lake.load_runs import Filed

lake_argument = click.argument("lake", metavar="DIR")


@dataclass(frozen=True)
class AddRequest:
    """Which bundles to add to which lake, by whom, and how."""

    lake: str
    bundles: tuple[Path, ...]
    host: str
    jobs: int | None
    cluster: str | None
    salvage: bool
    kind: str | None
    no_packets: bool


@click.group()
def command() -> None:
    """Keep thousands of runs as Parquet files, in a folder or in a bucket (s3://...).

    A lake is read like a store: give it as --store to sql, runs, report, plot, explain, diagnose,
    diff, metrics, study and fleet. Any number of hosts may add to it at once. Its tables are those
    of a store and three more: findings (what diagnose said of each run), flow_limits (what each
    limit cost each flow) and lake_runs (the manifest).

    \b
    bbrscope lake add lake fixtures/v2_x_spur fixtures/v1_x_lt
    bbrscope runs --store lake
    bbrscope sql "SELECT run, name, cost_s FROM findings JOIN runs USING (run_id)" --store lake
    bbrscope lake check lake
    """


@command.command()
@lake_argument
@click.argument(
    "bundles", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path)
)
@click.option("--host", default="unknown", show_default=True, help="File the runs under this host.")
@click.option(
    "--jobs", type=click.IntRange(1), help="Processes [one per CPU; 1 for a few bundles]."
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Let a Dask cluster do it: its scheduler's tcp://HOST:8786, or local:N for N processes.",
)
@click.option("--salvage", is_flag=True, help="Keep the whole events of damaged recordings.")
@click.option(
    "--type",
    "kind",
    type=click.Choice(["bundle", "pcap", "ss", "kernel_log", "tcp_info"]),
    help="What the files are [recognised by their content].",
)
@click.option("--no-packets", is_flag=True, help="Leave packet captures aside: much faster.")
@gather(AddRequest)
def add(request: AddRequest) -> None:
    """Load, replay, diagnose and measure bundles, and file what comes of it in the lake.

    The lake is made if it is missing. Each run is there wholly or not at all; a bundle that the
    lake has already changes nothing. One that cannot be loaded is named, and does not stop the
    others; a worker that dies is replaced, and what it had not filed is done again. Workers of a
    cluster must see bundles and lake under the same names.

    \b
    bbrscope lake add lake recordings/* --host web1
    bbrscope lake add s3://bucket/lake recordings/*      # credentials as AWS's programs find them
    bbrscope lake add /mnt/lake /mnt/recordings/* --cluster tcp://scheduler:8786
    """
    from ...analyze.lake.fan_out import file_all
    from ...analyze.lake.load_runs import AddOptions
    from ...collect.lake.lake_manifest import check_host
    from ...collect.lake.lake_place import open_place
    from ..text.progress_bar import progress

    check_host(request.host)
    open_place(request.lake, create=True).remove_abandoned()
    options = AddOptions(request.host, request.salvage, not request.no_packets, request.kind)
    counts = {"added": 0, "there already": 0, "refused": 0}
    with _workers(request) as workers, progress(len(request.bundles), "bundles") as advance:
        for filed in file_all(request.lake, request.bundles, options, workers):
            counts[_print_event(filed)] += 1
            advance(1)
    say(f"{request.lake}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    if counts["refused"]:
        raise BbrscopeError(
            f"{counts['refused']} of {plural(len(request.bundles), 'bundle')} not added,"
            " for what is said above",
            "the others are in the lake" if len(request.bundles) > counts["refused"] else "",
        )


@contextmanager
def _workers(request: AddRequest) -> Iterator[Workers]:
    from ...analyze.lake.fan_out import dask_cluster, here, processes, worthwhile

    if request.cluster is not None:
        with dask_cluster(request.cluster) as workers:
            yield workers
    else:
        jobs = request.jobs or worthwhile(request.bundles)
        yield here() if jobs == 1 else processes(jobs)


def _print_event(filed: Filed) -> str:
    """Say what became of a bundle, and return in which count it goes."""
    if filed.refused is not None:
        say(f"{filed.refused.fact}\n  {filed.refused.way_out}", err=True)
        return "refused"
    if filed.already:
        return "there already"
    agrees = "" if filed.exact else "; the replay differs from the kernel"
    sampled = filed.samples and not filed.events
    counted = plural(filed.samples, "sample") if sampled else plural(filed.events, "event")
    say(f"{filed.run}: {counted}{agrees}")
    return "added"


@command.command()
@lake_argument
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
def remove(lake: str, runs: tuple[str, ...]) -> None:
    """Remove runs with everything derived from them: all of those named, or none.

    \b
    bbrscope lake remove lake v1_x_lt
    """
    from ...collect.lake.lake_place import open_place
    from ...collect.lake.lake_upkeep import remove as remove_runs

    remove_runs(open_place(lake), runs)
    say(f"removed {', '.join(runs)}")


@command.command()
@lake_argument
def compact(lake: str) -> None:
    """Merge the files of all runs of a day and host: few large files instead of many small ones.

    Readers that are at the old files may fail meanwhile, and succeed when run again. Files that a
    killed process left over are deleted, too, once they are an hour old.

    \b
    bbrscope lake compact lake
    """
    from ...collect.lake.lake_place import open_place
    from ...collect.lake.lake_upkeep import compact as compact_lake

    groups = 0
    for group, runs in compact_lake(open_place(lake)):
        say(f"{group}: {plural(runs, 'run')}")
        groups += 1
    say(f"{lake}: {plural(groups, 'group')} merged")


@command.command()
@lake_argument
@click.option("--read", is_flag=True, help="Read every file, too, not its size only.")
def check(lake: str, read: bool) -> None:
    """Say what is wrong in a lake: files missing, damaged, or of no run. Exit status 1 if any is.

    \b
    bbrscope lake check lake
    bbrscope lake check s3://bucket/lake --read
    """
    from ...collect.lake.lake_place import open_place
    from ...collect.lake.lake_upkeep import check as check_lake

    faults = list(check_lake(open_place(lake), read))
    for fault in faults:
        say(f"{fault.what}\n  {fault.way_out.replace('DIR', lake)}")
    if faults:
        raise BbrscopeError(f"{lake}: {plural(len(faults), 'fault')}", "")
    say(f"{lake}: nothing is wrong")
