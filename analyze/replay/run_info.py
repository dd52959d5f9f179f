"""What a replay must know of a run, and which runs it refuses."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.bundle.rungs import RUNGS
from ...collect.store.query import first_row, listed
from ...collect.store.schema.recorded_tables import ROWS_LOST, SAMPLE
from ...probes.base.errors import BbrscopeError
from ..bbr.variants.catalogue import VARIANTS
from . import run_params
from .load_events import LONGEST_BLOCK, flow_groups

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
        events: events that are replayed.
        groups: flows that are read at once, see `flow_groups`.
        long_flows: flows of which some events are read at a time; each is a group.
    """

    run_id: int
    run: str
    version: str
    rules: str
    flavour: str
    decoded_as: str
    rows_lost: int
    last_exit_ns: int
    events: int
    groups: tuple[tuple[int, ...], ...]
    long_flows: frozenset[int] = frozenset()
    own_file: tuple[str, ...] = ()

    @property
    def flows(self) -> tuple[int, ...]:
        """The flows that have events."""
        return tuple(flow for group in self.groups for flow in group)


def refusals(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> dict[int, BbrscopeError]:
    """Why runs have nothing to replay, by run_id; without those that can be replayed.

    A run has packets only, was recorded on a rung without callbacks, or does not say what its
    kernel ran with.
    """
    refused: dict[int, BbrscopeError] = {}
    settings = run_params.recorded_settings(con, run_ids)
    for run_id, run, events, version, rung_name in con.execute(
        f"SELECT run_id, run, events, version, rung FROM runs WHERE run_id IN {listed(run_ids)}"
    ).fetchall():
        rung = RUNGS.get(rung_name or "")
        if rung is not None and not rung.replays:
            refused[run_id] = BbrscopeError(
                f"run {run} cannot be replayed: it was recorded by {rung.name}, which cannot"
                f" {rung.cannot}",
                f"what it does show: bbrscope explain {run}; what keeps a host from more: bbrscope"
                " doctor",
            )
        elif not events:
            refused[run_id] = BbrscopeError(
                f"run {run} has no kernel events: there is nothing to replay or explain",
                measured_by_the_lab(con, run_id)
                or f"see what it does tell: bbrscope metrics {run}",
            )
        else:
            try:
                run_params.of_recorded(settings[run_id], version)
            except BbrscopeError as error:
                fact = f"run {run} cannot be replayed: {error.fact}"
                refused[run_id] = BbrscopeError(fact, error.way_out)
    return refused


def measured_by_the_lab(con: duckdb.DuckDBPyConnection, run_id: int) -> str | None:
    """Say where to read of a lab's run of which only the traffic's own numbers were kept."""
    row = first_row(
        con,
        "SELECT scenario FROM lab_runs WHERE run_id = ?"
        " AND run_id NOT IN (SELECT run_id FROM streams)",
        run_id,
    )
    return f"see what its traffic measured: bbrscope study {row[0]}" if row else None


# Its number, events, the last exit's time, and how many events have rs_tx_in_flight.
_Flow = tuple[int, int, int | None, int]

_FLOWS = """
SELECT run_id, flow, count(*), max(exit_ns), count(rs_tx_in_flight) FROM events
WHERE run_id IN {chosen} AND kind <> ? GROUP BY run_id, flow ORDER BY run_id, flow
"""

_VARIANTS = """
SELECT run_id, name, value FROM host_facts
WHERE run_id IN {chosen} AND scope = 'simulated' AND name IN ('variant', 'variant_sha256')
"""


def run_info(con: duckdb.DuckDBPyConnection, run_id: int) -> RunInfo:
    """Read a run's facts; a v1 whose rate samples carry v2's fields runs on a patched kernel.

    Raises:
        BbrscopeError: there is nothing to replay.
    """
    return run_infos(con, [run_id])[0]


def run_infos(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> list[RunInfo]:
    """The same of many runs, in their order, by as many queries as of one.

    Raises:
        BbrscopeError: in one of them, there is nothing to replay.
    """
    chosen = listed(run_ids)
    refused = refusals(con, run_ids)
    for run_id in run_ids:
        if run_id in refused:
            raise refused[run_id]
    flows: dict[int, list[_Flow]] = {run_id: [] for run_id in run_ids}
    for run_id, *rest in con.execute(_FLOWS.format(chosen=chosen), [SAMPLE]).fetchall():
        flows[run_id].append((*rest,))
    said: dict[int, dict[str, str | None]] = {run_id: {} for run_id in run_ids}
    for run_id, name, value in con.execute(_VARIANTS.format(chosen=chosen)).fetchall():
        said[run_id][name] = value
    found = {
        run_id: _info(run_id, run, version, decoded_as, lost, flows[run_id], said[run_id])
        for run_id, run, version, decoded_as, lost in con.execute(
            f"SELECT run_id, run, version, decoded_as, {ROWS_LOST} + coalesce(half_events, 0)"
            f" FROM runs WHERE run_id IN {chosen}"
        ).fetchall()
    }
    return [found[run_id] for run_id in run_ids]


def _info(
    run_id: int,
    run: str,
    version: str,
    decoded_as: str | None,
    rows_lost: int,
    flows: list[_Flow],
    said: Mapping[str, str | None],
) -> RunInfo:
    """The facts of a run from what the store has of it; `said`: what it says of its variant.

    A user's file, which is not in the bundle, is replayed as the version that it begins with.
    """
    flavour, notes = version, [decoded_as] if decoded_as else []
    if version == "v1" and any(count for _, _, _, count in flows):
        flavour = "v1-patched"
        notes.append("its rate samples have tx_in_flight, so the kernel carries v2's patch")
    variant = said.get("variant") or ""
    # A bundle may say any path: a file of the user's own is looked for where the command runs.
    is_own = variant.endswith(".py") and Path(variant).name == variant
    own = (variant, said.get("variant_sha256") or "") if is_own else ()
    if own:
        notes.append(
            f"it was simulated by the rules of {variant}, which is not in its bundle:"
            f" bbrscope replay --as {shlex.quote(f'./{variant}')} goes by them"
        )
    return RunInfo(
        run_id,
        run,
        version,
        variant if variant in VARIANTS else version,
        flavour,
        "; ".join(notes),
        int(rows_lost),
        max((int(exit_ns or 0) for _, _, exit_ns, _ in flows), default=0),
        sum(events for _, events, _, _ in flows),
        flow_groups({flow: events for flow, events, _, _ in flows}),
        frozenset(flow for flow, events, _, _ in flows if events > LONGEST_BLOCK),
        own,
    )
