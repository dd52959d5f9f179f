"""Open a store in which the decisions of some runs are known."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError, StoreError

if TYPE_CHECKING:
    from ...collect.store.store import Store


def open_replayed(path: Path, *runs: str) -> Store:
    """Open the store to read; replay first those of `runs` whose decisions are not stored yet.

    The rows of materialized views are stored with them, and those of runs that a study replayed.
    Of a lake, the files of other runs stay unopened.

    Raises:
        BbrscopeError: a run was not replayed, and the store cannot be written.
    """
    from ...analyze.views.materialize import lacking, materialize_replayed
    from ...analyze.views.store_with_views import open_store

    opened = open_store(path, read_only=True)
    try:
        missing = not_replayed(opened, runs)
        without_rows = lacking(opened.con, [opened.run_id(run) for run in runs])
    except BaseException:
        opened.close()
        raise
    if missing or without_rows:
        opened.close()
        if missing:
            replay(path, missing)
        # Without stored rows the views say the same, only later: no reason to fail.
        with suppress(StoreError), open_store(path) as writable:
            materialize_replayed(writable, without_rows)
        opened = open_store(path, read_only=True)
    opened.restrict_to(runs)
    return opened


def not_replayed(store: Store, runs: Sequence[str]) -> dict[int, str]:
    """Return ids and names of those runs whose decisions are not stored."""
    from ...analyze.story.event_flows import without_decisions

    ids = {store.run_id(run): run for run in runs}
    return {run_id: ids[run_id] for run_id in without_decisions(store.con, [*ids])}


def replay(path: Path, runs: dict[int, str], rows_of_views: bool = True) -> None:
    """Replay runs, names by id, and store their decisions, and the rows of materialized views.

    Raises:
        BbrscopeError: the store cannot be written.
    """
    from ...analyze.replay import keep_results, replay_runs
    from ...analyze.views.materialize import materialize_replayed
    from ...analyze.views.store_with_views import open_store
    from ..text.progress_bar import progress

    try:
        writable = open_store(path)
    except StoreError as error:
        run = next(iter(runs.values()))
        raise BbrscopeError(
            f"{run} has not been replayed, and its decisions cannot be stored: {error.fact}",
            f"replay it where {path} can be written: bbrscope replay {run} --store {path}",
        ) from error
    with (
        writable,
        progress(replay_runs.total_events(writable.con, list(runs)), "replaying") as tell,
    ):
        replays = replay_runs.replay_parts(writable.con, list(runs), advance=tell)
        for _ in keep_results.keep_all(writable, replays):
            pass
        if rows_of_views:
            materialize_replayed(writable, list(runs))
