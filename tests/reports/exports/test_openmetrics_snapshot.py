"""A snapshot is OpenMetrics to Prometheus' own parser, and says what the views say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.reports import exports
from bbrscope.reports.cli import cli
from bbrscope.reports.live.live_metrics import LiveMetrics
from click.testing import CliRunner

parser = pytest.importorskip(
    "prometheus_client.openmetrics.parser", reason="pip install prometheus-client"
)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def export(store: Path, output: Path, *options: str) -> Samples:
    args = ["export", "--store", str(store), "--format", "openmetrics", "-o", str(output)]
    said = CliRunner().invoke(cli, [*args, *options], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    found = {}
    text = output.read_text()
    # What the textfile collector and the push gateway know: the older text format has these alone.
    assert set(re.findall("^# TYPE \\S+ (.*)$", text, re.M)) <= {"counter", "gauge", "histogram"}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample.value
    assert f"{len(found)} samples" in said.output.replace(",", "")
    return found


def test_prometheus_reads_what_the_views_say(shipped_path: Path, tmp_path: Path) -> None:
    runs = ("v2_single_1bdp", "v2_x_spur", "v1_x_lt", "v3_x_tlp5")
    found = export(shipped_path, tmp_path / "lab.om", *runs)

    def one(name: str, **labels: str) -> float:
        return found[f"bbrscope_{name}", frozenset(labels.items())]

    with open_store(shipped_path, read_only=True) as store:
        con = store.con
        for run, goodput, lost in con.execute(
            "SELECT run, goodput_mbps, lost_packets FROM metrics_by_run"
        ).fetchall():
            assert one("goodput_bits_per_second", run=run) == pytest.approx(goodput * 1e6)
            assert one("lost_packets_total", run=run) == lost
        phases = con.execute(
            "SELECT run, phase, coalesce(end_name, 'end'), count(*), sum(duration_ns) / 1e9,"
            " count_if(duration_ns <= 3e8) FROM phases WHERE flow = 1 GROUP BY 1, 2, 3"
        ).fetchall()
        for run, phase, reason, count, seconds, short in phases:
            about = {"run": run, "phase": phase, "reason": reason}
            assert one("phase_duration_seconds_count", **about) == count
            assert one("phase_duration_seconds_sum", **about) == pytest.approx(seconds)
            assert one("phase_duration_seconds_bucket", le="0.3", **about) == short
            assert one("phase_duration_seconds_bucket", le="+Inf", **about) == count
        for run, limit, seconds in con.execute(
            "SELECT run, binding, sum(duration_ns) / 1e9 FROM binding"
            " WHERE flow = 1 GROUP BY ALL HAVING sum(duration_ns) > 0"
        ).fetchall():
            assert one("limited_seconds_total", run=run, limit=limit) == pytest.approx(seconds)
    assert one("replayed_events_total", run="v2_x_spur", mode="step", exact="yes") == 5264
    assert one("findings", run="v2_x_spur", finding="outage", severity="severe") == 1


def test_one_flow_a_window_and_names_that_would_end_a_label(
    hostile_path: Path, hostile: str, tmp_path: Path
) -> None:
    found = export(hostile_path, tmp_path / "flow.om", "v2_x_spur", "--flow", "1")
    labels = {dict(about).get("kernel") for name, about in found if name == "bbrscope_run_info"}
    assert labels == {hostile}
    assert {dict(about).get("flow") for _, about in found} == {"1"}
    window = ("--between", "1s", "2s", "--names", "draft")
    found = export(hostile_path, tmp_path / "window.om", "v2_x_spur", *window)
    lasted = sum(value for (name, _), value in found.items() if name.endswith("_sum"))
    assert lasted == pytest.approx(1)
    assert any(dict(about).get("phase") == "ProbeBW_CRUISE" for _, about in found)
    assert not any("goodput" in name for name, _ in found)


def test_the_dashboard_asks_for_what_the_exporter_serves() -> None:
    metrics = LiveMetrics()
    metrics.update_flows([], 0)
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", metrics.text(), re.MULTILINE))
    suffix = {"counter": "_total", "histogram": "_bucket", "gauge": ""}
    served = {name + suffix[kind] for name, kind in kinds.items()}
    board = json.loads(Path(exports.__path__[0], "grafana.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert {name for text in asked for name in re.findall(r"bbrscope_\w+", text)} == served
    labels = {
        label
        for text in asked
        for by in re.findall(r"by \(([^)]*)\)", text)
        for label in by.split(", ")
    }
    assert labels <= {"phase", "limit", "about", "decision", "kind", "le", "job"}
    assert all(text.count("(") == text.count(")") for text in asked)
