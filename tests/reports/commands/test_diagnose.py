"""``bbrscope diagnose`` as a user types it, and the findings at the top of a report."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path

import pytest
from bbrscope.analyze.diagnosis import NOT_RULES
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.analyze.views.materialize import forget
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store.store import Store
from bbrscope.reports.commands.diagnose import command
from bbrscope.reports.html.pages import page
from click.testing import CliRunner, Result


def run(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


def test_it_tells_what_why_and_what_to_try(shipped_path: Path) -> None:
    done = run("v1_x_lt", "--store", str(shipped_path))
    assert done.exit_code == 0
    assert done.output.startswith("v1_x_lt (BBR v1): 5 findings")
    assert "[policer]" in done.output
    assert "usual cause: " in done.output
    assert "described by: " in done.output
    assert "not checked, needs samples of a queue that flows are known to pass" in done.output


def test_a_healthy_flow_has_no_findings_and_the_reasons_to_believe_it(shipped_path: Path) -> None:
    done = run("v2_single_1bdp", "--store", str(shipped_path))
    assert done.output.startswith("v2_single_1bdp (BBR v2): no findings\n")
    assert "The replay agrees with the kernel on all 10,602 events." in done.output
    assert "The recording is complete: no row lost" in done.output
    assert re.search(r"\d+ rules checked", done.output)


def test_what_was_not_replayed_is_replayed_before_all_runs_are_diagnosed(
    shipped_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "fresh.duckdb"
    shutil.copy(shipped_path, path)
    with open_store(path) as store:
        run_id = store.run_id("v1_x_lt")
        forget(store.con, [run_id])
        for table in ("decisions", "replays"):
            store.con.execute(f"DELETE FROM {table} WHERE run_id = ?", [run_id])
    done = run("--store", str(path))
    assert "v1_x_lt (BBR v1): 5 findings" in done.output
    assert "Not replayed" not in done.output


def test_json_holds_every_number_and_the_fate_of_every_rule(shipped_path: Path) -> None:
    done = run("v1_x_lt", "--store", str(shipped_path), "--format", "json")
    (made,) = json.loads(done.output)
    assert {check["name"] for check in made["checks"]} == {rule.name for rule in rules()}
    for finding in made["findings"]:
        assert finding["cost_s"] > 0
        assert finding["values"]
        assert finding["t0_s"] < finding["t1_s"]


def test_the_drafts_names_are_used_when_asked_for(shipped_path: Path) -> None:
    words = ("v3_x_tlp5", "--store", str(shipped_path))
    assert "inflight_hi" in run(*words).output
    for more in ((), ("--format", "json"), ("--format", "csv")):
        said = run(*words, *more, "--names", "draft").output
        assert "inflight_longterm" in said
        assert not re.search(r"\binflight_hi\b", said)


def test_csv_has_a_row_per_finding(shipped_path: Path) -> None:
    done = run("--store", str(shipped_path), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.output)))
    assert [row["name"] for row in rows if row["run"] == "v2_x_spur"] == [
        "outage",
        "ack_aggregation",
    ]


def test_the_list_has_every_rule_and_what_is_none() -> None:
    done = run("--list")
    for rule in rules():
        assert rule.name in done.output
    for name in NOT_RULES:
        assert name in done.output


@pytest.mark.parametrize("name", [rule.name for rule in rules()])
def test_every_rule_can_be_explained(name: str) -> None:
    done = run("--explain", name)
    assert done.exit_code == 0
    assert "SELECT" in done.output


def test_a_rule_that_is_none_is_wrong_usage() -> None:
    done = run("--explain", "policr")
    assert done.exit_code == 2
    assert "near: policer" in done.output


def test_the_report_begins_with_the_findings_and_their_times_open_the_charts(
    shipped: Store,
) -> None:
    html = page.build(shipped.con, shipped.run_id("v1_x_lt"))
    section = html.partition('<section id="findings">')[2].partition("</section>")[0]
    assert html.index('id="findings"') < html.index('id="story"')
    assert "5 findings" in section
    assert len(re.findall(r'href="#t=-?[\d.]+-[\d.]+"', section)) >= 6


def test_a_healthy_report_says_so(shipped: Store) -> None:
    html = page.build(shipped.con, shipped.run_id("v2_single_1bdp"))
    section = html.partition('<section id="findings">')[2].partition("</section>")[0]
    assert "<h2>No findings</h2>" in section
    # What the page trusts is said once, beside the recording's completeness.
    assert "The replay agrees with the kernel" not in section
    assert "agrees with the kernel bit for bit on all 10,602 events compared" in html


def test_hostile_names_stay_text(hostile_path: Path, hostile: str) -> None:
    with open_store(hostile_path, read_only=True) as store:
        html = page.build(store.con, store.run_id("v2_x_spur"))
    assert hostile not in html
