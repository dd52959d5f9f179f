"""Every command counts time from the same instant, whatever else was recorded before it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.registry import VIEWS
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.reports.cli import cli
from bbrscope.reports.html.data.select import load_run
from click.testing import CliRunner

RUN = "v2_x_spur"
# Flow 9 did what flow 1 did in its first 30 ACKs, two seconds earlier.
EARLIER_FLOW = (
    "INSERT INTO events SELECT * REPLACE (9 AS flow, ns - 2000000000 AS ns) FROM events"
    " WHERE run_id = {run_id} AND seq < 40",
    "INSERT INTO flows SELECT f.* REPLACE (9 AS flow, f.first_ns - 2000000000 AS first_ns,"
    " e.last_ns AS last_ns, 40 AS events, e.main AS main) FROM flows f, (SELECT max(ns) AS last_ns,"
    " count(*) FILTER (kind = 'main') AS main FROM events WHERE flow = 9) e"
    " WHERE run_id = {run_id}",
    "UPDATE runs SET first_ns = first_ns - 2000000000 WHERE run_id = {run_id}",
)
# With so much delivered it is no control connection, but it has too few ACKs for any statistics.
MUCH_DELIVERED = "UPDATE events SET tp_delivered = 1000 * seq WHERE run_id = {run_id} AND flow = 9"


def answer(path: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--store", str(path)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def clocks_of_earlier_flow(path: Path, zero_ns: int) -> set[tuple[int, int]]:
    """How far off t_ns and flow_t_ns are in each view of flow 9, which began 2 s before zero."""
    with open_store(path, read_only=True) as store:
        views = [view for view in VIEWS if "t_ns" in {c.name for c in view.columns}]
        assert len(views) >= 9
        found = set()
        for view in views:
            columns = {column.name for column in view.columns}
            ns = next(name for name in ("ns", "start_ns", "first_ns") if name in columns)
            found |= set(
                store.con.execute(
                    f"SELECT DISTINCT {ns}::BIGINT - {zero_ns} - t_ns, t_ns + 2000000000"
                    f" - flow_t_ns FROM {view.name} WHERE flow = 9"
                ).fetchall()
            )
        return found


@pytest.mark.parametrize(
    ("statements", "why_not"),
    [
        (EARLIER_FLOW, "little data"),
        ((*EARLIER_FLOW, MUCH_DELIVERED), "few ACKs"),
    ],
)
def test_all_commands_name_the_same_instant_for_the_same_event(
    statements: tuple[str, ...], why_not: str, shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "earlier.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id(RUN)
        for statement in statements:
            store.con.execute(statement.format(run_id=run_id))
        store.drop_cached_rows(run_id)
        first_ns = store.con.execute(
            "SELECT first_ns FROM flows WHERE run_id = ? AND flow = 1", [run_id]
        ).fetchall()[0][0]
        senders = store.con.execute(
            "SELECT flow, why_not, zero_ns FROM senders WHERE run_id = ? ORDER BY flow", [run_id]
        ).fetchall()
        page = load_run(store.con, run_id)
    assert senders == [(1, None, first_ns), (9, why_not, first_ns)]

    (diagnosis,) = answer(path, "diagnose", RUN, "--format", "json")
    outage = next(finding for finding in diagnosis["findings"] if finding["name"] == "outage")
    timeout_ns = outage["values"]["timeouts_at"][0]
    since_zero_ns = timeout_ns - first_ns
    assert diagnosis["zero_ns"] == first_ns

    (story,) = answer(path, "explain", RUN, "--flow", "1", "--json")["flows"]
    timeout = next(line for line in story["lines"] if line["code"] == "CORE_RTO_COLLAPSE")
    assert timeout["t_ns"] == timeout["flow_t_ns"] == since_zero_ns
    assert clocks_of_earlier_flow(path, first_ns) == {(0, 0)}

    assert page.us(timeout_ns) == since_zero_ns // 1000

    seconds = answer(path, "metrics", RUN, "--by", "second", "--format", "json")
    assert next(row["start_s"] for row in seconds if row["flow"] == 9) == -2
    # The timeout marks packets lost in the second that has it, and in none before.
    lossy = [row["t_s"] for row in seconds if row["flow"] == 1 and row["lost_packets"]]
    assert lossy[0] == since_zero_ns // 1_000_000_000
