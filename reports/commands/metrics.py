"""``bbrscope metrics``: the numbers that papers report about flows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..options import format_option, names_option, runs_argument, store_option

if TYPE_CHECKING:
    import pyarrow as pa

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
    help="One row per flow, per phase or second of a flow, or per run.",
)
@format_option()
@names_option
def command(runs: tuple[str, ...], store: Path, by: str, output_format: str, names: str) -> None:
    """Print throughput, goodput, loss, RTT, queue, inflight and fairness of runs.

    Without RUN, of all. Columns that begin with pkt_ come from the packets alone, the others from
    kernel events, so that each checks the other. The table shows some columns; json, csv and
    parquet have all of them, and `bbrscope schema metrics_by_flow` says what they mean.

    \b
    bbrscope metrics v3_single_1bdp
    bbrscope metrics v3_single_1bdp --by phase
    bbrscope metrics --by run
    bbrscope metrics v3_single_1bdp --by second --format csv > seconds.csv
    """
    from ...analyze.metrics import table
    from ...collect.store import open_store
    from ..tables import write_table

    with open_store(store, read_only=True) as opened:
        run_ids = [opened.run_id(name) for name in runs or opened.runs()]
        found = table(opened.con, run_ids, by)
    if output_format == "table":
        found = _readable(found, by)
        if found.num_rows == 0:
            click.echo(f"{store} holds no flow; load a run with `bbrscope ingest BUNDLE`")
            return
    write_table(found, output_format, names)


def _readable(found: pa.Table, by: str) -> pa.Table:
    """Keep the columns of `SHORT`, and flows that sent something."""
    import pyarrow.compute as pc

    if by != "run":
        sent = pc.add(
            pc.fill_null(found.column("acked_bytes"), 0),
            pc.fill_null(found.column("pkt_acked_bytes"), 0),
        )
        found = found.filter(pc.greater(sent, 0))
    return found.select(SHORT[by].split())
