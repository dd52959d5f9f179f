"""Runs of rung inet_diag: what samples of `ss` tell of each flow, and no more than that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..collect.rungs import RUNGS

if TYPE_CHECKING:
    import duckdb

RUNG = RUNGS["inet_diag"]
# A flow of less acknowledged data has no story worth telling.
TINY_BYTES = 100_000


@dataclass(frozen=True)
class Seen:
    """A mode as samples show it.

    Attributes:
        mode: STARTUP, DRAIN, PROBE_BW or PROBE_RTT, by the gains.
        before_ns: the last sample in the mode before; None if this is the first.
        first_ns, last_ns: samples in this mode; it began after `before_ns`. All since the flow's
            first sample.
        samples: how many.
    """

    mode: str
    before_ns: int | None
    first_ns: int
    last_ns: int
    samples: int


@dataclass(frozen=True)
class SampledFlow:
    """A flow: its row of `sampled_flows`, and the modes it was seen in."""

    flow: int
    summary: dict[str, Any]
    modes: list[Seen]

    @property
    def tiny(self) -> bool:
        """Too little data to have a story."""
        return bool(self.summary["acked_bytes"] < TINY_BYTES)


def is_sampled(con: duckdb.DuckDBPyConnection, run_id: int) -> bool:
    """Is the run made of samples of `ss` alone?"""
    row = con.execute("SELECT rung FROM runs WHERE run_id = ?", [run_id]).fetchone()
    return bool(row and row[0] == RUNG.name)


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[SampledFlow]:
    """The run's flows, the one that carried most first."""
    cursor = con.execute(
        "SELECT * FROM sampled_flows WHERE run_id = ? ORDER BY acked_bytes DESC, flow", [run_id]
    )
    names = [column[0] for column in cursor.description or ()]
    found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return [SampledFlow(row["flow"], row, _modes(con, run_id, row)) for row in found]


def _modes(con: duckdb.DuckDBPyConnection, run_id: int, row: dict[str, Any]) -> list[Seen]:
    rows = con.execute(
        "SELECT mode, before_ns, first_ns, last_ns, samples FROM sampled_modes"
        " WHERE run_id = ? AND flow = ? ORDER BY first_ns",
        [run_id, row["flow"]],
    ).fetchall()
    zero = row["first_ns"]
    return [
        Seen(mode, None if before is None else before - zero, first - zero, last - zero, samples)
        for mode, before, first, last, samples in rows
    ]
