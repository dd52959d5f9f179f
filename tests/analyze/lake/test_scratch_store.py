"""A store for one group of bundles after another keeps its memory from one to the next."""

from __future__ import annotations

import resource
from pathlib import Path

from bbrscope.analyze.lake.scratch_store import scratch_store

# 40 MB: much less than such a store may hold.
ROWS = 5_000_000


def page_faults_of_filling(folder: Path) -> int:
    """Return how often the system had to find memory while a table was filled."""
    with scratch_store(folder) as store:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        store.con.execute(f"CREATE TEMP TABLE filled AS SELECT range AS n FROM range({ROWS})")
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        store.con.execute("DROP TABLE filled")
    return faults


def test_a_group_is_worked_on_in_the_memory_of_the_one_before(tmp_path: Path) -> None:
    first, second = (page_faults_of_filling(tmp_path) for _ in range(2))
    assert second < first / 2
