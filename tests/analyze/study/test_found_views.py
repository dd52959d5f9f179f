"""What a study finds of views for its own runs is what the store's views hold."""

from __future__ import annotations

import shutil
from pathlib import Path

from bbrscope.analyze.study import found_views
from bbrscope.analyze.views.materialize import forget, lacking, runs_with_rows
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.api.replayed import open_replayed

VIEWS = ("phases", "rounds", "transitions")


def sums(store: Store, run_id: int) -> list[object]:
    return [
        store.con.execute(
            f"SELECT count(*), bit_xor(hash(x)) FROM (FROM {view} WHERE run_id = {run_id}) x"
        ).fetchall()
        for view in VIEWS
    ]


def test_views_that_queries_name_have_the_rows_of_the_runs(
    shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_single_1bdp")
        stored = sums(store, run_id)
        with store.transaction() as con:
            forget(con, [run_id])
    with open_store(path, read_only=True) as store:
        found_views.find(store.con, [run_id], [f"FROM {view}" for view in VIEWS])
        assert sums(store, run_id) == stored
        # Nothing of other runs, nothing that no query names.
        for view in VIEWS:
            runs = store.con.execute(f"SELECT DISTINCT run_id FROM {view}").fetchall()
            assert runs == [(run_id,)]
        tables = store.con.execute("SELECT table_name FROM duckdb_tables() WHERE temporary")
        assert {row[0] for row in tables.fetchall()} == {f"found_{view}" for view in VIEWS}
        assert lacking(store.con, [run_id]) == [run_id]
    # What comes next and looks at the run closely has its rows stored.
    with open_replayed(path, "v2_single_1bdp") as store:
        assert run_id in runs_with_rows(store.con)
        assert sums(store, run_id) == stored


def test_stored_rows_are_read_where_they_are(shipped_path: Path) -> None:
    with open_store(shipped_path, read_only=True) as store:
        found_views.find(store.con, [store.run_id("v1_x_lt")], ["FROM phases"])
        tables = store.con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary")
        assert tables.fetchall() == [(0,)]
