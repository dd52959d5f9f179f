"""What a run of the lab says of its flows: those beside BBR, and round trips of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError
from .world.world_setup import LOSS_BASED, FlowSetup

if TYPE_CHECKING:
    import duckdb

    from ..replay.run_info import RunInfo

_KINDS = ("", "bulk")
_SQL = """
SELECT flow, cc, kind, start_s, stop_s, extra_rtt_us, rtt_us
FROM lab_flows JOIN lab_runs USING (run_id)
WHERE run_id = ? ORDER BY flow_no
"""


@dataclass(frozen=True)
class LabFlows:
    """Flows with a loss-based control, and by the store's number what a round trip is longer."""

    beside: tuple[FlowSetup, ...]
    extra_rtt_us: dict[int, int]


def flows_of_the_lab(
    con: duckdb.DuckDBPyConnection, info: RunInfo, busy: Sequence[int]
) -> LabFlows:
    """Return the lab's flows; empty: no lab.

    Starts are from when the first of `busy` connected, a round trip before its first event; stops,
    as those of `busy`, from that event.

    Raises:
        BbrscopeError: a flow pauses, or ends, or is limited: the run does not say by how much.
    """
    rows = con.execute(_SQL, [info.run_id]).fetchall()
    if other := sorted({row[2] for row in rows} - {*_KINDS}):
        raise BbrscopeError(
            f"{info.run}: what-ifs of the lab's runs follow bulk flows; it has {', '.join(other)}",
            "simulate the scenario under both rules: bbrscope simulate SCENARIO --cc",
        )
    of_busy = [row for row in rows if row[0] in busy]
    begun = min((row[3] for row in of_busy), default=0.0)
    opening_us = min((row[5] + row[6] for row in of_busy), default=0)
    beside = tuple(
        FlowSetup(
            cc,
            max(round((start - begun) * 1e6) + opening_us, 0),
            round((stop - begun) * 1e6),
            extra_rtt_us=extra,
        )
        for _, cc, _, start, stop, extra, _ in rows
        if cc in LOSS_BASED and stop is not None and stop > begun
    )
    return LabFlows(beside, {row[0]: row[5] for row in rows if row[0] is not None})
