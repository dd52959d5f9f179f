"""What a replay must know of a run, and which runs it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...collect.store.query import first_row, rung_of
from ...collect.store.schema.recorded_tables import ROWS_LOST, SAMPLE
from ...probes.base.errors import BbrscopeError
from ..bbr.variants.catalogue import VARIANTS
from . import run_params
from .load_events import flow_groups

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class RunInfo:
    """What the replay must know of a run.

    Attributes:
        version: v1, v2 or v3; decoded_as says why.
        rules: what is replayed: the version, or the variant by name that a simulation ran.
        own_file: the user's file whose rules a simulation ran, which is not in its bundle: its name
            and its digest; empty: none. It is replayed as the version that it begins with.
        flavour: key of params.DEFAULTS.
        rows_lost: rows or events that the recording reports as lost, and events lacking a part.
        last_exit_ns: the last exit row [ns, CLOCK_MONOTONIC]; 0: none.
        groups: flows that are read at once, see `flow_groups`.
    """

    run_id: int
    run: str
    version: str
    rules: str
    flavour: str
    decoded_as: str
    rows_lost: int
    last_exit_ns: int
    groups: tuple[tuple[int, ...], ...]
    own_file: tuple[str, ...] = ()

    @property
    def flows(self) -> tuple[int, ...]:
        """The flows that have events."""
        return tuple(flow for group in self.groups for flow in group)


def require_callbacks(con: duckdb.DuckDBPyConnection, run_id: int) -> None:
    """Refuse a run that has nothing to replay.

    Raises:
        BbrscopeError: it has packets only, was recorded on a rung without callbacks, or does not
            say what its kernel ran with.
    """
    row = first_row(con, "SELECT run, events, version FROM runs WHERE run_id = ?", run_id)
    assert row is not None
    run, events, version = row
    rung = rung_of(con, run_id)
    if rung is not None and not rung.replays:
        raise BbrscopeError(
            f"run {run} cannot be replayed: it was recorded by {rung.name}, which cannot"
            f" {rung.cannot}",
            f"what it does show: bbrscope explain {run}; what keeps a host from more: bbrscope"
            " doctor",
        )
    if not events:
        raise BbrscopeError(
            f"run {run} has no kernel events: there is nothing to replay or explain",
            measured_by_the_lab(con, run_id) or f"see what it does tell: bbrscope metrics {run}",
        )
    try:
        run_params.of_run(con, run_id, version)
    except BbrscopeError as error:
        raise BbrscopeError(f"run {run} cannot be replayed: {error.fact}", error.way_out) from error


def measured_by_the_lab(con: duckdb.DuckDBPyConnection, run_id: int) -> str | None:
    """Say where to read of a lab's run of which only the traffic's own numbers were kept."""
    row = first_row(
        con,
        "SELECT scenario FROM lab_runs WHERE run_id = ?"
        " AND run_id NOT IN (SELECT run_id FROM streams)",
        run_id,
    )
    return f"see what its traffic measured: bbrscope study {row[0]}" if row else None


_FLOWS = """
SELECT flow, count(*), max(exit_ns), count(rs_tx_in_flight) FROM events
WHERE run_id = ? AND kind <> ? GROUP BY flow ORDER BY flow
"""

_VARIANT = """
SELECT name, value FROM host_facts
WHERE run_id = ? AND scope = 'simulated' AND name IN ('variant', 'variant_sha256')
"""


def run_info(con: duckdb.DuckDBPyConnection, run_id: int) -> RunInfo:
    """Read a run's facts; a v1 whose rate samples carry v2's fields runs on a patched kernel.

    Raises:
        BbrscopeError: there is nothing to replay.
    """
    require_callbacks(con, run_id)
    row = first_row(
        con,
        f"SELECT run, version, decoded_as, {ROWS_LOST}"
        " + coalesce(half_events, 0) FROM runs WHERE run_id = ?",
        run_id,
    )
    assert row is not None
    run, version, decoded_as, rows_lost = row
    flows = con.execute(_FLOWS, [run_id, SAMPLE]).fetchall()
    patched = any(count for _, _, _, count in flows)
    flavour = version
    if version == "v1" and patched:
        flavour = "v1-patched"
        decoded_as += "; its rate samples have tx_in_flight, so the kernel carries v2's patch"
    said = dict(con.execute(_VARIANT, [run_id]).fetchall())
    variant = said.get("variant") or ""
    own = (variant, said.get("variant_sha256") or "") if variant.endswith(".py") else ()
    return RunInfo(
        run_id,
        run,
        version,
        variant if variant in VARIANTS else version,
        flavour,
        decoded_as or "",
        int(rows_lost),
        max((int(exit_ns or 0) for _, _, exit_ns, _ in flows), default=0),
        flow_groups({flow: events for flow, events, _, _ in flows}),
        own,
    )
