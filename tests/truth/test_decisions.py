"""Every decision's numbers, worked out of raw rows, in every recording that lacks none."""

from __future__ import annotations

from pathlib import Path

import pytest
from bbrscope import fixtures
from bbrscope.analyze.bbr.codes import CODES
from bbrscope.collect.store.store import Store

from tests.truth import raw
from tests.truth.decision_rows import Checked
from tests.truth.test_truth import LACKING

# No number of the recordings is by this much larger before or after an event than another.
OTHER = 7919
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
        made = store.con.execute(_DECISIONS, [run_id, flow]).fetchall()
        into.flow(rows, made, raw.manifest(bundle)["constants"])


def test_decisions_of_the_shipped_recordings_say_what_raw_rows_say(shipped: Store) -> None:
    result = Checked()
    for run in shipped.runs():
        checked(shipped, fixtures.path(run), result)
    assert result.wrong == []
    assert not result.left


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
    assert not result.left


def test_a_number_that_rows_do_not_have_is_found(shipped: Store) -> None:
    bundle = fixtures.path("v2_x_spur")
    (rows,) = raw.events(bundle).values()
    ((flow, run_id),) = shipped.con.execute(
        "SELECT flow, run_id FROM flows JOIN runs USING (run_id) WHERE run = ?", [bundle.name]
    ).fetchall()
    decisions = shipped.con.execute(_DECISIONS, [run_id, flow]).fetchall()
    constants = raw.manifest(bundle)["constants"]
    for place in range(4):
        result = Checked()
        altered = [
            (*row[: 2 + place], row[2 + place] + OTHER, *row[3 + place :])
            if len(CODES[row[1]].units) > place
            else row
            for row in decisions
        ]
        result.flow(rows, altered, constants)
        # What the last event left behind is in no row: its decisions are not looked at.
        judged = [row for row in decisions if row[0] < rows["ns"][-1]]
        said = sum(len(CODES[row[1]].units) > place for row in judged)
        assert len(result.wrong) >= said
    result = Checked()
    result.flow(rows, decisions[: len(decisions) // 2], constants)
    assert any("said is" in wrong for wrong in result.wrong)
