"""What a capture lacks beside the events of its flows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....collect.store.query import rows
from ...text.quantities import seconds

if TYPE_CHECKING:
    import duckdb

# A tcpdump that is stopped with the flows lacks their last ACKs.
_MOMENT_S = 0.2


def ended_early(con: duckdb.DuckDBPyConnection, run_id: int) -> str:
    """Say how much of the flows' time the capture lacks at its end; empty: a moment at most."""
    (row,) = rows(
        con,
        "SELECT (max(f.last_ns)::BIGINT - max(s.last_ns)::BIGINT) / 1e9 AS lacks FROM flows f"
        " JOIN streams s USING (run_id, flow) WHERE run_id = ? AND f.events > 0",
        run_id,
    )
    if row["lacks"] is None or row["lacks"] < _MOMENT_S:
        return ""
    return f"; the capture ended {seconds(row['lacks'])} before the last event"
