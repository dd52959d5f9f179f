"""What a fleet report says of tables whose answers are known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from bbrscope.analyze.lake.fleet import Answer, answers
from bbrscope.analyze.lake.lake_tables import FILED_VIEW_TABLES, FINDINGS, FLOW_LIMITS
from bbrscope.collect.lake.lake_manifest import LAKE_RUNS
from bbrscope.collect.store.schema.recorded_tables import FLOWS, RUNS
from bbrscope.reports.commands import fleet as fleet_command
from bbrscope.reports.html.pages import fleet_page

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def tables() -> dict[str, Answer]:
    return answered(24)


def answered(runs: int) -> dict[str, Answer]:
    """Twelve runs of v1 and twelve of v3 in two weeks; in the second, v3 loses half of its time.

    Of these, the first `runs`.
    """
    con = lake(runs)
    return {answer.name: answer for answer in answers(con, ("path", "kernel"), 100)}


def lake(runs: int) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    for table in (RUNS, FLOWS, LAKE_RUNS, FINDINGS, FLOW_LIMITS):
        con.execute(table.ddl())
    con.execute(
        FILED_VIEW_TABLES[0].ddl().replace("materialized_metrics_by_flow", "metrics_by_flow")
    )
    for number in range(runs):
        version = "v1" if number % 2 else "v3"
        week = number // 12
        slow = version == "v3" and week == 1
        run = f"run{number}"
        values = {
            "runs": {"run_id": number, "run": run, "version": version, "kernel": "k"},
            "lake_runs": {"run_id": number, "host": "h", "day": f"2026-01-{2 + 7 * week:02d}"},
            "metrics_by_flow": {
                "run_id": number,
                "run": run,
                "flow": 1,
                "duration_s": 10.0,
                "acked_bytes": 100_000_000,
                "goodput_mbps": (40.0 if slow else 80.0) + number / 100,
                "rtt_min_us": 30_000,
                "delivery_rate_max_mbps": 90.0,
                "loss_rate": 0.0001,
            },
        }
        for name, row in values.items():
            insert(con, name, row)
        if slow:
            found = {"run_id": number, "rank": 1, "name": "stuck", "title": "Stuck", "flow": 1}
            insert(con, "findings", {**found, "cost_s": 5.0 + number, "cost_bytes": 1e6})
        limits = {"inflight_lo": 50e6, "pacing_bw_lo": 1e6} if slow else {"pacing_max_bw": 1e6}
        for binding, short in limits.items():
            row = {"run_id": number, "flow": 1, "binding": binding, "held_s": 5.0}
            insert(con, "flow_limits", {**row, "short_bytes": short})
    return con


def insert(con: duckdb.DuckDBPyConnection, table: str, row: dict[str, Any]) -> None:
    names = ", ".join(row)
    con.execute(
        f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", [*row.values()]
    )


def test_costs_are_sums_over_flows(tables: dict[str, Answer]) -> None:
    (row,) = tables["findings"].rows.to_pylist()
    # Runs 12, 14, ... 22: 5 s each and their number.
    assert (row["finding"], row["flows"], row["cost_s"], row["cost_bytes"]) == (
        "stuck",
        6,
        132,
        6e6,
    )
    assert row["share_of_time"] == pytest.approx(132 / 240)
    (row,) = tables["by_path"].rows.to_pylist()
    assert row["path"] == "20 to 50 ms, 50 to 100 Mbit/s, loss < 0.1 %"
    worst = tables["worst"].rows.to_pylist()
    assert [row["run"] for row in worst] == [f"run{number}" for number in range(22, 10, -2)]


def test_findings_and_flows_are_ranked_by_seconds_or_by_bytes() -> None:
    """A second of a fast flow is more bytes than many of a slow one."""
    con = lake(24)
    fast = {"run_id": 0, "rank": 1, "name": "fast", "title": "Fast", "flow": 1}
    insert(con, "findings", {**fast, "cost_s": 1.0, "cost_bytes": 1e9})
    for cost, first, run in (("cost_s", "stuck", "run22"), ("cost_bytes", "fast", "run0")):
        told = {answer.name: answer for answer in answers(con, ("host",), 1, cost)}
        for name in ("findings", "by_host", "worst"):
            (row,) = told[name].rows.to_pylist()
            assert row["finding"] == first, name
        assert row["run"] == run


def test_a_finding_is_never_told_by_its_rule_s_name_alone(tables: dict[str, Answer]) -> None:
    told = [answer for answer in tables.values() if "finding" in answer.rows.column_names]
    assert {"findings", "by_path", "by_kernel", "changes", "worst"} <= {one.name for one in told}
    for answer in told:
        assert {row["title"] for row in answer.rows.to_pylist()} == {"Stuck"}, answer.name


def test_flows_that_carried_next_to_nothing_are_left_out_and_counted() -> None:
    """A hundredth of the largest flow's bytes counts, less does not; nor do fewer than 50 ACKs."""
    con = lake(2)
    others = {2: (999_999, 90), 3: (1_000_000, 50), 4: (2_000_000, 49), None: (5_000_000, 90)}
    for flow, (size, acks) in others.items():
        row = {"run_id": 0, "run": "run0", "flow": flow, "duration_s": 1.0, "acked_bytes": size}
        insert(con, "metrics_by_flow", row)
        if flow is not None:
            counted = {"run_id": 0, "flow": flow, "events": acks, "main": acks, "sample": 0}
            insert(con, "flows", counted)
    list(answers(con, ("version",), 100))
    kept = con.execute("SELECT run_id, flow FROM fleet_flows ORDER BY ALL").fetchall()
    assert kept == [(0, 1), (0, 3), (1, 1)]
    said = fleet_command._counted(SimpleNamespace(con=con))  # type: ignore[arg-type]
    assert said.startswith("2 runs, 3 flows, 0.01 hours of sending; 2 flows left out that carried")


