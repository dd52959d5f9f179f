"""Where the kernel cleared what a flow knew, the recording lacks nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.story.completeness import completeness_of
from bbrscope.analyze.story.flow_stories import flows_of
from bbrscope.analyze.views.store_with_views import open_store


@pytest.mark.parametrize(("kind", "missing"), [("disconnected", 0), ("missing_main", 1)])
def test_a_flow_that_was_disconnected_lacks_no_events(
    kind: str, missing: int, shipped_path: Path, tmp_path: Path
) -> None:
    """close() with SO_LINGER of 0 s calls tcp_disconnect(): the last call finds a cleared state."""
    path = tmp_path / "disconnected.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v2_single_1bdp")
        flow = flows_of(store.con, run_id)[0]
        store.con.execute(
            "INSERT INTO gaps SELECT run_id, flow, seq, ns, ns + 1, 0, ?, 'as put here'"
            " FROM events WHERE run_id = ? AND flow = ? AND seq = 5000",
            [kind, run_id, flow.flow],
        )
        assert completeness_of(store.con, run_id).gaps == missing
        assert len(flows_of(store.con, run_id)[0].gaps) == missing
