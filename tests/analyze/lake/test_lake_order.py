"""Runs of a lake are listed by name, whatever order the digests of their bundles have."""

from __future__ import annotations

from pathlib import Path

from bbrscope import fixtures
from bbrscope.analyze.lake.load_runs import AddOptions, file_bundles
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.reports.api.opening import open
from bbrscope.reports.choose import by_condition, by_name


def test_every_way_to_name_runs_lists_them_by_name(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    open_place(str(lake), create=True)
    bundles = [fixtures.path(name) for name in fixtures.names()]
    file_bundles(str(lake), bundles, AddOptions(packets=False))
    names = sorted(fixtures.names())
    with open_store(lake, read_only=True) as store:
        digests = store.con.execute("SELECT run FROM runs ORDER BY run_id").fetchall()
        assert [run for (run,) in digests] != names
        assert store.runs() == by_name(store, ["v*"]) == names
    assert by_condition(lake, "events > 0") == names
    with open(lake) as recordings:
        assert recordings.runs()["run"].to_list() == names
