"""`lab run --engine sim`: variants by name, Vegas, goodput by the second, and going on later."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from bbrscope.collect.lab.interrupt import InterruptedLabError
from bbrscope.reports.lab import lab_simulated
from bbrscope.reports.lab.lab_request import LabRequest

BBRSCOPE = (sys.executable, "-c", "from bbrscope.reports.cli import main; main()")
SCENARIO = """
title = "One flow"
source = "this test"
duration = "3s"
[path]
rate = "2mbit"
rtt = "20ms"
buffer = "100pkt"
[params]
cc = "bbr"
[[flow]]
cc = "$cc"
[sweep]
cc = ["vegas", "bbr-prime"]
"""
QUEUE = """
SELECT max(q.backlog_bytes) / 1514 AS packets FROM queue_samples q JOIN runs r USING (run_id)
WHERE r.run LIKE '%vegas%' AND q.ns::BIGINT - r.traffic_start_ns::BIGINT > 2e9
"""


def _bbrscope(folder: Path, *words: str, status: int = 0) -> tuple[str, str]:
    environment = {**os.environ, "BBRSCOPE_PLAIN": "1", "BBRSCOPE_STORE": str(folder / "s.duckdb")}
    done = subprocess.run(
        [*BBRSCOPE, *words],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


def test_variants_and_vegas_are_simulated_and_reported_by_the_second(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SCENARIO)
    lab = ("lab", "run", "./mine.toml", "--engine", "sim", "--no-events")
    _, first = _bbrscope(tmp_path, *lab)

    def rows(query: str) -> list[dict[str, object]]:
        answer: list[dict[str, object]] = json.loads(
            _bbrscope(tmp_path, "sql", query, "--format", "json")[0]
        )
        return answer

    flows = rows(
        "SELECT f.cc, f.bbr_version, f.bytes, f.retransmits, count(*) AS seconds,"
        " sum(i.goodput_bps * i.seconds / 8)::BIGINT AS by_second"
        " FROM lab_flows f JOIN lab_intervals i USING (run_id, flow_no) GROUP BY ALL ORDER BY f.cc"
    )
    assert [flow["cc"] for flow in flows] == ["bbr-prime", "vegas"]
    for flow in flows:
        assert flow["bbr_version"] is None  # a variant is of no version
        assert flow["seconds"] == 3
        assert flow["by_second"] == flow["bytes"]
        assert int(str(flow["bytes"])) * 8 > 0.85 * 3 * 2e6
    # tcp_vegas keeps alpha (2) to beta (4) packets in the queue, and loses none.
    assert flows[1]["retransmits"] == 0
    assert 1 <= float(str(rows(QUEUE)[0]["packets"])) <= 7
    assert "there already: 2 of 2 runs" in _bbrscope(tmp_path, *lab)[1]
    # Once for the variant and once for Vegas, also where runs are only loaded.
    (tmp_path / "s.duckdb").unlink()
    for said in (first, _bbrscope(tmp_path, *lab)[1]):
        assert said.count("simulated; fidelity: does not hold here: ") == 2


def test_a_variants_run_is_replayed_by_its_own_rules(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(SCENARIO)
    lab = ("lab", "run", "./mine.toml", "--engine", "sim", "--set", "cc=bbr-plus-0.5")
    _bbrscope(tmp_path, *lab, "-o", "runs")
    (manifest,) = (tmp_path / "runs").glob("*/manifest.json")
    assert json.loads(manifest.read_text())["simulated"]["variant"] == "bbr-plus-0.5"
    _, said = _bbrscope(tmp_path, "replay")  # status 1 where one field differs
    assert "1 simulated run; fidelity: " in said  # it agrees with itself, not with a kernel


def test_a_signal_ends_the_simulations_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In words, as it ends runs of kernels: the same command goes on."""

    def signalled(*_: object) -> tuple[Path, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return tmp_path, ""

    monkeypatch.setattr(lab_simulated, "_simulate", signalled)
    monkeypatch.setattr(lab_simulated, "worker_pool", ThreadPoolExecutor)
    (tmp_path / "mine.toml").write_text(SCENARIO)
    name, store = str(tmp_path / "mine.toml"), tmp_path / "s.duckdb"
    request = LabRequest(name, (), None, None, False, tmp_path / "runs", True, True, store)
    usual = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("not taken care of"))
    try:
        with pytest.raises(InterruptedLabError, match="finished runs are kept"):
            lab_simulated.make_simulated(request, 1)
    finally:
        signal.signal(signal.SIGTERM, usual)


def test_several_versions_of_bbr_run_together_without_events(tmp_path: Path) -> None:
    """They are no recording of one kernel: the run has what iperf3 reports, and says so."""
    two = '[[flow]]\ncc = "bbr2"\n[sweep]'
    (tmp_path / "two.toml").write_text(SCENARIO.replace("[sweep]", two).replace("vegas", "bbr"))
    lab = ("lab", "run", "./two.toml", "--engine", "sim", "--set", "cc=bbr", "--quick")
    rows, said = _bbrscope(tmp_path, *lab)
    assert "no events: flows of v1 and v2 together" in said
    assert "bbr2 " in rows


def test_a_run_that_cannot_be_simulated_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "far.toml").write_text(SCENARIO)
    lab = ("lab", "run", "./far.toml", "--engine", "sim", "--set", "cc=bbr", "--set", "rtt=20s")
    _, said = _bbrscope(tmp_path, *lab, status=1)
    assert "failed: a round trip of 20000000 us" in said
    assert "from 10 us to 10 s" in said
