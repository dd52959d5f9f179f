"""What a bundle of the lab says becomes rows; what it cannot say is refused."""

from __future__ import annotations

import copy
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.lab import lab_results as results
from bbrscope.collect.packets.tshark import GET_TSHARK
from bbrscope.probes.base.errors import BbrscopeError, BundleError
from bbrscope.reports.cli import cli
from click.testing import CliRunner

LAB: dict[str, Any] = {
    "scenario": "song-single-buffer",
    "title": "t",
    "source": "Song21, Fig 5",
    "rep": 1,
    "seed": 7,
    "quick": True,
    "place": "vm",
    "params": {"buffer": "1bdp"},
    "duration_s": 25.0,
    "rate_bps": 10**7,
    "rtt_us": 40_000,
    "bdp_bytes": 50_000,
    "buffer_bytes": 50_000,
    "loss": 0.0,
    "aqm": "fifo",
    "changes": [],
    "cpu_busy": 0.4,
    "valid": True,
    "flows": [
        {"flow_no": 1, "cc": "bbr2", "kind": "bulk", "extra_rtt_us": 0, "start_s": 0.16}
        | {"size_bytes": 0}
    ],
}


def lab_bundle(
    folder: Path, changed: dict[str, Any], events: bool = True, packets: bool = False
) -> Path:
    """The shipped recording of one BBRv2 flow, as if the lab had made it."""
    bundle = folder / "bundle"
    shutil.copytree(fixtures.path("v2_single_1bdp"), bundle)
    if not packets:
        (bundle / "packets.pcap.zst").unlink()
    manifest = json.loads((bundle / "manifest.json").read_text())
    manifest["lab"] = copy.deepcopy(LAB) | changed
    report = json.loads((bundle / "iperf1.json").read_text())
    received = {"bytes": 25_000_000, "seconds": 25.0}
    intervals = [{"sum": {"start": 0.1 * i, "seconds": 0.1, "bytes": 10**5}} for i in range(250)]
    report["server_output_json"] = {"end": {"sum_received": received}, "intervals": intervals}
    if not events:
        (bundle / "events.csv.zst").unlink()
        del manifest["events"]
        manifest["lab"]["flows"][0]["cc"] = "cubic"
    (bundle / "iperf1.json").write_text(json.dumps(report))
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    return bundle


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(path, read_only=True) as store:
        return store.con.execute(sql).fetchall()


