"""bbrscope what-if: a run again under other rules, in a closed loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...analyze.bbr.variants.catalogue import help_text
from ..options import store_option
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.simulate.closed_loop import CounterfactualAnswer

_WORDS = {"goodput_mbps": "goodput, Mbit/s", "lost_packets": "packets lost"} | {
    "rtt_p50_ms": "RTT median, ms",
    "rtt_p95_ms": "RTT 95 %, ms",
}


@click.command(epilog=help_text())
@click.argument("run")
@store_option
@click.option(
    "--as",
    "as_version",
    metavar="VERSION",
    help="v1, v2, v3, a variant (below), or a file of your own: ./mybbr.py",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With this parameter (kernel units, or 5%). Repeatable.",
)
@click.option("--seeds", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    run: str,
    store: Path,
    as_version: str | None,
    settings: tuple[str, ...],
    seeds: int,
    as_json: bool,
) -> None:
    """Say what RUN would have reached under other rules, by simulating it again (closed loop).

    The path comes from the manifest or is fitted from the recording. The run is first simulated
    under its own rules: how far that is from what was recorded is the error. A difference within
    the error, or within the spread over the seeds, is called none. The open loop, exact up to the
    first difference, is `bbrscope replay RUN --as v3`.

    \b
    bbrscope what-if v2_single_1bdp --as v3
    bbrscope what-if v2_single_1bdp --set loss_thresh=5% --json
    bbrscope what-if v1_single_1bdp --as bbr-prime
    bbrscope what-if v2_single_1bdp --as ./mybbr.py
    """
    if as_version is None and not settings:
        raise click.UsageError("say other rules: --as v3, or --set loss_thresh=5%")
    from ...analyze.bbr.variants.own_variant import base_of
    from ...analyze.replay import replay_runs
    from ...analyze.replay.parameter_settings import parse_settings
    from ...analyze.simulate.closed_loop import predict
    from ...analyze.simulate.recorded_world import recorded_world
    from ...analyze.views.store_with_views import open_store
    from ..text.progress_bar import progress

    base = "" if as_version is None else base_of(as_version)
    with open_store(store, read_only=True) as opened:
        info = replay_runs.run_info(opened.con, opened.run_id(run))
        values = parse_settings(settings, info.flavour if as_version is None else base)
        world = recorded_world(opened.con, info)
    with progress(2 * seeds, "simulating") as advance:
        answer = predict(world, as_version, values, seeds, advance)
    if as_json:
        say(json.dumps(answer.as_json()))
        return
    _print(answer)


def _print(answer: CounterfactualAnswer) -> None:
    world = answer.world
    fitted = world.fitted
    say(
        f"{world.run}: {fitted['rate_mbps']:g} Mbit/s, {fitted['base_rtt_ms']:g} ms, buffer of"
        f" {fitted['buffer_packets']} packets, loss {fitted['loss_share']:.3g}"
        f" (from {fitted['source']})"
    )
    say("                      recorded   own rules [5 %, median, 95 %]   other rules")
    for name, words in _WORDS.items():
        own = " ".join(f"{value:9.2f}" for value in answer.own[name])
        other = " ".join(f"{value:9.2f}" for value in answer.other[name])
        say(f"  {words:18s} {world.recorded[name]:10.2f}   {own}   {other}")
    for name, text in answer.verdicts.items():
        say(f"  {_WORDS[name]}: {text}")
    say(f"fidelity: {answer.holds}")
