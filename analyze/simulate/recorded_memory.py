"""The receive buffer of a recording: larger than Linux's own where its windows were."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...collect.store.query import first_row
from .world.receiver import win_from_space
from .world.world_setup import PathSetup
from .world.world_size import RMEM

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

# Who raises tcp_rmem so that it limits nothing raises it to more than any window takes.
_RAISED = 1 << 30


def with_memory(
    con: duckdb.DuckDBPyConnection, run_id: int, flows: Sequence[int], path: PathSetup
) -> PathSetup:
    """The path with a receive buffer that holds the largest window that these flows were given.

    No window shows where it ends, so that one beyond net.ipv4.tcp_rmem's default means no end.
    """
    row = first_row(
        con,
        "SELECT max(tp_snd_wnd)::BIGINT, any_value(version) FROM events JOIN runs USING (run_id)"
        " WHERE run_id = ? AND list_contains(?, flow::INTEGER)",
        run_id,
        list(flows),
    )
    largest, version = row or (None, "")
    usual = win_from_space(RMEM, 3 if version == "v3" else 1)
    if path.memory_bytes or largest is None or largest <= usual:
        return path
    return replace(path, memory_bytes=_RAISED)
