"""Divide runs into those that queries look at together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

# Runs are looked at together while they are so few, and have so few events, which takes ~200 MB:
# planning the queries takes as long for many small runs as for one.
RUNS_TOGETHER, EVENTS_TOGETHER = 48, 520_000


def together(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    most: int = RUNS_TOGETHER,
    most_events: int = EVENTS_TOGETHER,
) -> Iterator[list[int]]:
    """Divide runs, in their order, into groups of `most`, each to be looked at by one query.

    Groups of runs with more than `most_events` events in all are smaller.
    """
    sizes = dict(con.execute("SELECT run_id, coalesce(events, 0) FROM runs").fetchall())
    group: list[int] = []
    held = 0
    for run_id in run_ids:
        if group and (len(group) == most or held + sizes[run_id] > most_events):
            yield group
            group, held = [], 0
        group.append(run_id)
        held += sizes[run_id]
    if group:
        yield group
