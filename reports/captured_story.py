"""The story of flows of which only packets are known (rung capture), as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..collect.query import Row, rows
from ..collect.rungs import CAPTURE
from .html.prose import plural, quantity, seconds, share
from .tables import printable

if TYPE_CHECKING:
    import duckdb

BEYOND = (
    "Packets do not tell the sender's state: which congestion control it had, BBR's phase and"
    " bounds, or why it sent as it did."
)
# A flow of which less was acknowledged has no story worth telling.
TINY_BYTES = 100_000


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[Row] | None:
    """The rows of metrics_by_flow of a run of packets alone, the largest first; None: of more."""
    found = con.execute("SELECT rung FROM runs WHERE run_id = ?", [run_id]).fetchall()
    if found != [(CAPTURE.name,)]:
        return None
    return rows(
        con,
        "SELECT * FROM metrics_by_flow WHERE run_id = ? AND flow IS NOT NULL"
        " ORDER BY coalesce(pkt_acked_bytes, pkt_wire_bytes) DESC, flow",
        run_id,
    )


def is_tiny(row: Row) -> bool:
    """Tell whether a flow carried next to nothing."""
    return bool((row["pkt_acked_bytes"] or row["pkt_wire_bytes"] or 0) < TINY_BYTES)


def text(row: Row) -> Iterable[str]:
    """Yield a flow's story as lines."""
    yield printable(f"{row['run']}, flow {row['flow']}: {row['local']} -> {row['remote']}")
    yield from textwrap.wrap(story(row), 96, initial_indent="  ", subsequent_indent="  ")
    yield f"  recorded by {CAPTURE.name}: {CAPTURE.can}"
    yield f"  it cannot {CAPTURE.cannot}"
    yield ""


def document(row: Row) -> Row:
    """The same as JSON."""
    told = {name: row[name] for name in row if name not in ("run_id", "run", "flow")}
    return {"flow": row["flow"], "rung": asdict(CAPTURE), "summary": told}


def story(row: Row) -> str:
    """What packets tell of a flow, in sentences; `row` is of metrics_by_flow."""
    told = f"{plural(row['pkt_segments'] or 0, 'segment')} with data passed the capture point in"
    told += f" {seconds(row['duration_s'])}"
    if row["pkt_throughput_mbps"]:
        told += f": {quantity(row['pkt_throughput_mbps'] * 1e6, 'bit/s')} of whole frames"
    told += "."
    if row["pkt_acked_bytes"]:
        told += f" {quantity(row['pkt_acked_bytes'], 'B')} were acknowledged,"
        told += f" {quantity(row['pkt_goodput_mbps'] * 1e6, 'bit/s')} on average."
    else:
        told += " No acknowledgement of them was captured."
    told += f" {plural(row['pkt_retransmissions'] or 0, 'segment')} were sent again"
    told += f" ({share(row['pkt_retransmission_rate'] or 0)})"
    told += f" and {row['pkt_reordered'] or 0:,} overtaken by others."
    if row["pkt_rtt_p50_us"] is not None:
        told += (
            f" By the timestamps, the RTT was {row['pkt_rtt_p50_us'] / 1e3:.1f} ms in the median,"
            f" {row['pkt_rtt_min_us'] / 1e3:.1f} ms at the least and"
            f" {row['pkt_rtt_p99_us'] / 1e3:.1f} ms in the 99th percentile."
        )
    if row["pkt_ce_rate"]:
        told += f" {share(row['pkt_ce_rate'])} of the segments had a CE mark."
    return told
