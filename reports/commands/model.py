"""``bbrscope model``: what papers' models predict, and how far from it runs were."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...collect.errors import BbrscopeError, ScenarioError
from ...collect.lab import units
from ..options import F, complete_runs, format_option, store_option

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analyze.models.measured import Measured
    from ...analyze.models.ware import Link
    from ...collect.store import Store

Row = dict[str, Any]
DEPTHS = tuple(f"{2**power}bdp" for power in range(7))


if TYPE_CHECKING:
    _FloatType = click.ParamType[float]
else:
    _FloatType = click.ParamType  # generic to type checkers alone before click 8.2


class Quantity(_FloatType):
    """A quantity as the lab's scenarios write it, e.g. 15mbit; `read` makes it a number."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self.read = read

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not isinstance(value, str):
            return float(value)
        try:
            found = self.read(value)
        except ScenarioError as error:
            self.fail(f"{error.fact}; {error.way_out}", param, ctx)
        if found <= 0:
            self.fail(f"{value!r} must be above 0", param, ctx)
        return found


@click.group()
def command() -> None:
    """Predict with the papers' models, and compare with what runs measured.

    \b
    bbrscope model ware --capacity 15mbit --rtt 40ms --buffer 64bdp --flows 2
    bbrscope model cliff --gain 1.5
    """


def _path_options(function: F) -> F:
    for option in (
        click.option(
            "--packet-bytes",
            type=click.IntRange(64, 65535),
            default=1500,
            show_default=True,
            help="Size of a packet.",
        ),
        click.option(
            "--buffer",
            "buffers",
            multiple=True,
            metavar="SIZE",
            help="The bottleneck's: 64bdp, 1024pkt or 100kB; may be repeated [1 to 64bdp].",
        ),
        click.option("--rtt", type=Quantity("time", units.time_us), help="Without any queue: 40ms"),
        click.option("--capacity", type=Quantity("rate", units.rate), help="Of the link: 15mbit"),
    ):
        function = option(function)
    return function


@command.command()
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=complete_runs)
@_path_options
@click.option(
    "--flows",
    type=click.IntRange(1, 10_000),
    multiple=True,
    help="BBR flows; may be repeated [1].",
)
@click.option(
    "--gain",
    type=click.FloatRange(1, 100, min_open=True),
    default=2.0,
    show_default=True,
    help="BBR's cwnd_gain.",
)
@click.option(
    "--duration",
    type=Quantity("time", units.time_us),
    default="400s",
    show_default=True,
    help="After convergence.",
)
@click.option("--alone", is_flag=True, help="BBR flows with no other: RTT estimate and cap.")
@click.option("--all", "every", is_flag=True, help="Compare with all runs of the lab.")
@store_option
@format_option()
def ware(
    runs: tuple[str, ...],
    capacity: float | None,
    rtt: float | None,
    buffers: tuple[str, ...],
    packet_bytes: int,
    flows: tuple[int, ...],
    gain: float,
    duration: float,
    alone: bool,
    every: bool,
    store: Path,
    output_format: str,
) -> None:
    """Predict BBRv1's share beside loss-based flows: the in-flight-cap model of Ware19.

    BBR may have cwnd_gain x bandwidth x RTT estimate in flight. Its estimate of the RTT comes from
    PROBE_RTT, when only the others' packets are in the queue, so that BBR's share settles where
    that cap holds it: about half in deep buffers, whatever number of flows it meets. bbr_share
    (equation 10) also subtracts the time in PROBE_RTT; simple_share (5) is the model for one flow
    in a very deep buffer. p_raw below 0 means that BBR takes everything.

    With RUN, each of them is predicted and compared with what it measured in the second half of
    the time that all its flows shared; the link is that of the lab, or what the options say.

    \b
    bbrscope model ware --capacity 15mbit --rtt 40ms --buffer 64bdp --flows 2
    bbrscope model ware --capacity 10mbit --rtt 40ms --flows 1 --flows 5
    bbrscope model ware --capacity 15mbit --rtt 40ms --flows 13 --alone
    bbrscope model ware --all
    bbrscope model ware v1_vs_cubic_2bdp --capacity 10mbit --rtt 40ms --buffer 66pkt
    """

    def links() -> Iterable[Link]:
        if capacity is None or rtt is None:
            raise click.UsageError("say --capacity and --rtt, or name runs of the lab")
        return _links(capacity, rtt / 1e6, buffers or DEPTHS, packet_bytes)

    if not runs and not every:
        rows = [
            (_alone if alone else _prediction)(link, number, gain, duration / 1e6)
            for link, number in itertools.product(links(), flows or (1,))
        ]
        _write(rows, output_format)
        return
    from ...collect.store import open_store

    given = list(links()) if capacity is not None or rtt is not None else []
    if len(given) > 1 and not buffers:
        raise click.UsageError("say the --buffer of these runs, too")
    with open_store(store, read_only=True) as opened:
        rows = _compared(opened, runs, given, packet_bytes, gain)
    if output_format == "table":
        _tell_errors(rows)
    _write(rows, output_format)


