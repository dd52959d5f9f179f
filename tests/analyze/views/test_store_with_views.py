"""A store that was opened has all views in its file, and deleting a run leaves nothing of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from threading import Event

import duckdb
import pytest
from bbrscope import fixtures
from bbrscope.analyze.views import materialize, store_with_views
from bbrscope.analyze.views.registry import TABLES, VIEWS
from bbrscope.analyze.views.store_with_views import open_for_loading, open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store import store as recorded
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import StoreError

pytestmark = pytest.mark.usefixtures("stores_from_scratch")

EVERY_NAME = {item.name for item in (*TABLES, *VIEWS, *materialize.TABLES)} | {
    materialize.stored_name(view) for view in materialize.MATERIALIZED_VIEWS
}


def names_in(path: Path) -> set[str]:
    """What any DuckDB shell finds in a file."""
    with duckdb.connect(str(path), read_only=True) as con:
        return {row[0] for row in con.execute("SHOW TABLES").fetchall()}


def test_views_stay_in_the_file_for_any_duckdb_shell(tmp_path: Path) -> None:
    path = tmp_path / "new.duckdb"
    with open_store(path):
        pass
    assert names_in(path) == EVERY_NAME


def test_views_of_a_new_store_are_made_while_bundles_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, loaded = tmp_path / "new.duckdb", Event()
    install, opened = store_with_views.install, []
    monkeypatch.setattr(
        store_with_views, "install", lambda store: (loaded.wait(60), install(store))
    )
    connect = recorded.connect
    monkeypatch.setattr(
        recorded, "connect", lambda file, *rest: (opened.append(file), connect(file, *rest))[1]
    )
    with open_for_loading(path, views_at_end=True) as store:
        ingest(store, fixtures.path("v2_x_spur"), packets=False)
        loaded.set()
    assert names_in(path) == EVERY_NAME
    assert opened.count(path) == 1  # not once more, to see whether it got a run
    with open_store(path, read_only=True) as store:
        assert store.runs() == ["v2_x_spur"]


def test_views_that_cannot_be_made_meanwhile_are_told_and_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, empty = tmp_path / "new.duckdb", tmp_path / "empty.duckdb"

    def fail(store: Store) -> None:
        raise StoreError("no views", "free some space")

    with monkeypatch.context() as changed:
        changed.setattr(store_with_views, "install", fail)
        with (
            pytest.raises(StoreError, match="no views"),
            open_for_loading(path, views_at_end=True) as store,
        ):
            ingest(store, fixtures.path("v2_x_spur"), packets=False)
        with (
            pytest.raises(ZeroDivisionError),
            open_for_loading(empty, views_at_end=True),
        ):
            raise ZeroDivisionError
    assert not empty.exists()
    with open_for_loading(path, views_at_end=True) as store:
        assert store.runs() == ["v2_x_spur"]
    assert names_in(path) == EVERY_NAME


def test_a_store_of_recorded_tables_alone_gets_views_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "recorded.duckdb"
    with recorded.open_store(path) as store:
        ingest(store, fixtures.path("v2_x_spur"), packets=False)
    before = path.read_bytes()
    with open_store(path, read_only=True) as store:
        live = store.con.execute("FROM phases").fetchall()
        assert live
        assert store.con.execute("FROM decisions").fetchall() == []
    assert path.read_bytes() == before
    with open_store(path) as store:
        assert store.con.execute("FROM phases").fetchall() == live


def test_a_query_that_fails_over_a_strangers_view_says_so(tmp_path: Path) -> None:
    path, copy = tmp_path / "s.duckdb", tmp_path / "copy.duckdb"
    with open_store(path):
        pass
    asked = "SELECT r.run_id, p.run FROM phases p JOIN run_clocks r USING (run_id) WHERE no"
    with pytest.raises(duckdb.BinderException, match='"no"'), open_store(path, True) as store:
        store.con.execute(asked)
    for statement, why in (
        ("VIEW phases AS FROM duckdb_settings()", "phases has other columns"),
        ("VIEW run_clocks AS SELECT 1 AS run_id", "run_clocks has other columns"),
        ("VIEW states AS FROM gone", "states cannot be read"),
        ("MACRO unset() AS (SELECT min(a) FROM gone)", "cannot be read"),
    ):
        shutil.copy(path, copy)
        with duckdb.connect(str(copy)) as con:
            con.execute("CREATE TABLE gone (a INTEGER)")
            con.execute(f"CREATE OR REPLACE {statement}")
            con.execute("DROP TABLE gone")
        with pytest.raises(StoreError, match=why), open_store(copy, True) as store:
            store.con.execute(asked)


def test_a_deleted_run_leaves_no_row_in_any_table(shipped_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.duckdb"
    path.write_bytes(shipped_path.read_bytes())
    with open_store(path) as store:
        for run in store.runs():
            with store.transaction():
                store.delete_run(store.run_id(run))
        left = {
            item.name
            for item in (*TABLES, *VIEWS, *materialize.TABLES)
            if store.con.execute(f'SELECT 1 FROM "{item.name}" LIMIT 1').fetchall()
        }
    # What no run owns.
    assert left == {"meta", "decision_codes", "rungs"}


def test_a_replayed_run_that_gets_packets_has_its_rows_stored_anew(tmp_path: Path) -> None:
    path, bundle = tmp_path / "s.duckdb", fixtures.path("v2_single_1bdp")
    with open_store(path) as store:
        run_id = ingest(store, bundle, packets=False).run_id
        with store.transaction() as con:
            con.execute("INSERT INTO replays BY NAME SELECT ? AS run_id, 1 AS flow", [run_id])
            materialize.materialize(con, [run_id])
    stored = "SELECT count(pkt_acked_bytes) FROM materialized_metrics_by_flow"
    with open_for_loading(path) as store:
        assert store.con.execute(stored).fetchall() == [(0,)]
        ingest(store, bundle)
        assert store.con.execute("FROM materialized_runs").fetchall() == []
    with open_store(path, read_only=True) as store:
        assert store.con.execute("FROM materialized_runs").fetchall() == [(run_id,)]
        assert store.con.execute(stored).fetchall() == [(3,)]
