"""Runs of a lake are listed by name, whatever order the digests of their bundles have."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.diagnosis.engine import Diagnosis
from bbrscope.analyze.lake import lake_session
from bbrscope.analyze.lake.load_runs import AddOptions, file_bundles
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.reports.api.opening import open
from bbrscope.reports.choose import by_condition, by_name

_READ = "SELECT DISTINCT run FROM events JOIN runs USING (run_id)"


def said(made: Diagnosis) -> tuple[str, list[tuple[str, int | None, int]], list[tuple[str, str]]]:
    found = [(one.rule.name, one.flow, one.t0_ns) for one in made.findings]
    return made.run, found, [(check.rule.name, check.outcome) for check in made.checks]


def test_every_way_to_name_runs_lists_them_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert recordings.metrics(by="run")["run"].to_list() == names
        whole = recordings.diagnose()
        # Some runs at a time, with the files of those alone.
        monkeypatch.setattr(lake_session, "RUNS_AT_ONCE", 3)
        parts: list[set[str]] = []
        for some in recordings.store.in_parts(names):
            parts.append({run for (run,) in recordings.store.con.execute(_READ).fetchall()})
            assert parts[-1] == set(some)
        assert len(parts) == -(-len(names) // 3) > 1
        assert [one.run for one in whole] == names
        assert [said(one) for one in recordings.diagnose()] == [said(one) for one in whole]
        assert len(recordings.store.con.execute(_READ).fetchall()) == len(names)
