"""``bbrscope model``: what papers' models predict, and how far from it runs were."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...collect.lab import units
from ...probes.base.errors import BbrscopeError, ScenarioError
from ..options import F, complete_runs, format_option, gather, store_option
from ..parameter_types import QuantityType
from ..text.screen import say

if TYPE_CHECKING:
    import pyarrow as pa

    from ...analyze.models.ware import Link
    from ...collect.store.store import Store
    from ..text.model_rows import Comparison, Row

DEPTHS = tuple(f"{2**power}bdp" for power in range(7))
GAINS = (1.1, 1.25, 1.5)
TIME = QuantityType("time", units.time_us)
RATE = QuantityType("rate", units.rate)


@dataclass(frozen=True)
class LinkOptions:
    """The link as the options give it: bit/s, us, sizes such as 64bdp, bytes of a packet."""

    capacity: float | None
    rtt: float | None
    buffers: tuple[str, ...]
    packet_bytes: int

    @property
    def given(self) -> bool:
        """Does any option tell of the link?"""
        return self.capacity is not None or self.rtt is not None

    def links(self) -> list[Link]:
        """Return a link per buffer.

        Raises:
            click.UsageError: an option is missing.
            click.BadParameter: a buffer makes no sense.
        """
        from ...analyze.models.ware import Link

        if self.capacity is None or self.rtt is None:
            raise click.UsageError("say --capacity and --rtt, or name runs of the lab")
        rtt_s = self.rtt / 1e6
        packets_per_s = self.capacity / 8 / self.packet_bytes
        bdp_bytes = round(self.capacity * rtt_s / 8)
        return [
            Link(packets_per_s, rtt_s, self._queue_packets(buffer, bdp_bytes))
            for buffer in self.buffers or DEPTHS
        ]

    def _queue_packets(self, buffer: str, bdp_bytes: int) -> float:
        # The lab's packets are Ethernet frames; the model's are as large as said.
        packet_bytes = units.PACKET_BYTES if buffer.endswith("pkt") else self.packet_bytes
        try:
            packets = units.size(buffer, bdp_bytes) / packet_bytes
        except ScenarioError as error:
            why = f"{error.fact}; {error.way_out}"
            raise click.BadParameter(why, param_hint="--buffer") from None
        if packets <= 0:
            raise click.BadParameter(f"{buffer!r} must be above 0", param_hint="--buffer")
        return packets


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
        click.option("--rtt", type=TIME, help="Without any queue: 40ms"),
        click.option("--capacity", type=RATE, help="Of the link: 15mbit"),
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
    type=TIME,
    default="400s",
    show_default=True,
    help="How long the flows compete after convergence.",
)
@click.option(
    "--alone", "only_bbr", is_flag=True, help="BBR flows with no other: RTT estimate and cap."
)
@click.option("--all", "every", is_flag=True, help="Compare with all runs whose link is known.")
@store_option
@format_option()
@gather(LinkOptions)
def ware(
    link: LinkOptions,
    runs: tuple[str, ...],
    flows: tuple[int, ...],
    gain: float,
    duration: float,
    only_bbr: bool,
    every: bool,
    store: Path,
    output_format: str,
) -> None:
    """Predict BBRv1's share beside loss-based flows: the in-flight-cap model of Ware19.

    BBR may have cwnd_gain x bandwidth x RTT estimate in flight. Its estimate of the RTT comes from
    PROBE_RTT, when only the others' packets are in the queue, so that BBR's share settles where
    that cap holds it: about half in deep buffers, whatever number of flows it meets. bbr_share
    (equation 10) also subtracts the time in PROBE_RTT; simple_share (5) is the model for one flow
    in a very deep buffer. p_raw (9) is the share of the loss-based flows; below 0, BBR takes
    everything.

    With RUN, each of them is predicted and compared with what it measured in the second half of
    the time that all its flows shared; the link is that of the lab, of the run's set-up, or what
    the options say.

    \b
    bbrscope model ware --capacity 15mbit --rtt 40ms --buffer 64bdp --flows 2
    bbrscope model ware --capacity 10mbit --rtt 40ms --flows 1 --flows 5
    bbrscope model ware --capacity 15mbit --rtt 40ms --flows 13 --alone
    bbrscope model ware --all
    bbrscope model ware v1_vs_cubic_2bdp
    """

    from ..text import model_rows

    if runs or every:
        compared = _compare_stored(store, runs, link, gain)
        if output_format == "table":
            say("\n".join([*model_rows.error_summary(compared), ""]))
        rows = [comparison.row() for comparison in compared]
    else:
        rows = [
            model_rows.prediction_without_others(one, number, gain)
            if only_bbr
            else model_rows.prediction(one, number, gain, duration / 1e6)
            for one, number in itertools.product(link.links(), flows or (1,))
        ]
    _write(rows, output_format)


def _compare_stored(
    path: Path, runs: Sequence[str], options: LinkOptions, gain: float
) -> list[Comparison]:
    """Compare runs of a store with the model, on their own links or the one of the options."""
    from ...analyze.views.store_with_views import open_store

    links = options.links() if options.given else []
    if len(links) > 1 and not options.buffers:
        raise click.UsageError("say the --buffer of these runs, too")
    with open_store(path, read_only=True) as opened:
        return _compare(opened, runs, links, options.packet_bytes, gain)


def _compare(
    store: Store, runs: Sequence[str], given: list[Link], packet_bytes: int, gain: float
) -> list[Comparison]:
    """Compare each run that had BBR and other flows at the same time.

    Raises:
        BbrscopeError: no such run, or nothing says what its link was.
    """
    from ...analyze.models import measured
    from ..text.model_rows import Comparison
    from ..text.run_notes import say_notes

    links = measured.known_links(store.con, packet_bytes)
    run_ids = [store.run_id(name) for name in runs] or sorted(links)
    if len(given) != 1:
        _require_links(runs, run_ids, links)
    say_notes(store.con, run_ids)
    compared = [
        Comparison(run, run.share, given[0] if given else links[run_id], gain)
        for run_id, run in zip(run_ids, measured.measure(store.con, run_ids), strict=True)
        if run.share is not None
    ]
    if not compared:
        raise BbrscopeError(
            "no run had BBR and another flow at the same time",
            "packets or the lab's intervals must tell of the other flow",
        )
    return compared


def _require_links(runs: Sequence[str], run_ids: Sequence[int], links: dict[int, Link]) -> None:
    for name, run_id in zip(runs, run_ids, strict=False):
        if run_id not in links:
            raise BbrscopeError(
                f"{name}: no lab and no set-up states its link: one rate, base RTT, buffer",
                "say it: --capacity 10mbit --rtt 40ms --buffer 66pkt",
            )


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

    Probing with 1.25 times the bandwidth, a loss of 20 % leaves no more than the bandwidth: the
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
    from ..text.model_rows import cliff_prediction

    if scenario is None:
        rows = [cliff_prediction(gain) for gain in gains or GAINS]
    else:
        rows = _collapses(store, scenario, gains)
    _write(rows, output_format)


def _collapses(path: Path, scenario: str, gains: tuple[float, ...]) -> list[Row]:
    """Return where each congestion control of a scenario collapsed.

    Raises:
        BbrscopeError: no run of it, or none with two rates of loss.
    """
    from ...analyze.models import cliff, measured
    from ...analyze.views.store_with_views import open_store
    from ..text.model_rows import collapse
    from ..text.run_notes import say_notes

    with open_store(path, read_only=True) as opened:
        sweep = measured.loss_sweep(opened.con, scenario)
        say_notes(opened.con, measured.runs_of(opened.con, scenario))
    if not any(len(points) > 1 for points in sweep.values()):
        raise BbrscopeError(
            f"{path} has no sweep over random loss of a scenario called {scenario!r:.60}",
            "run it first: bbrscope lab run cao-cliff --quick",
        )
    gain = gains[0] if gains else cliff.PROBE_GAIN
    return [
        collapse(name, len(points), cliff.observed(points), gain) for name, points in sweep.items()
    ]


def _write(rows: Sequence[Row], output_format: str) -> None:
    from ..text.print_table import write_table

    write_table(_table(rows, output_format), output_format)


def _table(rows: Sequence[Row], output_format: str) -> pa.Table:
    """Make a table; people get numbers rounded to what the models are worth."""
    import pyarrow as pa

    if output_format == "table":
        rows = [
            {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()} for row in rows
        ]
    return pa.Table.from_pylist([dict(row) for row in rows])
