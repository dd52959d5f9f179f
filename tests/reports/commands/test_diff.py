"""`bbrscope diff`: its exit status, which CI asks, and its tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import zstandard
from bbrscope.analyze.compare.groups import Difference, Quantity
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.reports.commands.diff import _between, command, unlike
from click.testing import CliRunner, Result

from tests.conftest import ss_text, write_bundle


def _diff(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--store", str(store)])


def test_nothing_differs_from_itself_and_that_is_status_0(shipped_path: Path) -> None:
    done = _diff(shipped_path, "v2_single_1bdp", "v2_single_1bdp")
    assert done.exit_code == 0, done.output
    assert "0 of " in done.output


def test_a_metric_that_got_worse_is_status_1(shipped_path: Path) -> None:
    done = _diff(shipped_path, "v2_single_1bdp", "v2_x_spur", "--format", "json")
    assert done.exit_code == 1
    found = {(row["kind"], row["name"]): row for row in json.loads(done.stdout)}
    goodput = found["metric", "goodput_mbps"]
    assert goodput["verdict"] == "worse"
    assert goodput["noise"] == "unknown"
    assert goodput["change"] == pytest.approx(goodput["b"] / goodput["a"] - 1)
    generous = _diff(shipped_path, "v2_single_1bdp", "v2_x_spur", "--threshold", "100000%")
    assert generous.exit_code == 0


def test_kinds_that_may_not_change_are_chosen(shipped_path: Path) -> None:
    pair = ("v2_x_spur", "v2_single_1bdp", "--threshold", "60%")
    verdicts = {
        (row["kind"], row["verdict"])
        for row in json.loads(_diff(shipped_path, *pair, "--format", "json").stdout)
    }
    assert ("decision", "differs") in verdicts
    assert _diff(shipped_path, *pair, "--fail-on", "decision").exit_code == 1
    phases = ("phase", "differs") in verdicts
    assert _diff(shipped_path, *pair, "--fail-on", "phase").exit_code == int(phases)


def test_patterns_and_options_name_groups(shipped_path: Path) -> None:
    done = _diff(shipped_path, "--a", "v2_*", "--b", "v1_x_lt", "--b", "v3_x_tlp5")
    assert "A: v2_single_1bdp, v2_x_spur\nB: v1_x_lt, v3_x_tlp5" in done.output
    assert "differs in version: A v2; B v1, v3" in done.output
    assert "unknown: too few repetitions" in done.output


def test_settings_differ_by_what_they_say_and_not_by_how_it_is_written(tmp_path: Path) -> None:
    written = {"rate": "10mbit", "loss": "1%", "delay": "40", "limit": "33"}
    simulated = {"rate": "10000000", "loss": "0.01", "delay": "40.0", "limit": "66"}
    with open_store(tmp_path / "s.duckdb") as store:
        for name, setup in (("kernels", written), ("simulated", simulated)):
            bundle = write_bundle(tmp_path / name, None, rung="inet_diag", setup=setup)
            (bundle / "ss.txt.zst").write_bytes(zstandard.compress(ss_text([(1, 2)] * 3).encode()))
            ingest(store, bundle)
        notes = unlike(store, *([store.run_id(name)] for name in ("kernels", "simulated")))
    assert notes == ["limit: A 33; B 66"]


@pytest.mark.parametrize(
    "arguments", [(), ("one",), ("--a", "one"), ("a", "b", "--threshold", "much")]
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...], shipped_path: Path) -> None:
    assert _diff(shipped_path, *arguments).exit_code == 2


def test_a_run_that_is_not_there_is_named(shipped_path: Path) -> None:
    done = _diff(shipped_path, "v2_single_1bdp", "monday_*")
    assert done.exit_code == 1
    assert "monday_*" in str(done.exception)


def test_names_of_strangers_print_as_text(hostile_path: Path) -> None:
    done = _diff(hostile_path, "v2_single_1bdp", "v2_x_spur")
    assert "kernel: A" in done.output
    assert "<script>alert(1)</script>' OR 1=1" in done.output


@pytest.mark.parametrize(
    ("quantity", "interval", "words"),
    [
        (Quantity("metric", "rtt", "us", "", -1, 1), (-4360.2, -2912.6), "-4,360 to -2,913 us"),
        (Quantity("decision", "UP", "1/min", "", 0, 1), (20.5, 19997), "+20.5 to +19,997 1/min"),
        (Quantity("phase", "UP", "", "", 0, 1, points=True), (-0.613, 0), "-61.3 to +0 points"),
        (Quantity("metric", "loss", "", "", -1, 1), (-0.033, -0.0016), "-0.033 to -0.0016"),
    ],
)
def test_intervals_have_the_unit_of_what_is_compared(
    quantity: Quantity, interval: tuple[float, float], words: str
) -> None:
    difference = Difference(quantity, [], [], 0, 0, 0, interval, None, None, "unknown", "worse")
    assert _between(difference) == words
