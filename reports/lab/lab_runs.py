"""Make the lab's runs, on this machine or in guests, and load them into a store.

A guest has Python and click only: what opens stores is imported where one is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.lab import host, scenario, vm
from ...collect.lab import lab_run as run
from ...probes.base.errors import HostError
from ...probes.base.plurals import plural
from ..text.print_table import printable
from ..text.screen import say

if TYPE_CHECKING:
    from ...collect.lab.lab_points import LabPoint
    from ...collect.lab.scenario import Scenario
    from .lab_request import LabRequest

NumberedPoints = list[tuple[int, "LabPoint"]]
_say_aside = partial(say, err=True)


def make_on_host(request: LabRequest) -> None:
    """Make on this machine what is not made yet, and load it.

    Raises:
        HostError: the machine cannot make any run, or some failed.
    """
    chosen = request.scenario()
    host.require_root()
    names = os.uname()
    kernel = f"{names.release} {names.version}"
    missing, ready = missing_points(chosen, kernel, request.output, request.store)
    if missing:
        check_places(request.output, request.store)
        points = [point for _, point in missing]
        _make(request, points, ready, "host", lambda bundle: load(bundle, request.store))


def make_inside_guest(request: LabRequest, numbers: str | None) -> None:
    """Make the points with these numbers ("0,3"), or all, in a guest, and load nothing.

    Raises:
        HostError: the guest cannot make any run, or some failed.
    """
    points = list(scenario.points(request.scenario()))
    request.output.mkdir(parents=True, exist_ok=True)
    if numbers is not None:
        points = [points[int(number)] for number in numbers.split(",")]
    _make(request, points, 0, "vm", lambda _bundle: None)


def make_in_guests(request: LabRequest, kernel: Path | None, jobs: int) -> None:
    """Make in guests, `jobs` at once, what is not made yet, and load it.

    Raises:
        HostError: a run could not be made, or the kernel lacks a congestion control.
    """
    chosen = request.scenario()
    vm.take_over(request.output)
    version = vm.version(kernel)
    missing, ready = missing_points(chosen, version, request.output, request.store)
    available = vm.congestion_controls(kernel)
    if available is not None:
        points = [point for _, point in missing]
        runnable = _with_controls(points, request.names_controls, ready, available)
        missing = [each for each in missing if each[1] in runnable]
    if not missing:
        return
    check_places(request.output, request.store)
    problems = vm.run(
        missing,
        request.guest_words(),
        request.own_file,
        kernel,
        jobs,
        request.output,
        _say_aside,
        lambda bundle: load(bundle, request.store),
    )
    if problems:
        raise HostError(problems[0], "the same command goes on with what is missing")


def missing_points(
    chosen: Scenario, kernel: str, output: Path, store: Path
) -> tuple[NumberedPoints, int]:
    """Return the points whose runs are neither in the store nor in the output folder.

    What is only in the folder is loaded. The second value counts the runs that are there.

    Raises:
        HostError: a run that is in the store was made by another build of this kernel release
            (uname -rv differs).
    """
    kernels = _stored_kernels(store)
    missing, unloaded, ready = [], list[Path](), 0
    for number, point in enumerate(scenario.points(chosen)):
        name = point.run_name(kernel.split(" ")[0])
        if name in kernels:
            _require_same_kernel(name, kernels[name], kernel)
            ready += 1
        elif run.finished(output / name):
            unloaded.append(output / name)
            ready += 1
        else:
            missing.append((number, point))
    if unloaded:
        load_all(unloaded, store)
    if ready:
        _say_aside(f"there already: {ready} of {plural(ready + len(missing), 'run')}")
    return missing, ready


def _stored_kernels(store: Path) -> dict[str, str | None]:
    """Return the kernel of each run in the store, by `uname -rv`."""
    from ...analyze.views.store_with_views import open_store

    if not store.exists():
        return {}
    with open_store(store, read_only=True) as opened:
        return dict(opened.con.execute("SELECT run, kernel FROM runs").fetchall())


def _require_same_kernel(name: str, stored: str | None, kernel: str) -> None:
    if stored and stored != kernel:
        raise HostError(
            f"{name} is of another kernel of the same release: {stored}, not {kernel}",
            "keep them apart with --store and -o, or build kernels with a LOCALVERSION",
        )


def check_places(output: Path, store: Path) -> None:
    """Find out before the first run, not after it, if it cannot be kept.

    Raises:
        HostError: the folder cannot be made.
        StoreError: the store cannot be written.
    """
    from ...analyze.views.store_with_views import open_for_loading

    with open_for_loading(store):
        pass
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"cannot make the folder {output}: {error.strerror}", "name another with -o"
        ) from error


def _controls(points: list[LabPoint]) -> list[str]:
    return sorted({flow.cc for point in points for flow in point.flows})


def _with_controls(
    points: list[LabPoint], named: bool, ready: int, have: Collection[str]
) -> list[LabPoint]:
    """Leave out runs that need a congestion control which the kernel lacks.

    Raises:
        HostError: the user named it, or there are no other runs, made or to make.
    """
    lacking = [cc for cc in _controls(points) if cc not in have]
    runnable = [point for point in points if not any(flow.cc in lacking for flow in point.flows)]
    if lacking and (named or not (runnable or ready)):
        raise HostError(
            f"this kernel has no congestion control {' or '.join(lacking)}; "
            f"it has {', '.join(sorted(have))}",
            "choose with --cc, or boot a kernel that has it: --vm --kernel",
        )
    if lacking:
        say(
            f"left out {len(points) - len(runnable)} of {plural(len(points), 'run')}: "
            f"this kernel has no {' or '.join(lacking)}",
            err=True,
        )
    return runnable


def _recordable(request: LabRequest, points: list[LabPoint], ready: int) -> list[LabPoint]:
    """Return those of the points that this machine can make.

    Raises:
        HostError: it cannot make any.
    """
    host.require({part for point in points for part in (point.path.shaper, point.path.aqm)})
    if any(flow.kind == "on-off" for point in points for flow in point.flows):
        host.require_pauses()
    available = host.congestion_controls(_controls(points))
    return _with_controls(points, request.names_controls, ready, available)


def _make(
    request: LabRequest,
    points: list[LabPoint],
    ready: int,
    place: str,
    use: Callable[[Path], None],
) -> None:
    """Make these runs on this machine, and use the bundle of each.

    Raises:
        HostError: the machine cannot make any, or some failed.
    """
    with run.exclusively() as before:
        wanted = _recordable(request, points, ready)
        failed = _record_each(request, wanted, place, before, use) if wanted else 0
    if failed:
        raise HostError(f"{failed} of {plural(len(wanted), 'run')} could not be made", "see above")


def _record_each(
    request: LabRequest,
    points: list[LabPoint],
    place: str,
    modules_before: set[str],
    use: Callable[[Path], None],
) -> int:
    """Record run after run; say which failed and go on. Return how many did."""
    limit_bps = run.capacity(points[0])
    _say_aside(f"this machine forwards {limit_bps / 1e6:.0f} Mbit/s")
    failed = 0
    for number, point in enumerate(points, 1):
        _say_aside(f"{number}/{len(points)} {point.label}, repetition {point.rep}")
        try:
            run.refuse_beyond(point, limit_bps)
            host.hold_only(_controls([point]), modules_before)
            bundle = run.one(point, place, request.captures, request.output, _say_aside)
        except HostError as error:
            failed += 1
            _say_aside(f"  failed: {error.fact}")
        else:
            use(bundle)
    return failed


def load(bundle: Path, store: Path) -> None:
    """Ingest a run and say what it reached."""
    load_all([bundle], store)


def load_all(bundles: Sequence[Path], store: Path, said: set[str] | None = None) -> None:
    """Ingest runs, the store opened once for all, and say of each what it reached.

    Of simulated ones also how far they hold; what is in `said` is not said again, and added to it.
    """
    from ...analyze.story.completeness import simulated_of_many
    from ...analyze.views.store_with_views import open_for_loading
    from ...collect.ingest.ingest import ingest

    said, run_ids = set() if said is None else said, []
    with open_for_loading(store) as opened:
        for bundle in bundles:
            outcome = ingest(opened, bundle)
            run_ids.append(outcome.run_id)
            rates = opened.con.execute(
                "SELECT cc, goodput_bps FROM lab_flows WHERE run_id = ? ORDER BY flow_no LIMIT 8",
                [outcome.run_id],
            ).fetchall()
            shown = ", ".join(f"{cc} {(rate or 0) / 1e6:.2f} Mbit/s" for cc, rate in rates)
            say(f"{outcome.run}: {shown}")
        for holds in simulated_of_many(opened.con, run_ids).values():
            if holds not in said:
                _say_aside(f"simulated; fidelity: {printable(holds)}")
                said.add(holds)
