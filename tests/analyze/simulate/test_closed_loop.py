"""The closed loop on a recording of a simulation: its own path comes back, and rules differ."""

from __future__ import annotations

import html
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from .test_simulated_bundle import bbrscope


def test_what_if_knows_the_path_of_a_run_and_says_how_far_it_errs(tmp_path: Path) -> None:
    bundle, store = tmp_path / "sim", tmp_path / "s.duckdb"
    words = ["--path", "rate=5mbit,rtt=20ms,buffer=24pkt", "--cc", "v2", "--duration", "0.6s"]
    words += ["--seed", "3"]  # a run whose RTTs are like those of most seeds
    bbrscope("simulate", *words, "-o", str(bundle), store=store)
    plain, compiled = (bbrscope("simulate", *words, "--json", store=store, plain=p) for p in (1, 0))
    assert plain == compiled
    bbrscope("ingest", str(bundle), store=store)
    # Compiled, beside the recording that plain Python made.
    words = ["--set", "high_gain=300", "--json"]
    printed = bbrscope("what-if", "sim", *words, store=store, plain=False)
    answer = json.loads(printed)
    assert set(answer) == {"run", "fitted", "own", "other", "other_for_kernel", "verdict"}
    assert answer["fitted"]["rate_mbps"] == 5
    assert answer["fitted"]["buffer_packets"] == 24
    metrics = {"goodput_mbps", "lost_packets", "rtt_p50_ms", "rtt_p95_ms"}
    assert set(answer["own"]) == set(answer["other"]) == metrics
    for metric in metrics:
        low, middle, high = answer["own"][metric]["simulated"]
        assert low <= middle <= high
        recorded = answer["own"][metric]["recorded"]
        assert math.isclose(recorded, middle, rel_tol=0.1, abs_tol=3)
        # A kernel's interval holds the seeds', and has their median.
        low, middle, high = answer["other_for_kernel"][metric]
        seeds = answer["other"][metric]
        assert low <= seeds[0] <= middle == seeds[1] <= seeds[2] <= high
    program = (
        "import bbrscope, json, sys; lab = bbrscope.open(sys.argv[1]);"
        " print(json.dumps(lab.what_if('sim', {'high_gain': 300}).as_json()))"
    )
    done = subprocess.run([sys.executable, "-c", program, store], capture_output=True, text=True)
    assert json.loads(done.stdout) == answer, done.stderr
    # A slower start fills the queue less.
    assert answer["other_for_kernel"]["rtt_p50_ms"][2] < answer["own"]["rtt_p50_ms"]["recorded"]
    assert "high_gain" not in answer["verdict"]
    assert "would have seen" in answer["verdict"]
    assert "Fidelity: " in answer["verdict"]
    page = tmp_path / "page.html"
    words = ["--set", "high_gain=300", "-o", str(page)]
    bbrscope("report", "sim", *words, store=store, plain=False)
    text = html.unescape(page.read_text())
    low, _, high = answer["other_for_kernel"]["rtt_p95_ms"]
    assert f"{low:.2f} to {high:.2f}" in text
    low, _, high = answer["other"]["rtt_p95_ms"]
    assert f"{low:.2f} to {high:.2f}" in text
    assert answer["verdict"].rpartition("Fidelity: ")[2] in text


def test_what_if_without_other_rules_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="say other rules"):
        bbrscope("what-if", "sim", store=tmp_path / "s.duckdb")
