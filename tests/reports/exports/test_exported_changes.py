"""What every format is told: phase changes are those of the store, decisions have their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.reports.exports.export_scope import scope_of
from bbrscope.reports.exports.exported_changes import exported_changes


@pytest.mark.parametrize(
    ("run", "everything", "decision"),
    [("v1_x_lt", False, "CYC_NEXT_TIME"), ("v2_single_1bdp", True, "CRUISE_STAY")],
)
def test_a_decision_about_the_phase_is_no_phase_change(
    shipped_path: Path, run: str, everything: bool, decision: str
) -> None:
    with open_store(shipped_path, read_only=True) as store:
        scope = scope_of(store, run, 1, (0, 2 * 10**9), "kernel", everything)
        told = list(exported_changes(scope, scope.flows[0]))
        here = "WHERE run = ? AND flow = 1 AND ns BETWEEN ? AND ?"
        values = [run, *(scope.window or ())]
        phases = store.con.execute(
            f"SELECT seq, from_phase, to_phase FROM transitions {here} ORDER BY seq", values
        ).fetchall()
        count = f"SELECT count(*) FROM decision_log {here} AND name = ?"
        (decided,) = store.con.execute(count, [*values, decision]).fetchall()[0]
    changes = [item.change for item in told if item.change.is_phase]
    assert [(change.seq, change.old, change.new) for change in changes] == phases
    named = [item for item in told if item.change.name == decision]
    assert len(named) == decided
    lines = [item.line for item in named if not item.change.is_phase]
    assert len(lines) > 5
    assert all(line.startswith(f"{decision}: ") for line in lines)
