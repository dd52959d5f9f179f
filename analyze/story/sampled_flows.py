"""Runs of samples, by `ss` or in a kernel's log: what they tell of each flow, and no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...collect.bundle.rungs import SAMPLED, Rung
from ...collect.store.query import Row, rows, rung_of
from . import changes as names
from .changes import Change
from .clock import run_zero
from .facts import SampleTotals, StoryFacts

if TYPE_CHECKING:
    import duckdb

# A flow of less acknowledged data has no story worth telling.
TINY_BYTES = 100_000


@dataclass(frozen=True)
class SeenMode:
    """A mode as samples show it; times are CLOCK_MONOTONIC [ns].

    Attributes:
        mode: STARTUP, DRAIN, PROBE_BW or PROBE_RTT, by the gains.
        before_ns: the last sample in the mode before; None if this is the first.
        first_ns, last_ns: samples in this mode; it began after `before_ns`.
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

    run_id: int
    run: str
    flow: int
    zero_ns: int
    rung: Rung
    summary: dict[str, Any]
    modes: list[SeenMode]

    @property
    def first_ns(self) -> int:
        """Its first sample, CLOCK_MONOTONIC."""
        return int(self.summary["first_ns"])

    @property
    def last_ns(self) -> int:
        """Its last sample, CLOCK_MONOTONIC."""
        return int(self.summary["last_ns"])

    @property
    def tiny(self) -> bool:
        """Too little data to have a story."""
        return bool(self.summary["acked_bytes"] < TINY_BYTES)


def sampled_by(con: duckdb.DuckDBPyConnection, run_id: int) -> Rung | None:
    """Return how the run was sampled; None: it is not made of samples only."""
    rung = rung_of(con, run_id)
    return rung if rung and rung.name in SAMPLED else None


def flows_of(con: duckdb.DuckDBPyConnection, run_id: int) -> list[SampledFlow]:
    """Return the flows of a run of samples, the one that carried most first."""
    rung = sampled_by(con, run_id)
    assert rung is not None  # the caller asked
    records = rows(
        con, "SELECT * FROM sampled_flows WHERE run_id = ? ORDER BY acked_bytes DESC, flow", run_id
    )
    zero_ns = run_zero(con, run_id) or 0
    return [
        SampledFlow(
            run_id, row["run"], row["flow"], zero_ns, rung, row, _modes(con, run_id, row["flow"])
        )
        for row in records
    ]


def _modes(con: duckdb.DuckDBPyConnection, run_id: int, flow: int) -> list[SeenMode]:
    records = con.execute(
        "SELECT mode, before_ns, first_ns, last_ns, samples FROM sampled_modes"
        " WHERE run_id = ? AND flow = ? ORDER BY first_ns",
        [run_id, flow],
    ).fetchall()
    return [SeenMode(*row) for row in records]


def changes_of(flow: SampledFlow) -> list[Change]:
    """Return the modes that the samples show as changes of the phase."""
    changes, old = [], None
    for seen in flow.modes:
        doubt = ""
        if seen.before_ns is not None:
            doubt = f"up to {(seen.first_ns - seen.before_ns) / 1e6:.1f} ms earlier"
        ns = seen.first_ns
        changes.append(
            Change(-1, ns, "phase", old, seen.mode, names.SAMPLED, (), 0, doubt, until_ns=ns)
        )
        old = seen.mode
    return changes


def facts_of(flow: SampledFlow) -> StoryFacts:
    """Return the facts of a sampled flow: between two samples anything may have come and gone."""
    return StoryFacts(None, _totals(flow.summary))


def _totals(row: Row) -> SampleTotals:
    goodput, bw = row["goodput_mbps"], row["bw_max_mbps"]
    return SampleTotals(
        row["duration_ns"] or 0,
        row["samples"],
        row["acked_bytes"],
        None if goodput is None else goodput * 1e6,
        row["retrans_packets"],
        row["lost_packets"],
        row["min_rtt_us"],
        None if bw is None else bw * 1e6,
    )
