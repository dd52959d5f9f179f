"""``bbrscope lab``: repeat the experiments of the papers on real kernels."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from ...probes.base.errors import ScenarioError
from ..lab.lab_request import LabRequest
from ..options import gather, plain_words, written_store_option
from ..text.screen import say


def complete_scenarios(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the catalogue."""
    from ...collect.lab import scenario

    return [name for name in scenario.names() if name.startswith(incomplete)]


def complete_settings(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the names of the scenario's parameters."""
    from ...collect.lab import scenario

    # An option without its value ends click's reading, before arguments have their names.
    for word in (ctx.params.get("name"), *ctx.args):
        with suppress(ScenarioError):
            known = scenario.load(word or "").params
            break
    else:
        return []
    return plain_words((f"{name}=" for name in known), incomplete)


@click.group()
def command() -> None:
    """Repeat the experiments of the papers on real kernels.

    A scenario is a path, flows and what changes, with the lists that the paper went through. The
    testbed is made of network namespaces and removed afterwards; every run is recorded by the
    same machinery as `bbrscope collect` and ends in the store.

    \b
    Examples:
      bbrscope lab list
      sudo bbrscope lab run song-single-buffer --quick
      bbrscope lab run song-single-buffer --quick --vm      (no root: in a QEMU guest)
      bbrscope lab run song-single-buffer --set buffer=0.5bdp,1bdp --cc bbr --reps 3
    """


@command.command("list")
@click.argument("name", required=False, shell_complete=complete_scenarios)
def list_scenarios(name: str | None) -> None:
    """List the catalogue with the time that each scenario takes, or tell all about one.

    Times are estimates for one run after the other: in full on a host, and quick on a host and in
    a guest (--vm) that has a core for itself.
    """
    from ...collect.lab import scenario
    from ..text import lab_text

    if name is not None:
        say(lab_text.description(scenario.load(name)))
        return
    say(lab_text.HEAD)
    for each in scenario.names():
        say(lab_text.catalogue_line(scenario.load(each)))


@command.command("run")
@click.argument("name", metavar="SCENARIO", shell_complete=complete_scenarios)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE,...",
    shell_complete=complete_settings,
    help="Set a parameter of `lab list SCENARIO`; several values make as many runs.",
)
@click.option("--cc", help="Congestion controls: short for --set cc=...")
@click.option("--reps", type=click.IntRange(1, 1000), help="Repetitions [the scenario's].")
@click.option("--quick", is_flag=True, help="The scenario's short form, which takes minutes.")
@click.option("--vm", is_flag=True, help="In QEMU guests with virtual time; needs no root.")
@click.option(
    "--kernel",
    type=click.Path(path_type=Path, exists=True),
    help="With --vm: a bzImage, or a folder with boot/vmlinuz-* [Debian's own].",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=1, help="With --vm or --engine sim: runs at once."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lab-runs"),
    show_default=True,
    help="Where the run bundles go.",
)
@click.option(
    "--no-events",
    is_flag=True,
    help="Record no kernel events: in a guest, a run then takes a third of the time.",
)
@click.option("--no-packets", is_flag=True, help="Do not capture packets at the bottleneck.")
@click.option(
    "--engine",
    type=click.Choice(["kernel", "sim"]),
    default="kernel",
    show_default=True,
    help="sim: simulate (closed loop); needs no root and no guest.",
)
@click.option("--inside", is_flag=True, hidden=True, help="Within a guest: record, nothing else.")
@click.option("--points", hidden=True, help="Only the points with these numbers.")
@written_store_option
@gather(LabRequest)
def run_scenario(
    request: LabRequest,
    vm: bool,
    kernel: Path | None,
    jobs: int,
    engine: str,
    inside: bool,
    points: str | None,
) -> None:
    """Make the runs of a scenario: in the catalogue, or a .toml file of your own.

    A run that is in the output folder or in the store is not made again: interrupt with Ctrl-C,
    and go on later with the same command. `bbrscope study SCENARIO` judges what there is.
    Without events (--no-events) nothing can be replayed or explained. That is enough for grids
    of many short runs, which are judged by iperf3's numbers alone.

    \b
    bbrscope lab run song-single-buffer --quick --vm --jobs 2
    sudo bbrscope lab run cao-cliff --set loss=0,1%,5% --cc bbr,cubic --reps 1
    sudo bbrscope lab run ./mine.toml
    bbrscope lab run song-single-buffer --engine sim --cc bbr,bbr2,bbr3 --jobs 2
    bbrscope lab run lanigan-single --engine sim --cc bbr-prime,delay-bbr --no-events
    """
    if kernel is not None and not vm:
        raise click.UsageError("--kernel goes with --vm: a host has the kernel that it runs")
    if engine == "sim":
        if vm:
            raise click.UsageError("--engine sim needs no guest: leave --vm out")
        from ..lab import lab_simulated

        lab_simulated.make_simulated(request, jobs)
        return
    from ..lab import lab_runs

    if inside:
        lab_runs.make_inside_guest(request, points)
    elif vm:
        lab_runs.make_in_guests(request, kernel, jobs)
    else:
        lab_runs.make_on_host(request)


@command.command("clean")
def clean() -> None:
    """Remove what a lab that was killed left behind: its namespaces and what runs in them."""
    from ...collect.lab import host, testbed
    from ...collect.lab import lab_run as run

    host.require_root(in_guest=False)
    with run.exclusively():
        removed = testbed.clean()
    say(f"removed {', '.join(removed)}" if removed else "nothing to remove")
