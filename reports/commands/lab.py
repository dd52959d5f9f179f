"""``bbrscope lab``: repeat the experiments of the papers on real kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.errors import HostError, ScenarioError
from ..options import store_option

if TYPE_CHECKING:
    from ...collect.lab.run import Kept
    from ...collect.lab.scenario import Point, Scenario


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
    return [f"{name}=" for name in known if name.startswith(incomplete)]


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

    if name is not None:
        click.echo(_about(scenario.load(name)))
        return
    click.echo(f"{'scenario':28} {'runs':>6} {'full':>8} {'quick':>8} {'in a guest':>11}  source")
    for each in scenario.names():
        click.echo(_line(scenario.load(each)))


def _line(loaded: Scenario) -> str:
    from ...collect.lab import estimate, scenario

    full, quick = list(scenario.points(loaded)), list(scenario.points(scenario.quick(loaded)))
    times = [
        estimate.words(estimate.total_s(full, vm=False)),
        estimate.words(estimate.total_s(quick, vm=False)),
        estimate.words(estimate.total_s(quick, vm=True)),
    ]
    return (
        f"{loaded.name:28} {len(full):6} {times[0]:>8} {times[1]:>8} {times[2]:>11}  "
        f"{loaded.source}: {loaded.title}"
    )


def _about(loaded: Scenario) -> str:
    from ...collect.lab import scenario
    from ..html.prose import plural

    lines = [f"{loaded.name}: {loaded.title} ({loaded.source})"]
    lines += [f"  {loaded.about}"] if loaded.about else []
    small = scenario.quick(loaded)
    shown = _values(loaded)
    lines.append(f"full, {plural(sum(1 for _ in scenario.points(loaded)), 'run')}:")
    lines += [f"  {name:12} {value}" for name, value in shown.items()]
    lines.append(
        f"quick, {plural(sum(1 for _ in scenario.points(small)), 'run')}, where it differs:"
    )
    changed = {name: value for name, value in _values(small).items() if shown[name] != value}
    lines += [f"  {name:12} {value}" for name, value in changed.items()]
    lines += ["claims:", *(f"  {claim.text} ({claim.source})" for claim in loaded.claims)]
    return "\n".join(lines)


def _values(loaded: Scenario) -> dict[str, str]:
    """Return every parameter with its value, or the values that it goes through."""
    axes = {name: ", ".join(values) for name, values in loaded.sweep.items()}
    return {**loaded.params, **axes, "reps": str(loaded.reps)}


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
@click.option("--quick", is_flag=True, help="The form that ends in minutes.")
@click.option("--vm", is_flag=True, help="In QEMU guests with virtual time; needs no root.")
@click.option(
    "--kernel",
    type=click.Path(path_type=Path, exists=True),
    help="With --vm: a bzImage, or a folder with boot/vmlinuz-* [Debian's own].",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=1, help="With --vm: guests at once.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lab-runs"),
    show_default=True,
    help="Where the run bundles go.",
)
@click.option(
    "--no-events", is_flag=True, help="Record no kernel events: in a guest, a third of the time."
)
@click.option("--no-packets", is_flag=True, help="Do not capture packets at the bottleneck.")
@click.option("--inside", is_flag=True, hidden=True, help="Within a guest: record, nothing else.")
@click.option("--points", hidden=True, help="Only the points with these numbers.")
@store_option
def run_scenario(
    name: str,
    settings: tuple[str, ...],
    cc: str | None,
    reps: int | None,
    quick: bool,
    vm: bool,
    kernel: Path | None,
    jobs: int,
    output: Path,
    no_events: bool,
    no_packets: bool,
    inside: bool,
    points: str | None,
    store: Path,
) -> None:
    """Make the runs of a scenario: in the catalogue, or a .toml file of your own.

    A run that is in the output folder or in the store is not made again: interrupt with Ctrl-C,
    and go on later with the same command. `bbrscope study SCENARIO` judges what there is.
    Without events (--no-events) nothing can be replayed or explained, but grids of many short runs
    are judged by iperf3's numbers alone.

    \b
    bbrscope lab run song-single-buffer --quick --vm --jobs 2
    sudo bbrscope lab run cao-cliff --set loss=0,1%,5% --cc bbr,cubic --reps 1
    sudo bbrscope lab run ./mine.toml
    """
    if kernel is not None and not vm:
        raise click.UsageError("--kernel goes with --vm: a host has the kernel that it runs")
    from ...collect.lab.run import Kept

    chosen = _chosen(name, settings, cc, reps, quick)
    kept = Kept(events=not no_events, packets=not no_packets)
    named = cc is not None or any(setting.startswith("cc=") for setting in settings)
    if inside:
        _inside(chosen, named, points, kept, output)
    elif vm:
        own_file = Path(name) if name.endswith(".toml") else None
        words = _words(name, settings, cc, reps, quick, kept)
        _in_guests(chosen, named, words, own_file, kernel, jobs, output, store)
    else:
        _on_host(chosen, named, kept, output, store)


@command.command("clean")
def clean() -> None:
    """Remove what a lab that was killed left behind: its namespaces and what runs in them."""
    from ...collect.lab import host, run, testbed

    host.require_root(in_guest=False)
    with run.alone():
        found = testbed.clean()
    click.echo(f"removed {', '.join(found)}" if found else "nothing to remove")


def _chosen(
    name: str, settings: tuple[str, ...], cc: str | None, reps: int | None, quick: bool
) -> Scenario:
    from dataclasses import replace

    from ...collect.lab import scenario

    loaded = scenario.load(name)
    loaded = scenario.quick(loaded) if quick else loaded
    values = {}
    for setting in (*settings, *([f"cc={cc}"] if cc is not None else [])):
        key, equals, text = setting.partition("=")
        if not equals or not text:
            raise ScenarioError(
                f"{setting!r} sets nothing", "write --set rate=20mbit or --cc bbr,cubic"
            )
        values[key] = text.split(",")
    loaded = scenario.override(loaded, values)
    return loaded if reps is None else replace(loaded, reps=reps)


def _words(
    name: str,
    settings: tuple[str, ...],
    cc: str | None,
    reps: int | None,
    quick: bool,
    kept: Kept,
) -> list[str]:
    """Return the arguments that mean the same runs inside a guest."""
    words = [f"/out/{Path(name).name}" if name.endswith(".toml") else name]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--cc", cc] if cc is not None else []
    words += ["--reps", str(reps)] if reps else []
    words += ["--quick"] * quick
    return words + ["--no-events"] * (not kept.events) + ["--no-packets"] * (not kept.packets)


def _on_host(chosen: Scenario, named: bool, kept: Kept, output: Path, store: Path) -> None:
    """Make on this machine what is not made yet, and load it."""
    from ...collect.lab import host

    host.require_root()
    host_kernel = os.uname()
    missing, ready = _missing(chosen, f"{host_kernel.release} {host_kernel.version}", output, store)
    wanted = [point for _, point in missing]
    if wanted:
        _check_places(output, store)
        _make(wanted, named, ready, "host", kept, output, lambda run: _load(run, store))


def _in_guests(
    chosen: Scenario,
    named: bool,
    words: list[str],
    own_file: Path | None,
    kernel: Path | None,
    jobs: int,
    output: Path,
    store: Path,
) -> None:
    """Make in guests what is not made yet, and load it."""
    from ...collect.lab import vm

    vm.take_over(output)
    missing, ready = _missing(chosen, vm.version(kernel), output, store)
    have = vm.congestion_controls(kernel)
    if have is not None:
        kept = _with_controls([point for _, point in missing], named, ready, have)
        missing = [each for each in missing if each[1] in kept]
    if not missing:
        return
    _check_places(output, store)
    problems = vm.run(
        missing,
        words,
        own_file,
        kernel,
        jobs,
        output,
        lambda text: click.echo(text, err=True),
        lambda bundle: _load(bundle, store),
    )
    if problems:
        raise HostError(problems[0], "the same command goes on with what is missing")


def _inside(chosen: Scenario, named: bool, numbers: str | None, kept: Kept, output: Path) -> None:
    """Make the points with these numbers, or all, in a guest."""
    from ...collect.lab import scenario

    output.mkdir(parents=True, exist_ok=True)
    wanted = list(scenario.points(chosen))
    if numbers is not None:
        wanted = [wanted[int(number)] for number in numbers.split(",")]
    _make(wanted, named, 0, "vm", kept, output, lambda _bundle: None)


def _missing(
    chosen: Scenario, kernel: str, output: Path, store: Path
) -> tuple[list[tuple[int, Point]], int]:
    """Return the points whose runs are neither in the store nor in the output folder.

    What is in the folder alone is loaded. The second value counts the runs that are there.

    Raises:
        HostError: one that is there is of another kernel of the same release, by uname -rv.
    """
    from ...collect.lab import run, scenario
    from ...collect.store import open_store

    stored: dict[str, str | None] = {}
    if store.exists():
        with open_store(store, read_only=True) as opened:
            stored = dict(opened.con.execute("SELECT run, kernel FROM runs").fetchall())
    missing, ready = [], 0
    for number, point in enumerate(scenario.points(chosen)):
        name = point.run_name(kernel.split(" ")[0])
        if name in stored:
            if (made := stored[name]) and made != kernel:
                raise HostError(
                    f"{name} is of another kernel of the same release: {made}, not {kernel}",
                    "keep them apart with --store and -o, or build kernels with a LOCALVERSION",
                )
            ready += 1
        elif run.finished(output / name):
            _load(output / name, store)
            ready += 1
        else:
            missing.append((number, point))
    if ready:
        click.echo(f"{ready} of {ready + len(missing)} runs are there already", err=True)
    return missing, ready


def _check_places(output: Path, store: Path) -> None:
    """Find out before the first run, not after it, if it cannot be kept.

    Raises:
        HostError: the folder cannot be made.
        StoreError: the store cannot be written.
    """
    from ...collect.store import open_for_loading

    with open_for_loading(store):
        pass
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"cannot make the folder {output}: {error.strerror}", "name another with -o"
        ) from error


def _controls(points: list[Point]) -> list[str]:
    return sorted({flow.cc for point in points for flow in point.flows})


def _with_controls(
    points: list[Point], named: bool, ready: int, have: Collection[str]
) -> list[Point]:
    """Leave out runs that need a congestion control which the kernel lacks.

    Raises:
        HostError: the user named it, or there are no other runs, made or to make.
    """
    lacking = [cc for cc in _controls(points) if cc not in have]
    kept = [point for point in points if not any(flow.cc in lacking for flow in point.flows)]
    if lacking and (named or not (kept or ready)):
        raise HostError(
            f"this kernel has no congestion control {' or '.join(lacking)}; "
            f"it has {', '.join(sorted(have))}",
            "choose with --cc, or boot a kernel that has it: --vm --kernel",
        )
    if lacking:
        click.echo(
            f"left out {len(points) - len(kept)} of {len(points)} runs: "
            f"this kernel has no {' or '.join(lacking)}",
            err=True,
        )
    return kept


def _make(
    points: list[Point],
    named: bool,
    ready: int,
    place: str,
    kept: Kept,
    output: Path,
    done: Callable[[Path], None],
) -> None:
    """Make these runs on this machine; those that fail are told, and the others go on.

    Raises:
        HostError: the machine cannot make any, or some failed.
    """
    from ...collect.lab import host, run

    def say(text: str) -> None:
        click.echo(text, err=True)

    failed = 0
    with run.alone() as before:
        host.require({part for point in points for part in (point.path.shaper, point.path.aqm)})
        if any(flow.kind == "on-off" for point in points for flow in point.flows):
            host.require_pauses()
        wanted = _with_controls(points, named, ready, host.congestion_controls(_controls(points)))
        if not wanted:
            return
        limit = run.capacity(wanted[0])
        say(f"this machine forwards {limit / 1e6:.0f} Mbit/s")
        for number, point in enumerate(wanted, 1):
            say(f"{number}/{len(wanted)} {point.label}, repetition {point.rep}")
            try:
                run.refuse_beyond(point, limit)
                host.hold_only(_controls([point]), before)
                bundle = run.one(point, place, kept, output, say)
            except HostError as error:
                failed += 1
                say(f"  failed: {error.fact}")
                continue
            done(bundle)
    if failed:
        raise HostError(f"{failed} of {len(wanted)} runs could not be made", "see above")


def _load(bundle: Path, store: Path) -> None:
    """Ingest a run and say what it reached."""
    from ...collect.ingest import ingest
    from ...collect.store import open_for_loading

    with open_for_loading(store) as opened:
        outcome = ingest(opened, bundle)
        rates = opened.con.execute(
            "SELECT cc, goodput_bps FROM lab_flows WHERE run_id = ? ORDER BY flow_no LIMIT 8",
            [outcome.run_id],
        ).fetchall()
    shown = ", ".join(f"{cc} {(rate or 0) / 1e6:.2f} Mbit/s" for cc, rate in rates)
    click.echo(f"{outcome.run}: {shown}")
