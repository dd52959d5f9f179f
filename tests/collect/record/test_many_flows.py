"""Many flows at once and one after the other, of every kind: each is there with its own ports."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bbrscope.analyze.views.store_with_views import open_store

from tests.collect.record.test_record_host import (
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    ran,
)
from tests.recordings import bbrscope, manifest

MAKER = Path(__file__).resolve().parents[1] / "guest" / "many_flows.py"


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_of_hundreds_of_flows_each_has_its_own_ports_and_nothing_is_lost(tmp_path: Path) -> None:
    """50 at once, 300 short ones that get the addresses of sockets before them, and MPTCP.

    One leaves BBR and takes it up again. Other flows of this host may be there, too. A tracepoint's
    program is skipped while another BPF program runs on its CPU (trace_call_bpf()): that is told.
    """
    flows = tmp_path / "flows.json"
    words = [sys.executable, str(MAKER), str(flows), "50", "300"]
    done = ran("--no-packets", "-o", str(tmp_path / "many"), "--", *words)
    missed = manifest(tmp_path / "many")["accounting"]["missed_runs"]
    assert done.returncode == bool(missed), done.stderr
    assert not missed or f"the kernel skipped {missed} runs" in done.stderr
    made = [json.loads(line) for line in flows.read_text().splitlines()]
    completeness = manifest(tmp_path / "many")["completeness"]
    assert (completeness["sequence_missing"], completeness["exits_missing"]) == (0, {})
    path = tmp_path / "s.duckdb"
    bbrscope("ingest", "--store", str(path), str(tmp_path / "many"))
    with open_store(path, read_only=True) as store:
        recorded = store.con.execute(
            "SELECT local_address, local_port, remote_port FROM flows WHERE events > 0"
        ).fetchall()
    assert len(recorded) == len(set(recorded)) == completeness["flows"] > completeness["sockets"]
    wanted = {(address, *ends) for _, address, *ends in made}
    wanted |= {(address, far, near) for _, address, near, far in made}
    assert len(wanted - set(recorded)) <= missed
    assert {row[0] for row in made} >= {"long", "short", "changing"}
