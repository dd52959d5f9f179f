"""Replay whole runs out of the store: load flows, replay them in parallel, yield what is found."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ...collect.store.limits import MEMORY, limited
from ...collect.store.query import first_row
from . import run_params
from .flow_replay import FlowPart, FlowReplay, whole_flows
from .load_events import rows_of_flows
from .replay_flow import replay_flow
from .run_info import RunInfo, run_infos

if TYPE_CHECKING:
    import duckdb

# Runs with so many events in all are read by one query, which takes some 50 MB.
EVENTS_TOGETHER = 40_000


def replay_runs(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    decisions: bool = True,
    workers: int = 2,
    advance: Callable[[int], None] = lambda events: None,
) -> Iterator[list[FlowReplay]]:
    """Replay runs, flows in parallel; yields one list of flows per run, in order.

    `advance` is called with how many events were finished, for a progress bar.
    """
    for parts in replay_parts(con, run_ids, decisions, workers, advance):
        yield whole_flows(part for some in parts for part in some)


def replay_parts(
    con: duckdb.DuckDBPyConnection,
    run_ids: Sequence[int],
    decisions: bool = True,
    workers: int = 2,
    advance: Callable[[int], None] = lambda events: None,
) -> Iterator[Iterator[list[FlowPart]]]:
    """The same, some flows of a run at a time, of a long one some of its events.

    Take all of one run before the next. Parts of a run's long flows come in turns.
    """
    infos = run_infos(con, run_ids)
    settings = run_params.recorded_settings(con, run_ids)
    shared = {
        info.run_id: run_params.of_recorded(settings[info.run_id], info.flavour) for info in infos
    }
    of_flow = run_params.of_flows(con, run_ids)

    def found(groups: list[_Group]) -> Generator[FlowPart]:
        runs = {group.info.run_id: group.info for group in groups}
        flows = min(group.flows[0] for group in groups), max(group.flows[-1] for group in groups)
        with con.cursor() as cursor:
            for run_id, rows in rows_of_flows(cursor, [*runs], flows, groups[0].info.long_flows):
                values = of_flow(run_id, rows.flow, shared[run_id])
                yield from replay_flow(runs[run_id], rows, values, decisions)

    groups = (_Group(info, flows) for info in infos for flows in info.groups)
    tasks = (_Task(some, found(some)) for some in _together(groups))
    # The CPUs are shared by flows: DuckDB's threads, which would wait for work, cost a tenth.
    with (
        limited(con, threads=1, memory_limit=f"{MEMORY}B"),
        ThreadPoolExecutor(max_workers=max(1, workers)) as pool,
    ):
        # As few as keep the workers busy: what was found waits in memory until it is taken.
        begun = (_Ahead(task, pool.submit(task.turn)) for task in tasks)
        ahead = deque(islice(begun, 2 * max(1, workers)))

        def coming() -> Iterator[_Part]:
            while ahead:
                task, done = ahead[0].task, ahead[0].turn.result()
                ahead.popleft()
                if done[-1].is_last:
                    ahead.extend(islice(begun, 1))
                else:
                    others = sum(1 for one in ahead if one.task.run_id == task.run_id)
                    ahead.insert(others, _Ahead(task, pool.submit(task.turn)))
                yield from done

        parts = coming()
        try:
            for info in infos:
                yield _of_run(parts, len(info.groups), advance)
        finally:
            pool.shutdown(cancel_futures=True)
            for one in ahead:
                one.task.found.close()


def _of_run(
    parts: Iterator[_Part], groups: int, advance: Callable[[int], None]
) -> Iterator[list[FlowPart]]:
    """Take what was found of the next run, which has so many groups."""
    while groups:
        part = next(parts)
        groups -= part.is_last
        advance(sum(one.events for one in part.found))
        yield part.found


@dataclass(frozen=True)
class _Group:
    """Flows of a run that are read at once, see `flow_groups`."""

    info: RunInfo
    flows: tuple[int, ...]

    @property
    def is_long(self) -> bool:
        """It is a flow of which some events are read at a time."""
        return self.flows[0] in self.info.long_flows


@dataclass(frozen=True)
class _Part:
    """What was found of a group of flows, all of it or some."""

    found: list[FlowPart]
    is_last: bool


@dataclass(frozen=True)
class _Task:
    """Work on groups of several small runs, or on one group of a large one."""

    groups: list[_Group]
    found: Generator[FlowPart]

    @property
    def run_id(self) -> int:
        """The first run's."""
        return self.groups[0].info.run_id

    def turn(self) -> list[_Part]:
        """Find all of the groups, or what comes next of a long flow."""
        if self.groups[0].is_long:
            part = next(self.found, None)
            return [_Part([part] if part else [], part is None or part.flow is not None)]
        of_run: dict[int, list[FlowPart]] = {group.info.run_id: [] for group in self.groups}
        for part in self.found:
            of_run[part.run_id].append(part)
        return [_Part(parts, True) for parts in of_run.values()]


@dataclass(frozen=True)
class _Ahead:
    """A task and its next turn, which the pool works on."""

    task: _Task
    turn: Future[list[_Part]]


def _together(groups: Iterable[_Group]) -> Iterator[list[_Group]]:
    """Divide groups into those that are read at once: small runs, or a group of a large one."""
    some: list[_Group] = []
    held = 0
    for group in groups:
        alone = len(group.info.groups) > 1 or group.is_long
        if some and (alone or held + group.info.events > EVENTS_TOGETHER):
            yield some
            some, held = [], 0
        if alone:
            yield [group]
            continue
        some.append(group)
        held += group.info.events
    if some:
        yield some


def total_events(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> int:
    """Events of the runs, for a progress bar."""
    query = "SELECT count(*) FROM events WHERE run_id IN (SELECT unnest(?))"
    row = first_row(con, query, list(run_ids))
    return int(row[0]) if row else 0