def test_a_change_since_last_week_is_no_noise(tables: dict[str, Answer]) -> None:
    (row,) = tables["changes"].rows.to_pylist()
    assert (row["before"], row["now"]) == (0, pytest.approx(132 / 120))
    assert row["low"] < row["now"] < row["high"]
    assert row["p"] < 0.05
    assert row["verdict"] == "worse"
    assert "of the last one (2026-01-03 to 2026-01-09);" in tables["changes"].about


def test_runs_of_unknown_day_are_counted_out_and_few_runs_tell_nothing() -> None:
    """Two weeks of 3 runs: however far apart, one way of ten to deal them parts them as far."""
    con = lake(24)
    con.execute("UPDATE lake_runs SET day = 'unknown' WHERE run_id NOT BETWEEN 9 AND 14")
    changes = {answer.name: answer for answer in answers(con, (), 100)}["changes"]
    assert "mean of 3 runs of the week before and 3 of the last one" in changes.about
    assert "without 18 runs of unknown day;" in changes.about
    (row,) = changes.rows.to_pylist()
    assert row["verdict"] == "too few to tell from noise"


def test_without_an_earlier_week_no_change_is_known() -> None:
    changes = answered(12)["changes"]
    assert changes.rows.num_rows == 0
    assert changes.empty.startswith("not known: the lake has no run of the week before")
    assert "<p>Not known: the lake has" in fleet_page.build("lake", "", [changes], {})


def test_where_v3_is_slower_the_limit_is_named(tables: dict[str, Answer]) -> None:
    (row,) = tables["v3_and_v1"].rows.to_pylist()
    assert (row["v1_flows"], row["v3_flows"]) == (12, 12)
    assert row["v3_mbps"] < row["v1_mbps"]
    assert row["verdict"] == "v3 is slower"
    # 6 flows x 50 MB over the 120 s that v3 sent: 2.5 MB/s more than v1.
    assert row["limit"] == "inflight_lo (+20 Mbit/s)"
    # And what every limit cost both: the 12 runs of v1 missed 1 MB each, as 6 of v3 did.
    told = tables["v3_limits"].rows.to_pylist()
    assert [(row["limited_by"], row["v1_held_s"], row["v3_held_s"]) for row in told] == [
        ("inflight_lo", 0, 30),
        ("pacing", 60, 60),
    ]
    assert [(row["v1_short_bytes"], row["v3_short_bytes"]) for row in told] == [
        (0, 300e6),
        (12e6, 12e6),
    ]
    assert [row["more_mbps"] for row in told] == [20, 0]


def test_how_flows_did_needs_no_events() -> None:
    """Of archives of samples a fleet said nothing at all."""
    con = lake(2)
    con.execute("DELETE FROM flow_limits")
    con.execute("UPDATE metrics_by_flow SET app_limited_share = run_id, queue_delay_us = 3000")
    told = {answer.name: answer for answer in answers(con, (), 100)}["paths"].rows.to_pylist()
    assert [(row["version"], row["flows"], row["sent_s"], row["queue_ms"]) for row in told] == [
        ("v1", 1, 10, 3),
        ("v3", 1, 10, 3),
    ]
    assert [(row["app_share"], row["rwnd_share"]) for row in told] == [(1, None), (0, None)]


def test_paths_of_which_one_is_twice_as_fast_are_not_alike() -> None:
    """Goodput is compared: v3 on links of 20 Mbit/s is not slower than v1 on such of 50."""
    con = lake(12)
    con.execute(
        "UPDATE metrics_by_flow SET delivery_rate_max_mbps = 19.5, goodput_mbps = 18"
        " WHERE run_id % 2 = 0"
    )
    con.execute("UPDATE metrics_by_flow SET delivery_rate_max_mbps = 48 WHERE run_id % 2 = 1")
    told = {answer.name: answer for answer in answers(con, (), 100)}
    assert told["v3_and_v1"].rows.num_rows == told["v3_limits"].rows.num_rows == 0
