"""Every decision's numbers, worked out of raw rows, in every recording that lacks none."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.collect.store.store import Store

from tests.truth import raw
from tests.truth.decision_rows import Checked
from tests.truth.test_truth import LACKING

# Of all numbers; the others are of targets and limits, of which no row has a value.
LEAST_SHARE = 0.8
_FLOW = "SELECT flow FROM flows WHERE run_id = ? ORDER BY abs(first_ns::HUGEINT - ?) LIMIT 1"
_DECISIONS = """
SELECT ns, code, e0, e1, e2, e3 FROM decisions WHERE run_id = ? AND flow = ? ORDER BY seq, ord
"""


def checked(store: Store, bundle: Path, into: Checked) -> None:
    """Check the decisions of all flows of a run against the rows of its bundle."""
    ((run_id,),) = store.con.execute(
        "SELECT run_id FROM runs WHERE run = ?", [bundle.name]
    ).fetchall()
    for rows in raw.events(bundle).values():
        ((flow,),) = store.con.execute(_FLOW, [run_id, int(rows["ns"][0])]).fetchall()
        into.flow(rows, store.con.execute(_DECISIONS, [run_id, flow]).fetchall())


def test_decisions_of_the_shipped_recordings_say_what_raw_rows_say(shipped: Store) -> None:
    result = Checked()
    for run in shipped.runs():
        checked(shipped, fixtures.path(run), result)
    assert result.wrong == []
    assert result.share > LEAST_SHARE


@pytest.mark.slow
def test_decisions_of_every_recording_say_what_raw_rows_say(
    all_compared: Store, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Checked()
    for run in all_compared.runs():
        if run not in LACKING:
            checked(all_compared, traces / run, result)
    with capsys.disabled():
        print(f"\n{result.table()}")
    assert result.wrong == []
    assert result.share > LEAST_SHARE


def test_a_number_that_rows_do_not_have_is_found(shipped: Store) -> None:
    bundle = fixtures.path("v2_x_spur")
    (rows,) = raw.events(bundle).values()
    ((flow, run_id),) = shipped.con.execute(
        "SELECT flow, run_id FROM flows JOIN runs USING (run_id) WHERE run = ?", [bundle.name]
    ).fetchall()
    decisions = shipped.con.execute(_DECISIONS, [run_id, flow]).fetchall()
    for place in (0, 1):
        result = Checked()
        altered = [
            (*row[: 2 + place], row[2 + place] + 1, *row[3 + place :])
            if row[2 + place] is not None
            else row
            for row in decisions
        ]
        result.flow(rows, altered)
        assert len(result.wrong) > len(decisions) / 3
    result = Checked()
    result.flow(rows, decisions[: len(decisions) // 2])
    assert any("said is" in wrong for wrong in result.wrong)
