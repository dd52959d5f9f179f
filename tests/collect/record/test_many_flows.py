"""Many flows at once and one after the other, of every kind, while two recorders are at work.

The cell of the matrix (test_record_matrix.py) that needs no guest: this host, by its best rung.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from bbrscope.analyze.views.store_with_views import open_store

from tests.collect.record.test_record_host import (
    collect,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    ran,
)
from tests.recordings import bbrscope, manifest

pytestmark = [needs_root, needs_bpftrace, needs_bbr, needs_btf]

MAKER = Path(__file__).resolve().parents[1] / "guest" / "many_flows.py"
# Makes the flows, and kills the other recorder once it has written them: rows wait up to 5 s for
# others to come before them (collect/record/output/stream.py).
ORDERS = """
import os, runpy, sys, time
sys.argv, killed = sys.argv[1:-1], int(sys.argv[-1])
runpy.run_path(sys.argv[0], run_name="__main__")
time.sleep(8)
os.kill(killed, 9)
"""


@cache
def recorded(folder: Path) -> subprocess.CompletedProcess[str]:
    """Record into `folder`/whole, and into `folder`/killed until that recorder is killed."""
    said = folder / "killed.said"
    with said.open("w") as stderr:
        beside = subprocess.Popen(
            collect("--no-packets", "-o", str(folder / "killed")), stderr=stderr
        )
    try:
        until = time.monotonic() + 100
        while "recording with" not in said.read_text():
            assert beside.poll() is None, said.read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        words = [str(MAKER), str(folder / "flows.json"), "50", "300", "bbr", str(beside.pid)]
        into = ["--no-packets", "-o", str(folder / "whole")]
        done = ran(*into, "--", sys.executable, "-c", ORDERS, *words)
    finally:
        beside.kill()
        beside.wait()
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("many")


def flows(bundle: Path, *words: str) -> list[tuple[str, int, int]]:
    """The recorded flows: address, own port, the other's."""
    path = bundle.parent / f"{bundle.name}.duckdb"
    bbrscope("ingest", "--store", str(path), *words, str(bundle))
    with open_store(path, read_only=True) as store:
        return store.con.execute(
            "SELECT local_address, local_port, remote_port FROM flows WHERE events > 0"
        ).fetchall()


def made(folder: Path, *kinds: str) -> set[tuple[str, int, int]]:
    """Both ends of the flows that were made, or of these kinds of them."""
    rows = [json.loads(line) for line in (folder / "flows.json").read_text().splitlines()]
    assert {row[0] for row in rows} >= {"long", "short", "changing"}
    ends = {(address, near, far) for kind, address, near, far in rows if not kinds or kind in kinds}
    return ends | {(address, far, near) for address, near, far in ends}


def began_twice(flows: list[tuple[str, int, int]]) -> set[tuple[str, int, int]]:
    """Flows with the same ports: who takes BBR up again begins a new one, where init() is seen."""
    return {flow for flow, times in Counter(flows).items() if times > 1}


def test_of_hundreds_of_flows_each_has_its_own_ports_and_nothing_is_lost(folder: Path) -> None:
    """50 at once, 300 short ones that get the addresses of sockets before them, and MPTCP.

    One leaves BBR and takes it up again. Other flows of this host may be there, too. A tracepoint's
    program is skipped while another BPF program runs on its CPU (trace_call_bpf()): that is told.
    """
    done = recorded(folder)
    missed = manifest(folder / "whole")["accounting"]["missed_runs"]
    assert done.returncode == bool(missed), done.stderr
    assert not missed or f"the kernel skipped {missed} runs" in done.stderr
    completeness = manifest(folder / "whole")["completeness"]
    assert (completeness["sequence_missing"], completeness["exits_missing"]) == (0, {})
    seen = flows(folder / "whole")
    assert len(seen) == completeness["flows"] > completeness["sockets"]
    assert began_twice(seen) <= made(folder, "changing")
    assert len(made(folder) - set(seen)) <= missed


def test_a_recorder_that_was_killed_beside_it_left_them_all(folder: Path) -> None:
    recorded(folder)
    left = folder / "killed.partial"
    assert manifest(left)["unfinished"]
    seen = flows(left, "--salvage")
    missed = manifest(folder / "whole")["accounting"]["missed_runs"]
    assert began_twice(seen) <= made(folder, "changing")
    # Nobody counted how often the kernel skipped its programs: it is one kernel for both.
    assert len(made(folder) - set(seen)) <= 2 * missed
