"""``bbrscope metrics``: the numbers that papers report about flows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural
from ..options import format_option, names_option, runs_argument, store_option
from ..text.print_table import printable
from ..text.screen import say
from ..window_options import check, window_notes, window_options, windows_of

if TYPE_CHECKING:
    import polars

    from ...collect.store.store import Store
    from ..api.recordings import By

_SENDER = ("run_id", "flow", "stream")

# What people get of the many columns; programs get them all.
SHORT = {
    "flow": (
        "run flow local duration_s goodput_mbps pkt_goodput_mbps pkt_throughput_mbps loss_rate "
        "pkt_retransmissions rtt_mean_us rtt_p95_us queue_delay_us inflight_packets"
    ),
    "phase": (
        "run flow phase duration_s goodput_mbps pkt_throughput_mbps lost_packets "
        "rtt_mean_us rtt_p95_us inflight_packets inflight_minus_bdp_packets pacing_mbps"
    ),
    "second": (
        "run flow stream t_s goodput_mbps pkt_goodput_mbps lost_packets pkt_retransmissions "
        "rtt_mean_us pkt_rtt_mean_us inflight_packets cwnd_packets"
    ),
    "round": (
        "run flow round start_s duration_s lost_packets pkt_retransmissions loss_rate "
        "pkt_retransmission_rate ce_rate pkt_ce_rate rtt_mean_us inflight_packets"
    ),
    "run": (
        "run flows rate_mbps utilisation goodput_mbps lost_packets pkt_retransmissions "
        "dropped_packets rtt_min_us queue_delay_mean_us jain ratio converged_s"
    ),
}


@click.command()
@runs_argument
@store_option
@click.option(
    "--by",
    type=click.Choice(tuple(SHORT)),
    default="flow",
    show_default=True,
    help="One row per flow, per phase, second or round trip of a flow, or per run.",
)
@window_options
@format_option()
@names_option
def command(
    runs: tuple[str, ...],
    store: Path,
    by: By,
    between: tuple[int, int] | None,
    steady: bool,
    output_format: str,
    names: str,
) -> None:
    """Print throughput, goodput, loss, RTT, queue, inflight and fairness of runs.

    Without RUN, of all. Columns that begin with pkt_ come from the packets only, the others from
    kernel events, so that each checks the other. The table shows some columns; json, csv and
    parquet have all of them, and `bbrscope schema metrics_by_flow` says what they mean.

    \b
    bbrscope metrics v2_single_1bdp
    bbrscope metrics v2_single_1bdp --by phase
    bbrscope metrics v2_single_1bdp --by round
    bbrscope metrics --by run
    bbrscope metrics v2_single_1bdp --steady
    bbrscope metrics v2_single_1bdp --between 5s 10s --by phase
    bbrscope metrics v2_single_1bdp --by second --format csv > seconds.csv
    """
    from ..api.opening import open
    from ..text.print_table import write_table
    from ..text.run_notes import say_notes

    check(between, steady)
    seconds = (between[0] / 1e9, between[1] / 1e9) if between else None
    with open(store) as recordings:
        if runs:
            recordings.store.restrict_to(runs)
        table = recordings.metrics(*runs, by=by, between=seconds, steady=steady)
        ids = [recordings.store.run_id(run) for run in runs or recordings.names]
        say_notes(recordings.store.con, ids)
        if output_format == "table":
            table = _readable(table, by, recordings.store)
            if table.is_empty():
                raise _nothing(recordings.store, runs, by, seconds)
            windows = windows_of(recordings.store, ids, between, steady)
            for note in window_notes(recordings.store, windows):
                say(note)
            for note in _without_main(recordings.store, runs or recordings.names, ids):
                say(note)
    write_table(table.to_arrow(), output_format, names)


def _without_main(store: Store, names: Sequence[str], run_ids: Sequence[int]) -> Iterator[str]:
    """Say of which runs nothing is known that main() tells."""
    from ...analyze.story.completeness import completeness_of_many

    known = completeness_of_many(store.con, run_ids)
    for name, run_id in zip(names, run_ids, strict=True):
        if known[run_id].no_main:
            what = "no RTT is known, and phases only from other calls"
            yield f"{printable(name)}: main() was never recorded: {what}"


def _nothing(
    store: Store, runs: tuple[str, ...], by: By, between: tuple[float, float] | None
) -> BbrscopeError:
    """Say why there is no row to show."""
    from ...analyze.replay.run_info import measured_by_the_lab

    if between:
        fact = f"no flow has anything to measure from {between[0]:g} s to {between[1]:g} s"
        return BbrscopeError(fact, "see how long each lasted: bbrscope runs; times are the run's")
    if not runs:
        fact = f"no flow in {store.path} has anything to measure"
        return BbrscopeError(fact, f"load a run that has: {store.filled_by}")
    named = ", ".join(runs)
    if by in ("phase", "round"):
        return BbrscopeError(
            f"no kernel event of {named} was recorded: where its {by}s begin and end is not known",
            f"see what there is: bbrscope explain {runs[0]}",
        )
    where = measured_by_the_lab(store.con, store.run_id(runs[0]))
    return BbrscopeError(
        f"of {named} no acknowledged data was captured or recorded",
        where or "capture data and acknowledgements both: tcpdump -i IFACE -s 128 -w FILE tcp",
    )


def _readable(table: polars.DataFrame, by: By, store: Store) -> polars.DataFrame:
    """Keep the columns of `SHORT`, and of each run the flows that count (view senders).

    Of a run without such a flow, those that sent something: of a capture without acknowledgements,
    segments with data are all that tells.
    """
    import polars

    if by != "run":
        counts = ("acked_bytes", "pkt_acked_bytes", "pkt_segments")
        # Of a flow that sent, all its rows: a second without an ACK is what people look for.
        carried = polars.any_horizontal(polars.col(*counts).fill_null(0) > 0)
        table = table.filter(carried.any().over(_SENDER))
        sent, table = table, _that_count(table, store)
        left_out = sent.n_unique(_SENDER) - table.n_unique(_SENDER)
        if left_out:
            flows = plural(left_out, "flow") + " that carried next to no data"
            say(f"Left out {flows}; --format csv or json has all of them.", err=True)
    return table.select(SHORT[by].split())


def _that_count(table: polars.DataFrame, store: Store) -> polars.DataFrame:
    """Rows of senders that count; of a run that has none, all of its rows."""
    counting = store.con.sql("SELECT run_id, flow, stream FROM senders WHERE counts").pl()
    senders = set(counting.iter_rows())
    runs = {run_id for run_id, *_ in senders}
    keys = table.select(_SENDER).iter_rows()
    return table.filter([key in senders or key[0] not in runs for key in keys])