def _links(capacity: float, rtt_s: float, buffers: Iterable[str], packet_bytes: int) -> list[Link]:
    from ...analyze.models.ware import Link

    made = []
    for text in buffers:
        # The lab's packets are Ethernet frames; the model's are as large as said.
        size = units.PACKET_BYTES if text.endswith("pkt") else packet_bytes
        try:
            queue = units.size(text, round(capacity * rtt_s / 8)) / size
        except ScenarioError as error:
            why = f"{error.fact}; {error.way_out}"
            raise click.BadParameter(why, param_hint="--buffer") from None
        if queue <= 0:
            raise click.BadParameter(f"{text!r} must be above 0", param_hint="--buffer")
        made.append(Link(capacity / 8 / packet_bytes, rtt_s, queue))
    return made


def _path(link: Link) -> Row:
    return {
        "rtt_ms": 1e3 * link.rtt_s,
        "buffer_bdp": link.queue / link.bdp,
        "buffer_packets": link.queue,
    }


def _prediction(link: Link, flows: int, gain: float, duration_s: float) -> Row:
    from ...analyze.models import ware

    found = ware.predict(link, flows, gain, duration_s)
    return {
        **_path(link),
        "flows": flows,
        "bbr_share": found.bbr_share,
        "simple_share": found.simple_share,
        "p_raw": found.p_raw,
        "rtt_est_ms": 1e3 * found.rtt_est_s,
        "btlbw_share": found.btlbw / link.capacity,
        "inflight_cap_packets": found.inflight_cap,
        "probe_time_s": found.probe_time_s,
    }


def _alone(link: Link, flows: int, gain: float, _duration_s: float) -> Row:
    from ...analyze.models import ware

    cap = ware.inflight_cap_alone(link, flows, gain)
    return {
        **_path(link),
        "flows": flows,
        "rtt_est_ms": 1e3 * ware.rtt_estimate_alone(link, flows),
        "inflight_cap_packets": cap,
        "cap_per_flow_packets": cap / flows,
    }


def _compared(
    store: Store, runs: tuple[str, ...], given: list[Link], packet_bytes: int, gain: float
) -> list[Row]:
    """Return a row per run that had BBR and other flows at the same time.

    Raises:
        BbrscopeError: no such run, or nothing says what its link was.
    """
    from ...analyze.models import measured

    links = measured.lab_links(store.con, packet_bytes)
    run_ids = [store.run_id(name) for name in runs] or sorted(links)
    for name, run_id in zip(runs, run_ids, strict=False):
        if run_id not in links and len(given) != 1:
            raise BbrscopeError(
                f"{name} is no run of the lab: its link is not known",
                "say it: --capacity 10mbit --rtt 40ms --buffer 66pkt",
            )
    told = measured.measure(store.con, run_ids)
    rows = [
        _comparison(each, given[0] if given else links[run_id], gain)
        for run_id, each in zip(run_ids, told, strict=True)
        if each.share is not None
    ]
    if not rows:
        raise BbrscopeError(
            "no run had BBR and another flow at the same time",
            "packets or the lab's intervals must tell of the other flow",
        )
    return rows


def _comparison(found: Measured, link: Link, gain: float) -> Row:
    from ...analyze.models import ware

    assert found.share is not None
    predicted = ware.predict(link, found.flows, gain, found.seconds).bbr_share
    error = abs(predicted - found.share)
    return {
        "run": found.run,
        "version": found.version,
        **_path(link),
        "flows": found.flows,
        "others": found.others,
        "seconds": found.seconds,
        "predicted_share": predicted,
        "measured_share": found.share,
        "error_points": 100 * error,
        "error_relative": error / found.share if found.share else None,
    }