def test_a_run_knows_its_experiment_and_its_flow_meets_the_recorded_one(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        ingest(store, lab_bundle(tmp_path, {}))
    assert query(
        path, "SELECT scenario, quick, params->>'buffer', rate_bps, valid, kernel FROM lab_runs"
    ) == [("song-single-buffer", True, "1bdp", 10**7, True, "6.1.192 with BBRv2 alpha")]
    [(cc, version, port, goodput, flow, start, began)] = query(
        path,
        "SELECT l.cc, l.bbr_version, l.local_port, l.goodput_bps, l.flow, l.start_s, "
        "(f.first_ns - r.traffic_start_ns) / 1e9 FROM lab_flows l "
        "JOIN flows f USING (run_id, flow, local_port) JOIN runs r USING (run_id)",
    )
    assert (cc, version, port, goodput) == ("bbr2", "v2", 41778, 8e6)
    assert start == began
    assert flow is not None
    assert (
        query(path, "SELECT count(*), sum(seconds * goodput_bps) FROM lab_intervals")[0][0] == 250
    )


def test_a_run_without_a_bbr_flow_is_a_run_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        outcome = ingest(store, lab_bundle(tmp_path, {}, events=False))
    assert (outcome.version, outcome.events, outcome.flows) == (None, 0, 0)
    assert query(path, "SELECT cc, goodput_bps, flow FROM lab_flows") == [("cubic", 8e6, None)]
    assert query(path, "SELECT count(*) > 10 FROM queue_samples") == [(True,)]
    for words in (["report"], ["explain"], ["replay"], ["metrics"]):
        done = CliRunner().invoke(cli, [*words, outcome.run, "--store", str(path)])
        assert isinstance(done.exception, BbrscopeError)
        assert done.exception.way_out.endswith(": bbrscope study song-single-buffer")


@pytest.mark.skipif(shutil.which("tshark") is None, reason=f"tshark is not installed: {GET_TSHARK}")
def test_packets_tell_of_a_run_without_a_bbr_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded without tshark first, it is the same once that is there."""
    store = tmp_path / "s.duckdb"
    bundle = lab_bundle(tmp_path, {}, events=False, packets=True)
    with open_store(store) as opened:
        with monkeypatch.context() as bare:
            bare.setenv("PATH", "")
            assert ingest(opened, bundle).rung is None
        outcome = ingest(opened, bundle)
    assert (outcome.rung, outcome.flows, outcome.packets > 20_000) == ("capture", 2, True)
    # Events are on the same clock: the flow began a moment after the traffic was started.
    [(began, lasted, dropped, use)] = query(
        store,
        "SELECT (r.first_ns - traffic_start_ns) / 1e9, duration_ns / 1e9, dropped_packets,"
        " utilisation FROM runs r JOIN queue_metrics USING (run_id)",
    )
    assert 0 < began < 1
    assert 25 < lasted < 26
    assert dropped > 50
    assert 0.9 < use <= 1
    page = tmp_path / "page.html"
    for words in (["metrics"], ["explain", "bundle"], ["report", "bundle", "-o", str(page)]):
        words = [word.replace("bundle", outcome.run) for word in words[:2]] + words[2:]
        done = CliRunner().invoke(cli, [*words, "--store", str(store)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert "Bottleneck queue" in page.read_text()


def test_a_flow_that_failed_keeps_its_row_without_numbers(tmp_path: Path) -> None:
    bundle = lab_bundle(tmp_path, {"valid": False, "why_invalid": "flow 1: refused"})
    (bundle / "iperf1.json").write_text('{"error": "refused"}')
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        ingest(store, bundle)
    assert query(path, "SELECT cc, goodput_bps FROM lab_flows") == [("bbr2", None)]
    assert query(path, "SELECT valid, why_invalid FROM lab_runs") == [(False, "flow 1: refused")]


@pytest.mark.parametrize(
    "changed",
    [
        {"rate_bps": "fast"},
        {"rate_bps": 1 << 63},
        {"loss": float("nan")},
        {"valid": 1},
        {"flows": 3},
        {"flows": [{"flow_no": -1}]},
        {"params": []},
    ],
    ids=str,
)
def test_an_impossible_value_is_refused_and_the_store_stays_as_it_was(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    bundle = lab_bundle(tmp_path, changed)
    with open_store(tmp_path / "s.duckdb") as store:
        with pytest.raises(
            BundleError, match=r"manifest\.json(, line \d+: lab\b| is not JSON .* NaN)"
        ):
            ingest(store, bundle)
        assert store.runs() == []


@pytest.mark.parametrize("version", ["v1", None])
def test_a_run_without_events_knows_the_version_that_its_kernel_had(
    version: str | None, tmp_path: Path
) -> None:
    flow = LAB["flows"][0] | {"cc": "bbr", "bbr_version": version}
    (row,) = results.rows(LAB | {"flows": [flow]}, tmp_path, "x").flows
    assert (row["cc"], row["bbr_version"]) == ("bbr", version)


@pytest.mark.parametrize(
    "changed",
    [
        {"flows": [LAB["flows"][0] | {"flow_no": 1 << 31}]},
        {"flows": LAB["flows"] * 10_001},
        {"rep": 1 << 31},
        {"seed": 1 << 32},
        {"rate_bps": 1 << 63},
    ],
)
def test_numbers_that_no_column_holds_are_refused_with_their_file(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="lab"):
        results.rows(LAB | changed, tmp_path, "x/manifest.json")


def test_an_output_of_iperf_that_is_no_file_of_the_bundle_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "iperf1.json").symlink_to("/dev/zero")
    assert results.rows(LAB, tmp_path, "x").flows[0].get("bytes") is None
    (tmp_path / "iperf1.json").unlink()
    os.mkfifo(tmp_path / "iperf1.json")
    assert results.rows(LAB, tmp_path, "x").flows[0].get("bytes") is None


def stating(folder: Path, setup: dict[str, str], received: bool = True) -> Path:
    """A recorded flow beside a rival of which the set-up and perhaps its iperf3 tell."""
    bundle = lab_bundle(folder, {})
    manifest = json.loads((bundle / "manifest.json").read_text())
    del manifest["lab"]
    manifest["setup"] |= setup
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    theirs = {
        "start": {"connected": [{"local_port": 41779}]},
        "end": {"sum_sent": {"retransmits": 3}},
    }
    got = {"bytes": 5_000_000, "seconds": 20.0}
    intervals = [{"sum": {"start": k, "seconds": 1.0, "bytes": 250_000}} for k in range(20)]
    if received:
        theirs["server_output_json"] = {"end": {"sum_received": got}, "intervals": intervals}
    (bundle / "iperf2.json").write_text(json.dumps(theirs))
    return bundle


TWO = {"n": "2", "ccs": "bbr2 cubic", "starts": "0 2.5"}


def test_a_set_up_that_states_its_flows_tells_of_rivals_as_a_lab_does(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        ingest(store, stating(tmp_path, TWO), packets=False)
    assert query(
        path, "SELECT flow_no, cc, flow, bbr_version, start_s, goodput_bps FROM lab_flows OFFSET 1"
    ) == [(2, "cubic", None, None, 2.5, 2e6)]
    assert query(path, "SELECT flow IS NULL, bbr_version FROM lab_flows LIMIT 1") == [(False, "v2")]
    assert query(
        path, "SELECT count(*), min(t_s), max(goodput_bps) FROM lab_intervals WHERE flow_no = 2"
    ) == [(20, 2.5, 2e6)]
    assert query(path, "SELECT count(*) FROM lab_runs") == [(0,)]


@pytest.mark.parametrize(
    "setup",
    [
        {"n": "3", "ccs": "bbr2 cubic", "starts": "0 2"},
        {"n": "2", "ccs": "bbr2 cubic", "starts": "0"},
        {"n": "2", "ccs": "bbr2 cubic", "starts": "0 soon"},
        {"n": "2", "ccs": "bbr2 cubic", "starts": "0 -1"},
        {"n": "2", "ccs": "bbr2 cubic", "starts": "0 nan"},
        {"n": "", "ccs": "", "starts": ""},
    ],
)
def test_a_set_up_that_states_no_flows_is_no_error(tmp_path: Path, setup: dict[str, str]) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        ingest(store, stating(tmp_path, setup), packets=False)
    assert query(path, "SELECT * FROM lab_flows") == []


def test_a_rival_whose_receiver_says_nothing_has_a_name_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    with open_store(path) as store:
        ingest(store, stating(tmp_path, TWO, received=False), packets=False)
    assert query(path, "SELECT cc, bytes, local_port FROM lab_flows OFFSET 1") == [
        ("cubic", None, 41779)
    ]
    assert query(path, "SELECT DISTINCT flow_no FROM lab_intervals") == [(1,)]
