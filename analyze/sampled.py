"""Runs of samples, by `ss` or in a kernel's log: what they tell of each flow, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..collect.query import rows
from ..collect.rungs import RUNGS, SAMPLED, Rung

if TYPE_CHECKING:
    import duckdb

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
    """A flow: how it was sampled, its row of `sampled_flows`, and the modes it was seen in."""

    flow: int
    rung: Rung
    summary: dict[str, Any]
    modes: list[Seen]

    @property
    def tiny(self) -> bool:
        """Too little data to have a story."""
        return bool(self.summary["acked_bytes"] < TINY_BYTES)


def rung_of(con: duckdb.DuckDBPyConnection, run_id: int) -> Rung | None:
    """Return how the run was sampled; None: it is not made of samples alone."""
    row = con.execute("SELECT rung FROM runs WHERE run_id = ?", [run_id]).fetchone()
    return RUNGS[row[0]] if row and row[0] in SAMPLED else None


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[SampledFlow]:
    """The flows of a run of samples, the one that carried most first."""
    rung = rung_of(con, run_id)
    assert rung is not None  # the caller asked
    found = rows(
        con, "SELECT * FROM sampled_flows WHERE run_id = ? ORDER BY acked_bytes DESC, flow", run_id
    )
    return [SampledFlow(row["flow"], rung, row, _modes(con, run_id, row)) for row in found]


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