def _tell_errors(rows: list[Row]) -> None:
    """Say the median errors; of BBRv1 first, for which alone the model was made."""
    groups = {
        "BBRv1": [row for row in rows if row["version"] == "v1"],
        "BBRv2 and v3, which the model is not about": [
            row for row in rows if row["version"] in ("v2", "v3")
        ],
        "BBR of unknown version": [row for row in rows if row["version"] is None],
    }
    for name, chosen in groups.items():
        if not chosen:
            continue
        points = statistics.median(row["error_points"] for row in chosen)
        relative = [row["error_relative"] for row in chosen if row["error_relative"] is not None]
        told = f", {statistics.median(relative):.0%} of what was measured" if relative else ""
        click.echo(f"{name}: median error {points:.1f} percentage points{told}; n = {len(chosen)}")
    click.echo()


@command.command()
@click.option(
    "--gain",
    "gains",
    type=click.FloatRange(1, 10, min_open=True),
    multiple=True,
    help="Largest pacing gain; may be repeated [1.1, 1.25 and 1.5].",
)
@click.option("--scenario", help="Also where the runs of this scenario collapsed.")
@store_option
@format_option()
def cliff(gains: tuple[float, ...], scenario: str | None, store: Path, output_format: str) -> None:
    """Predict at which random loss BBRv1's goodput collapses: Cao19's cliff, p = 1 - 1/gain.

    Probing with 1.25 times the bandwidth, 20 % of loss leave no more than the bandwidth: the
    estimate cannot grow again. cliff_with_margin allows for the 1 % that Linux paces below its
    estimate; from policer_loss on, BBRv1 may take the loss for a policer first, which is why a
    gain of 1.5 collapses before its cliff.

    With --scenario, the sweep over random loss that the lab ran, by congestion control: the
    smallest loss at which less than half was left of the goodput one point before.

    \b
    bbrscope model cliff
    bbrscope model cliff --gain 1.25 --format json
    bbrscope model cliff --scenario cao-cliff
    """
    from ...analyze.models import cliff as model

    if scenario is None:
        rows = [
            {
                "gain": gain,
                "cliff": model.cliff(gain),
                "cliff_with_margin": model.cliff(gain, model.PACING_MARGIN),
                "policer_loss": model.policer_loss(),
            }
            for gain in gains or (1.1, 1.25, 1.5)
        ]
    else:
        from ...collect.store import open_store

        with open_store(store, read_only=True) as opened:
            rows = _collapsed(opened, scenario, gains or (model.PROBE_GAIN,))
    _write(rows, output_format)


def _collapsed(store: Store, scenario: str, gains: tuple[float, ...]) -> list[Row]:
    """Return where each congestion control of a scenario collapsed.

    Raises:
        BbrscopeError: no run of it, or none with two rates of loss.
    """
    from ...analyze.models import cliff, measured

    found = measured.loss_sweep(store.con, scenario)
    if not any(len(points) > 1 for points in found.values()):
        raise BbrscopeError(
            f"{store.path} has no sweep over random loss of a scenario called {scenario!r:.60}",
            "run it first: bbrscope lab run cao-cliff --quick",
        )
    rows = []
    for name, points in found.items():
        seen = cliff.observed(points)
        gain = gains[0] if name in ("v1", "bbr") else None
        rows.append(
            {
                "cc": name,
                "points": len(points),
                "predicted_cliff": None if gain is None else cliff.cliff(gain),
                "last_good_loss": seen.last_good,
                "collapsed_at_loss": seen.collapsed,
                "most_retransmits_at_loss": seen.most_retransmits,
            }
        )
    return rows


def _write(rows: list[Row], output_format: str) -> None:
    from ..tables import write_table

    write_table(_table(rows, output_format), output_format)


def _table(rows: list[Row], output_format: str) -> pa.Table:
    """Make a table; people get numbers rounded to what the models are worth."""
    import pyarrow as pa

    if output_format == "table":
        rows = [
            {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in rows
        ]
    return pa.Table.from_pylist(rows)
