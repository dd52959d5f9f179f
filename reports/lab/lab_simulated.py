"""Make the lab's runs in the closed loop instead of on kernels, and load them into a store."""

from __future__ import annotations

from concurrent.futures import as_completed
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from ...collect.lab.interrupt import in_order
from ...probes.base.errors import BbrscopeError, HostError
from ...probes.base.plurals import plural
from ...probes.base.worker_pool import worker_pool
from ..text.screen import say
from .lab_runs import check_places, load_all, missing_points

if TYPE_CHECKING:
    from ...collect.lab.lab_points import LabPoint
    from .lab_request import LabRequest

# What stands where other runs have `uname -rv`; its first word ends the runs' names.
KERNEL = "sim bbrscope"
# What is simulated but not loaded yet when the lab ends, its next run loads.
_LOAD_EVERY_S = 10
_say_aside = partial(say, err=True)


def make_simulated(request: LabRequest, jobs: int) -> None:
    """Simulate what is not made yet, `jobs` runs at once, and load it.

    Raises:
        HostError: some runs could not be simulated.
        InterruptedLabError: a signal came; runs that are simulated are kept.
    """
    missing, _ready = missing_points(request.scenario(), KERNEL, request.output, request.store)
    check_places(request.output, request.store)
    failed, waiting, loaded_at, said = 0, list[Path](), monotonic(), set[str]()
    with in_order(), worker_pool(jobs) as pool:
        running = {
            pool.submit(_simulate, point, request.output, request.no_events): point
            for _, point in missing
        }
        try:
            for number, done in enumerate(as_completed(running), 1):
                point = running[done]
                _say_aside(f"{number}/{len(missing)} {point.label}, repetition {point.rep}")
                try:
                    folder, note = done.result()
                    waiting.append(folder)
                    if note:
                        _say_aside(f"  {note}")
                except BbrscopeError as error:
                    failed += 1
                    _say_aside(f"  failed: {error.fact}\n    {error.way_out}")
                if waiting and (number == len(missing) or monotonic() - loaded_at > _LOAD_EVERY_S):
                    load_all(waiting, request.store, said)
                    waiting, loaded_at = [], monotonic()
        except BaseException:
            # Interrupted: only what is being simulated is waited for.
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    if failed:
        raise HostError(
            f"{failed} of {plural(len(missing), 'run')} could not be simulated", "see above"
        )


def _simulate(point: LabPoint, output: Path, without_events: bool) -> tuple[Path, str]:
    """Simulate one run; returns its bundle, and what to say of it.

    A bundle with events is of one kernel, which has one BBR: where flows have several, as on the
    kernels of such studies, the run has what iperf3 reports, and no events.
    """
    from ...analyze.simulate.world.worlds import of_point
    from ...analyze.simulate.write_bundle import mixed, write_bundle
    from ...collect.lab.lab_results import KEY

    setup = of_point(point)
    note = "" if without_events or not mixed(setup) else f"no events: {mixed(setup)}"
    folder = output / point.run_name(KERNEL.split(" ")[0])
    changes = [{"at_s": c.at_us / 1e6, "what": c.what, "value": c.value} for c in point.changes]
    described = {
        **point.described("simulation"),
        "changes": changes,
        "cpu_busy": 0.0,
        "valid": True,
        "why_invalid": "",
        "flows": [
            flow.described(None if setup_of.variant else setup_of.version, flow.start_us / 1e6)
            for flow, setup_of in zip(point.flows, setup.flows, strict=True)
        ],
    }
    extra = {
        KEY: described,
        "kernel": KERNEL,
        "scenario": {"id": point.scenario, "description": f"{point.title} (simulated)"},
    }
    write_bundle(setup, folder, extra, events=not without_events and not note)
    return folder, note
