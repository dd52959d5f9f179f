"""The receive buffer of a recording, where its windows were larger than Linux's own, or full.

A window that most ACKs left full is the receiver's limit, not the path's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...collect.store.query import first_row
from .world.receiver import SEGMENT_MEMORY, win_from_space
from .world.world_setup import PathSetup
from .world.world_size import RMEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

# Who raises tcp_rmem so that it limits nothing raises it to more than any window takes.
_RAISED = 1 << 30


# Of so many ACKs what was out filled the window, but for less than a segment.
_MOST_FULL = 0.5
# The receive buffer that a socket begins with (net.ipv4.tcp_rmem's second value).
_FIRST = 131_072


def with_memory(
    con: duckdb.DuckDBPyConnection, run_id: int, flows: Sequence[int], path: PathSetup
) -> PathSetup:
    """The path with a receive buffer that holds the largest window that these flows were given.

    No window shows where it ends unless it was full most of the time, so that one beyond
    net.ipv4.tcp_rmem's default means no end.
    """
    row = first_row(
        con,
        "SELECT max(tp_snd_wnd)::BIGINT, any_value(version), avg(((tp_packets_out"
        " + rs_acked_sacked + 1)::BIGINT * tp_mss_cache > tp_snd_wnd)::INT)"
        " FILTER (kind = 'main' AND tp_snd_wnd > 0) FROM events JOIN runs USING (run_id)"
        " WHERE run_id = ? AND list_contains(?, flow::INTEGER)",
        run_id,
        list(flows),
    )
    largest, version, full = row or (None, "", None)
    if path.memory_bytes or largest is None:
        return path
    kernel = 3 if version == "v3" else 1
    if full is not None and full > _MOST_FULL:
        # tcp_space_from_win() of it, rounded up, and what is not read yet; none begins with less.
        memory = -(-largest * (1 << 20) // win_from_space(1 << 20, kernel))
        memory += path.mss + SEGMENT_MEMORY
        return replace(path, memory_bytes=max(memory, _FIRST))
    if largest <= win_from_space(RMEM, kernel):
        return path
    return replace(path, memory_bytes=_RAISED)
