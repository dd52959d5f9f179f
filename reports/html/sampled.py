"""What a report shows of a flow that was sampled by `ss` alone (rung inet_diag)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...analyze import sampled
from ..sampled_story import sentence
from .listing import Line, Listing
from .prose import Prose, plural, quantity, seconds
from .select import Flow, Run

if TYPE_CHECKING:
    import duckdb


def story(run: Run, flow: Flow) -> list[Prose]:
    """What the samples tell, and what lies beyond them."""
    row = flow.row
    duration = seconds((row["duration_ns"] or 0) / 1e9)
    told = f"It was sampled {plural(row['samples'], 'time')} in {duration}."
    if row["delivered_bytes"]:
        told += f" {quantity(row['delivered_bytes'], 'B')} were acknowledged in between"
        told += f": {quantity(row['goodput_mbps'] * 1e6, 'bit/s')} on average."
    for name, what in (("retrans_packets", "sent again"), ("lost_packets", "marked lost")):
        if row[name] is not None:
            told += f" {plural(row[name], 'packet')} were {what}."
    if row["min_rtt_us"] is not None:
        told += f" BBR's min_rtt was {row['min_rtt_us'] / 1e3:.3f} ms at the end."
    beyond = (
        "What happened between two samples is not recorded, nor why anything changed: a mode, a"
        " burst or a loss may have come and gone."
    )
    return [[told], [beyond]]


def modes(con: duckdb.DuckDBPyConnection, run: Run, flow: Flow) -> Listing:
    """The modes that the samples show, as rows of the table of phases."""
    (known,) = [f for f in sampled.flows_of(con, run.row["run_id"]) if f.flow == flow.number]
    lines, old = [], ""
    for seen in known.modes:
        at = run.us(seen.first_ns + flow.row["first_ns"]) / 1e6
        began = at if seen.before_ns is None else at - (seen.first_ns - seen.before_ns) / 1e9
        why = sentence(seen).capitalize() + "."
        here = seen.first_ns / 1e9
        lines.append(
            Line(at, here, began - 0.5, at + 0.5, "phase", old, seen.mode, "SAMPLED", "", why)
        )
        old = seen.mode
    return Listing(lines)
