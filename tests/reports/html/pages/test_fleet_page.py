"""Pages and summaries of many runs."""

from __future__ import annotations

import re

import pyarrow as pa
from bbrscope.analyze.diagnosis.engine import Diagnosis, Finding
from bbrscope.analyze.diagnosis.rule import rules
from bbrscope.analyze.lake.fleet import Answer
from bbrscope.analyze.story.completeness import RunCompleteness
from bbrscope.reports.html.pages import fleet_page
from bbrscope.reports.text.findings.diagnosis_summary import summary_lines


def test_the_page_escapes_what_recordings_say_and_links_reports() -> None:
    rows = pa.table({"run": ["<b>&", "a b"], "cost_s": [1.5, 2.0]})
    html = fleet_page.build(
        "l<a>ke", "2 runs", [Answer("worst", "W", "a", rows)], {"a b": "r/a b.html"}
    )
    assert "&lt;b&gt;&amp;" in html
    assert "<b>" not in html
    assert '<a href="r/a%20b.html">a b</a>' in html
    assert "http:" not in html
    assert "<script" not in html


def test_the_page_heads_and_writes_numbers_in_their_units() -> None:
    rows = pa.table(
        {"cost_s": [33.17671], "cost_bytes": [7_153_177.4], "share_of_time": [0.0417215]}
        | {"v1_mbps": [9.38951], "before": [0.5], "low": [-0.0123], "p": [0.04321]}
    )
    note = "1 simulated run; fidelity: compared"
    html = fleet_page.build("lake", "1 run", [Answer("findings", "F", "a", rows)], {}, [note])
    assert f"<p>{note}</p>" in html
    heads = re.findall(r"<th [^>]*>([^<]*)</th>", html)
    assert heads == ["cost, s", "cost", "share of time", "v1, Mbit/s", "before", "low, points", "p"]
    cells = re.findall(r"<td [^>]*>([^<]*)</td>", html)
    assert cells == ["33.2", "7.15 MB", "4.2 %", "9.39", "50 %", "-1.2", "0.043"]


def diagnosis(run: str, costs: dict[str, float]) -> Diagnosis:
    by_name = {rule.name: rule for rule in rules()}
    found = [
        Finding(
            by_name[name],
            1,
            0,
            1,
            cost,
            8 * cost if cost < 4 else None,
            "minor",
            "high",
            {},
            (),
            (),
            (),
            {},
        )
        for name, cost in costs.items()
    ]
    return Diagnosis(run, "v3", 0, None, {}, 5, 5, RunCompleteness(), found)


def test_many_diagnoses_are_ranked_by_what_findings_cost() -> None:
    made = [
        diagnosis("one", {"outage": 1.0, "policer": 4.0}),
        diagnosis("two", {"outage": 2.5}),
        diagnosis("three", {}),
    ]
    lines = "\n".join(summary_lines(made)).splitlines()
    assert lines[0] == "3 runs; 1 without a finding"
    table = [line.split() for line in lines if line.startswith(("policer", "outage"))]
    assert [line[0] for line in table] == ["policer", "outage"]
    assert table[0][-5:] == ["1", "1", "4", "-", "one"]
    assert table[1][-5:] == ["2", "2", "3.5", "28", "two"]
