"""Replay runs whose events are at hand elsewhere than in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import run_params
from .flow_replay import FlowPart
from .flow_rows import FlowRows
from .replay_flow import replay_flow
from .run_info import RunInfo, refusals, run_infos

if TYPE_CHECKING:
    import duckdb


def replay_outside(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    flows: Callable[[RunInfo], Iterable[FlowRows]],
) -> Iterator[FlowPart]:
    """Replay runs of which the store need not have all columns of events: `flows` yields them.

    Yields what was found of one run after the other, flow by flow; nothing of those that cannot be
    replayed. What the store knows of them is asked once for all.
    """
    refused = refusals(con, run_ids)
    infos = run_infos(con, [run_id for run_id in run_ids if run_id not in refused])
    settings = run_params.recorded_settings(con, run_ids)
    of_flow = run_params.of_flows(con, run_ids)
    for info in infos:
        values = run_params.of_recorded(settings[info.run_id], info.flavour)
        for rows in flows(info):
            yield from replay_flow(info, rows, of_flow(info.run_id, rows.flow, values))
