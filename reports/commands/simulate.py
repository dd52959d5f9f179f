"""bbrscope simulate: BBR in a closed loop, over a path of your own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...analyze.bbr.variants.catalogue import help_text
from ...probes.base.plurals import plural, words_after
from ..options import gather, store_option
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.simulate.world.world_setup import Setup
    from ...collect.store.store import Store


@dataclass(frozen=True)
class SimulateRequest:
    """What to simulate, and where the recording goes."""

    scenario: str | None
    path: str
    cc: str | None
    duration: str
    seed: int
    settings: tuple[str, ...]
    output: Path | None
    as_json: bool


@click.command(epilog=help_text())
@click.argument("scenario", required=False)
@click.option("--path", default="", metavar="NAME=VALUE,...", help="The path, see above.")
@click.option(
    "--cc",
    help="Congestion controls: v1, v2, v3, cubic, reno, a variant (below), or a file of your own:"
    " ./mybbr.py. One flow for each.",
)
@click.option("--duration", default="25s", show_default=True, help="Length, without SCENARIO.")
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 31) - 1),
    default=0,
    help="Seed of random loss, jitter ...",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter of BBR: loss_thresh=5%; with SCENARIO one of the scenario's.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=None,
    help="Write the recording as a bundle to this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--fidelity", is_flag=True, help="Compare with the recordings in the store instead.")
@click.option(
    "--pairs",
    is_flag=True,
    help="Predict recordings in the store from each other instead, as what-if does.",
)
@click.option(
    "--fits",
    is_flag=True,
    help="Fit paths from the recordings in the store alone instead, beside their set-ups.",
)
@store_option
@gather(SimulateRequest)
def command(request: SimulateRequest, fidelity: bool, pairs: bool, fits: bool, store: Path) -> None:
    """Simulate flows over a path: the estimator decides, a sender like Linux's obeys.

    SCENARIO is one of `bbrscope lab list` (its first point; --set chooses another), or leave it
    out and say --path and --cc. A path is made of rate, rtt, buffer, loss, reorder, jitter,
    aggregation, memory and host (the rate of the sender's own link, before the path), in the lab's
    units.

    With -o the run becomes an ordinary bundle, marked as simulated: ingest, replay, explain,
    diagnose, report and sql work on it, and the replay agrees with it in every bit; a variant's is
    replayed by the variant's rules, that of a file of your own as the version that it begins with,
    and differs where the file does. How far simulations agree with kernels is printed with every
    result.

    \b
    bbrscope simulate --cc v3
    bbrscope simulate --path rate=20mbit,rtt=30ms,buffer=2bdp,loss=1% --cc v2 -o sim_v2
    bbrscope simulate --cc v2,cubic --set loss_thresh=5%
    bbrscope simulate --cc bbr-prime,./mybbr.py
    bbrscope simulate song-single-buffer --set buffer=0.5bdp --cc v3
    bbrscope simulate --fidelity
    bbrscope simulate --pairs
    bbrscope simulate --fits
    """
    if fidelity:
        _compare(store, request.as_json)
        return
    if pairs:
        _predict_pairs(store, request.as_json)
        return
    if fits:
        _fit(store)
        return
    setup = _setup(request)
    from ...analyze.simulate.fidelity_notes import statement
    from ...analyze.simulate.simulation import simulate
    from ...analyze.simulate.summary import flows_of
    from ...analyze.simulate.watched import watched
    from ...analyze.simulate.write_bundle import write_bundle

    output = request.output
    outcome = watched(
        setup, lambda: simulate(setup) if output is None else write_bundle(setup, output)
    )
    flows = flows_of(outcome)
    if request.as_json:
        document = {"flows": flows, "holds": statement(setup), "bundle": str(request.output or "")}
        say(json.dumps(document))
        return
    for flow in flows:
        who = f"flow {flow['flow']} ({flow['cc']})" if flow["flow"] else f"beside ({flow['cc']})"
        say(
            f"{who}: {flow['goodput_mbps']:.2f} Mbit/s received, "
            f"{flow['lost']} {words_after(flow['lost'], 'packet|packets')} lost,"
            f" {flow['retransmitted']} sent again"
        )
    say(f"fidelity: {statement(setup)}")
    if request.output is not None:
        say(f"wrote {request.output}; next: bbrscope ingest {request.output}")


def _compare(store: Path, as_json: bool) -> None:
    """Print each recording of the store beside simulations of its own world."""
    from ...analyze.simulate import fidelity, known_fidelity
    from ...analyze.views.store_with_views import open_store
    from ..text.progress_bar import progress

    with open_store(store, read_only=True) as opened:
        runs = _kernels(opened)
        rows = []
        with progress(len(runs), "comparing") as advance:
            for row in fidelity.compare(opened.con, runs):
                rows.append(row)
                advance(1)
    if as_json:
        say(known_fidelity.as_json([row.known() for row in rows if row.setup is not None]))
        return
    say(fidelity.as_markdown(rows))
    seeds = plural(fidelity.SEEDS, "seed")
    say(f"kernel: simulated [5 %, median, 95 %] over {seeds}; bold: outside of both the seeds'")
    say("range and 3 % (goodput), 15 % or 10 packets (losses), 5 % (RTTs), 10 % (STARTUP's end,")
    say("probes, inflight_hi; of the latter 2 packets), 10 points (too high), 2 points (shares of")
    say("the time), 1 (PROBE_RTTs). -: the run never came to it. Probes of v1 go too high where")
    say("they lose packets; its phases are those with gains of 1.25, 0.75 and 1")


def _kernels(opened: Store) -> dict[str, int]:
    """The run_ids of kernels' recordings, by name. Raises BbrscopeError: all are simulated."""
    from ...analyze.story.completeness import simulated_of_many
    from ...probes.base.errors import BbrscopeError

    runs = {name: opened.run_id(name) for name in opened.runs()}
    simulated = simulated_of_many(opened.con, list(runs.values()))
    kernels = {name: run_id for name, run_id in runs.items() if run_id not in simulated}
    if runs and not kernels:
        raise BbrscopeError(
            "all runs in the store are simulated", "ingest kernels' recordings to compare with"
        )
    return kernels


def _fit(store: Path) -> None:
    """Print paths fitted from the store's recordings alone, beside what is written down."""
    from ...analyze.simulate import fitted_table
    from ...analyze.views.store_with_views import open_store

    with open_store(store, read_only=True) as opened:
        runs = {name: opened.run_id(name) for name in opened.runs()}
        say(fitted_table.as_markdown(opened.con, runs))
    say("written down / fitted; -: nobody wrote it down")


def _predict_pairs(store: Path, as_json: bool) -> None:
    """Print each recording of the store predicted from the others of its scenario."""
    from ...analyze.simulate import known_errors, recorded_pairs
    from ...analyze.views.store_with_views import open_store
    from ...probes.base.errors import BbrscopeError
    from ..text.progress_bar import progress

    with open_store(store, read_only=True) as opened:
        runs = {name: opened.run_id(name) for name in opened.runs()}
        pairs = recorded_pairs.recorded_pairs(opened.con, runs)
    if not pairs:
        raise BbrscopeError(
            "no two recordings of one scenario under different versions",
            "ingest recordings whose manifests have the same set-up",
        )
    errors = []
    with progress(len(pairs), "predicting") as advance:
        for error in recorded_pairs.known_errors(pairs):
            errors += [error] if error else []
            advance(1)
    if as_json:
        say(known_errors.as_json(errors))
        return
    say(recorded_pairs.as_markdown(errors, known_errors.shipped()))
    say("kernel: [5 %, median, 95 %] expected of it; bold: its value lies outside. What is known")
    say("of a scenario is left out of its own intervals. A difference is one beyond 3 % (goodput),")
    say("15 % or 10 packets (losses), 5 % (RTTs); within the error it is none: that is what is")
    say("likeliest. It is sure where no value of the interval says anything else. Predictions from")
    say("paths that are refused are not there")


def _setup(request: SimulateRequest) -> Setup:
    """The world that the options describe. Raises ScenarioError."""
    from ...analyze.simulate.world import worlds
    from ...collect.lab import scenario, units
    from ...probes.base.errors import ScenarioError
    from ..lab.lab_request import LabRequest

    if request.scenario is None:
        duration_us = units.time_us(request.duration)
        path = worlds.path_of(request.path)
        controls = "v3" if request.cc is None else request.cc
        setup = worlds.of_path(path, controls, duration_us, request.seed)
        return _with_settings(setup, request.settings)
    if request.path:
        raise ScenarioError("SCENARIO and --path both describe the path", "leave one of them out")
    cc, variants = _set_aside(request.cc)
    asked = LabRequest(
        name=request.scenario,
        settings=request.settings,
        cc=cc,
        reps=1,
        quick=False,
        output=Path(),
        no_events=False,
        no_packets=True,
        store=Path(),
    )
    point = next(iter(scenario.points(asked.scenario())))
    setup = worlds.of_point(point)
    flows = tuple(
        worlds.with_control(flow, variants[flow.cc]) if flow.cc in variants else flow
        for flow in setup.flows
    )
    return replace(setup, flows=flows, seed=setup.seed + request.seed)


def _set_aside(controls: str | None) -> tuple[str | None, dict[str, str]]:
    """--cc with names that a scenario takes in place of variants, and what they stand for."""
    from ...analyze.bbr.variants.own_variant import is_variant

    if controls is None:
        return None, {}
    names = [name.strip() for name in controls.split(",")]
    aside = {f"variant{k}": name for k, name in enumerate(names) if is_variant(name)}
    standing = {name: short for short, name in aside.items()}
    return ",".join(standing.get(name, name) for name in names), aside


def _with_settings(setup: Setup, settings: tuple[str, ...]) -> Setup:
    """The same world with parameters of BBR changed in every flow that has it."""
    if not settings:
        return setup
    from ...analyze.replay.parameter_settings import apply_settings, parse_settings
    from ...analyze.simulate.world.world_setup import parameters_of
    from ...probes.base.errors import BbrscopeError

    readers = [flow.variant or flow.version for flow in setup.flows if flow.version]
    if not readers:
        raise BbrscopeError(f"--set {settings[0]}: no flow has BBR", "add one: --cc v3")

    def changed(version: str, parameters: dict[str, object]) -> dict[str, object]:
        return apply_settings(parameters, parse_settings(settings, version, readers=readers))

    flows = tuple(
        replace(flow, parameters=changed(flow.version, parameters_of(flow)))
        if flow.version
        else flow
        for flow in setup.flows
    )
    return replace(setup, flows=flows)
