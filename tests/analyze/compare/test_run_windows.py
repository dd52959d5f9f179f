"""Metrics of a window against sums over the recorded rows in it, and windows that tile a run."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from bbrscope.analyze.compare import groups, run_metrics, run_windows
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.cli import cli
from click.testing import CliRunner

RUN = "v2_single_1bdp"
SECOND = 1_000_000_000


def _events(store: Store, run_id: int) -> list[tuple[int, ...]]:
    return store.con.execute(
        "SELECT ns, tp_snd_una, tp_lost, kind = 'main', rs_rtt_us FROM events JOIN flows"
        " USING (run_id, flow) WHERE run_id = ? AND flow = 1 AND seq >= pre_init ORDER BY seq",
        [run_id],
    ).fetchall()


def test_a_window_has_what_its_rows_brought(shipped: Store) -> None:
    run_id = shipped.run_id(RUN)
    first, last = 5 * SECOND, 9 * SECOND
    windows = run_windows.between(shipped.con, [run_id], first, last)
    rows = run_metrics.table(shipped.con, [run_id], "flow", windows).to_pylist()
    (flow,) = (row for row in rows if row["flow"] == 1)
    events = _events(shipped, run_id)
    zero = events[0][0]
    inside = [(before, row) for before, row in pairwise(events) if first <= row[0] - zero < last]
    acked = sum((row[1] - before[1]) % 2**32 for before, row in inside)
    assert flow["acked_bytes"] == acked
    assert flow["goodput_mbps"] == pytest.approx(acked * 8 / 1e6 / 4)
    assert flow["lost_packets"] == sum(row[2] - before[2] for before, row in inside)
    rtts = [row[4] for _, row in inside if row[3] and row[4] is not None and row[4] > 0]
    assert flow["rtt_p50_us"] == median(rtts)
    assert (flow["start_s"], flow["duration_s"]) == (5.0, 4.0)
    (second, *_) = (
        row
        for row in run_metrics.table(shipped.con, [run_id], "second", windows).to_pylist()
        if row["flow"] == 1 and row["t_s"] == 6
    )
    assert second["acked_bytes"] == sum(
        (row[1] - before[1]) % 2**32
        for before, row in inside
        if 6 * SECOND <= row[0] - zero < 7 * SECOND
    )


def test_windows_that_tile_a_run_add_up_to_it(shipped: Store) -> None:
    run_id = shipped.run_id(RUN)
    parts = []
    for first, last in pairwise([0, 3 * SECOND, 3 * SECOND + 7, 60 * SECOND]):
        windows = run_windows.between(shipped.con, [run_id], first, last)
        parts += run_metrics.table(shipped.con, [run_id], "phase", windows).to_pylist()
    whole = run_metrics.table(shipped.con, [run_id], "phase").to_pylist()
    for column in ("acked_bytes", "lost_packets", "delivered_packets"):
        for phase in {row["phase"] for row in whole}:
            one, other = (
                sum(row[column] or 0 for row in found if row["phase"] == phase)
                for found in (whole, parts)
            )
            assert one == other, (column, phase)
    shares = groups.measure(shipped.con, [run_id], windows)
    for kind in ("phase", "limit"):
        found = [values[run_id] for key, values in shares.items() if key.kind == kind]
        assert sum(found) == pytest.approx(1)


def test_the_steady_state_begins_after_startup_and_drain(shipped: Store) -> None:
    run_id = shipped.run_id(RUN)
    windows = run_windows.steady(shipped.con, [run_id])
    decided = shipped.con.execute(
        "SELECT min(ns) FROM transitions WHERE run_id = ? AND flow = 1"
        " AND from_phase = 'DRAIN' AND to_phase LIKE 'PROBE_BW%'",
        [run_id],
    ).fetchall()[0][0]
    assert windows.ends[run_id][0] == decided
    rows = run_metrics.table(shipped.con, [run_id], "phase", windows).to_pylist()
    # Flow 2 is the control connection, which never leaves STARTUP, and does not count.
    phases = {row["phase"] for row in rows if row["flow"] == 1}
    assert "PROBE_BW_CRUISE" in phases
    assert not phases & {"STARTUP", "DRAIN"}


def test_commands_measure_windows_and_say_so(shipped_path: Path) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(cli, [*words, "--store", str(shipped_path)])
        assert done.exit_code in (0, 1), done.output
        assert not isinstance(done.exception, BbrscopeError), done.exception
        return done.output

    assert f"{RUN}: measured from 5.000 s to 9.000 s" in run(
        "metrics", RUN, "--between", "5s", "9s"
    )
    output = run("diff", RUN, "v3_x_tlp5", "--steady")
    assert output.count(": measured from ") == 2
    rows = json.loads(run("diff", RUN, RUN, "--between", "5s", "9s", "--format", "json"))
    assert {row["verdict"] for row in rows} == {"same"}
    for words in (["--between", "9s", "5s"], ["--between", "1s", "2s", "--steady"]):
        refused = CliRunner().invoke(cli, ["metrics", RUN, *words, "--store", str(shipped_path)])
        assert refused.exit_code == 2
    empty = CliRunner().invoke(
        cli, ["metrics", RUN, "--between", "90s", "95s", "--store", str(shipped_path)]
    )
    assert empty.exit_code == 1
    assert "from 90 s to 95 s" in str(empty.exception)


def test_a_flow_that_never_leaves_startup_has_no_steady_state(
    shipped_path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "store.duckdb"
    shutil.copy(shipped_path, copy)
    with open_store(copy) as store:
        run_id = store.run_id(RUN)
        settled = run_windows.steady(store.con, [run_id]).ends[run_id][0]
        store.con.execute("DELETE FROM events WHERE run_id = ? AND ns >= ?", [run_id, settled])
        forget(store.con, [run_id])
        with pytest.raises(BbrscopeError, match="no steady state"):
            run_windows.steady(store.con, [run_id])
