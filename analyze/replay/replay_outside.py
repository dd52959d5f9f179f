"""Replay a run whose events are at hand elsewhere than in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from . import run_params
from .flow_replay import FlowReplay, whole_flows
from .flow_rows import FlowRows
from .replay_flow import replay_flow
from .run_info import RunInfo, run_info

if TYPE_CHECKING:
    import duckdb


def replay_outside(
    con: duckdb.DuckDBPyConnection,
    run_id: int,
    flows: Callable[[RunInfo], Iterable[FlowRows]],
) -> list[FlowReplay]:
    """Replay a run of which the store need not have all columns of events: `flows` yields them.

    The flows that it returns have their decisions.

    Raises:
        BbrscopeError: there is nothing to replay.
    """
    info = run_info(con, run_id)
    values = run_params.of_run(con, run_id, info.flavour)
    of_flow = run_params.of_flows(con, [run_id])
    return whole_flows(
        part
        for rows in flows(info)
        for part in replay_flow(info, rows, of_flow(run_id, rows.flow, values))
    )
