"""Recordings that tests make: what they hold, how they replay, whom they agree with."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import zstandard
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.record.output import accounting, check
from bbrscope.probes.base.plurals import plural

MAIN = "from bbrscope.reports.cli import main; main()"


def bbrscope(*words: str) -> str:
    command = [sys.executable, "-c", MAIN, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def manifest(bundle: Path) -> dict[str, Any]:
    loaded = json.loads((bundle / "manifest.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def text(path: Path) -> str:
    """What a compressed file holds."""
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return reader.read().decode()


def replays_exactly(bundle: Path, store: Path) -> int:
    """Load and replay a bundle: every event in both modes; return how many that were."""
    bbrscope("ingest", "--store", str(store), str(bundle))
    return exact_events(store)


def exact_events(store: Path) -> int:
    """Replay what a store holds: every event in both modes; return how many that were."""
    output = bbrscope("replay", "--store", str(store)).replace(",", "")
    counted = re.findall(r"(\d+) of +(\d+) events exact", output)
    assert counted
    assert all(exact == total for exact, total in counted), output
    return sum(int(total) for _, total in counted)


def lacks_nothing_unsaid(folder: Path, name: str) -> None:
    """A recording and its NAME.said and NAME.status: nothing is missing, or it is told.

    Nothing may be missing but calls that probes did not see: an interrupt that comes while a BPF
    program runs has its own kprobes' programs skipped (kernel/trace/bpf_trace.c trace_call_bpf();
    how often is counted since Linux 6.7 only). fentry's are skipped for themselves only, which is
    counted (kernel/bpf/trampoline.c __bpf_prog_enter_recur()).
    """
    said, status = ((folder / f"{name}.{what}").read_text() for what in ("said", "status"))
    report, found = manifest(folder / name), check.check(folder / name / "events.csv.zst")
    assert report["events_lost"] == found.sequence_missing == 0
    lacking = []
    if found.chain_breaks:
        lacking.append(
            f"tp.delivered does not add up at {plural(found.chain_breaks, 'call')} of main()"
        )
    lacking += [call.sentence for call in accounting.exits_missing(found.as_dict())]
    if missed := report["accounting"].get("missed_runs", 0):
        lacking.append(f"the kernel skipped {plural(missed, 'run')} of the probes")
    assert not lacking or missed or report["rung"] == "kprobe", said
    assert all(sentence in said for sentence in lacking), said
    assert status == ("1\n" if lacking else "0\n"), said


def check_retransmissions(bundle: Path, store: Path) -> int:
    """Compare with iperf3's count, which is tcpi_total_retrans of its data connection.

    It is read when iperf3's time is over. What that connection sends again afterwards, and what
    the control connection does, are not in it. `store` holds the bundle; returned is iperf3's.
    """
    report = json.loads((bundle / "iperf1.json").read_text())
    port, end = report["start"]["connected"][0]["local_port"], report["end"]["sum_sent"]
    with open_store(store, read_only=True) as opened:
        early, whole = opened.con.execute(
            "SELECT coalesce(sum(r.skb_gso_segs) FILTER "
            "  (r.ns - f.first_ns < 1e9 * (? - 0.1)), 0)::BIGINT, any_value(f.retransmits) "
            "FROM flows f LEFT JOIN retransmits r USING (run_id, flow) WHERE f.local_port = ?",
            [end["seconds"], port],
        ).fetchall()[0]
    count = int(end["retransmits"])
    assert early <= count <= whole
    return count
