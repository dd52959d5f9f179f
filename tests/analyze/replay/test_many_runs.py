"""Many runs, some at a time and over several connections, give what each gives alone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from bbrscope.analyze.replay import keep_results, replay_runs
from bbrscope.analyze.replay.flow_replay import FlowPart
from bbrscope.analyze.views import materialize
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError


def _all_rows(store: Store) -> dict[str, list[tuple[int, int]]]:
    """Number and digest of every table's rows, in whatever order; sums of doubles to 9 digits."""
    con = store.con
    tables = con.execute(
        "SELECT table_name, string_agg(format(CASE WHEN data_type = 'DOUBLE' THEN"
        """ 'round("{0}", 9 - ceil(log10(abs("{0}") + 1e-300))::INTEGER)' ELSE '"{0}"' END,"""
        " column_name), ', ' ORDER BY column_index)"
        " FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main'"
        " AND table_name IN (SELECT table_name FROM duckdb_tables() WHERE NOT temporary)"
        " GROUP BY table_name"
    ).fetchall()
    return {
        name: con.execute(f'SELECT count(*), bit_xor(hash({row})) FROM "{name}"').fetchall()
        for name, row in tables
    }


def _results(
    path: Path, events_at_once: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, list[tuple[int, int]]]:
    with open_store(path) as store:
        run_ids = [store.run_id(run) for run in store.runs()]
        monkeypatch.setattr(keep_results, "EVENTS_AT_ONCE", events_at_once)
        monkeypatch.setattr(materialize, "EVENTS_AT_ONCE", max(1, events_at_once))
        monkeypatch.setattr(materialize, "FEWEST_EVENTS", 1)
        parts = replay_runs.replay_parts(store.con, run_ids, workers=workers)
        replayed = [flows[0].info.run_id for flows in keep_results.keep_all(store, parts)]
        assert replayed == run_ids
        materialize.materialize_replayed(store, run_ids, workers)
        return _all_rows(store)


def test_rows_are_the_same_however_many_runs_and_workers_make_them(
    shipped_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.duckdb"
    found = []
    # Each run alone, its flows one after the other; two or three together; all.
    for events_at_once, workers in ((0, 1), (9_000, 2), (10**9, 3)):
        shutil.copy(shipped_path, path)
        found.append(_results(path, events_at_once, workers, monkeypatch))
    assert found[0]["decisions"][0][0] > 10_000
    assert found[0]["materialized_runs"][0][0] == 4
    assert found[1] == found[0]
    assert found[2] == found[0]


def test_runs_before_one_that_cannot_be_replayed_are_stored(
    shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "store.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        first, second = (store.run_id(run) for run in ("v1_x_lt", "v2_x_spur"))
        count = "SELECT run_id, count(*) FROM decisions GROUP BY run_id ORDER BY run_id"
        before = dict(store.con.execute(count).fetchall())
        store.con.execute("DELETE FROM decisions")

        def runs() -> Iterator[Iterator[list[FlowPart]]]:
            yield from replay_runs.replay_parts(store.con, [first])
            raise BbrscopeError("the next cannot be replayed", "none")

        with pytest.raises(BbrscopeError):
            list(keep_results.keep_all(store, runs()))
        assert dict(store.con.execute(count).fetchall()) == {first: before[first]}
        assert second in before
