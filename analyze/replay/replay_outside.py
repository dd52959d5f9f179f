"""Replay a run whose events are at hand elsewhere than in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ..bbr.records import Array
from . import run_params
from .replay_runs import FlowReplay, replay_flow
from .run_info import RunInfo, run_info

if TYPE_CHECKING:
    import duckdb


def replay_outside(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    flows: Callable[[RunInfo], Iterable[tuple[int, dict[str, Array]]]],
) -> list[FlowReplay]:
    """Replay a run of which the store need not have all columns of events: `flows` yields them.

    Raises:
        BbrscopeError: there is nothing to replay.
    """
    info = run_info(con, run_id)
    values = run_params.of_run(con, run_id, info.flavour)
    of_flow = run_params.of_flows(con, [run_id])
    return [
        replay_flow(info, flow, columns, of_flow(run_id, flow, values))
        for flow, columns in flows(info)
    ]
