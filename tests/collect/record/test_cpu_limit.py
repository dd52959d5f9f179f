"""`--max-cpu` and `--phases`: less is recorded, what is left is whole, and it is said."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.record import cpu_limit
from bbrscope.collect.record.cpu_limit import CHECK_NS, MOST_PERIOD_S, CpuLimit, Used, cpu_s

from tests.collect.record.test_record_host import (
    CONNECT,
    collect,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    ran,
)
from tests.recordings import bbrscope, manifest

BUSY = """
import signal
got = []
signal.signal(signal.SIGWINCH, lambda *_: (got.append(1), print(len(got), flush=True)))
print(0, flush=True)
while True: sum(range(1000))
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("sample", [1, 64])
def test_above_the_limit_half_of_the_flows_are_left_each_time_and_it_is_said(
    sample: int, busy: subprocess.Popen[str]
) -> None:
    """Of those that --sample leaves."""
    said: list[str] = []
    limit = CpuLimit(0.5, busy.pid, said.append, sample)
    assert busy.stdout is not None
    limit.check(0)
    for number in (1, 2):
        before = cpu_s(busy.pid)
        while cpu_s(busy.pid) < before + 0.05:
            time.sleep(0.01)
        limit.check(number * CHECK_NS - 1)  # too early: nothing is judged
        assert limit.share == sample * 2 ** (number - 1)
        limit.check(number * CHECK_NS)
        assert busy.stdout.readline() == f"{number}\n"
    left = [note.rpartition(" on ")[2] for note in limit.notes]
    assert left == [f"1 of {2 * sample} flows", f"1 of {4 * sample} flows"]
    assert [line.strip() for line in said] == limit.notes


def test_what_writing_a_dump_takes_is_not_held_against_recording() -> None:
    """Once, and of one thread: fewer flows from then on would not undo it."""
    limit = CpuLimit(50.0, 0, lambda _: None)
    limit.check(0)
    began = time.process_time()
    with limit.apart():
        while time.process_time() < began + 1.2:
            sum(range(1000))
    limit.check(CHECK_NS)
    assert (limit.share, limit.notes) == (1, [])
    began = time.process_time()
    while time.process_time() < began + 1.2:
        sum(range(1000))
    limit.check(2 * CHECK_NS)
    assert len(limit.notes) == 1


def test_where_the_looks_take_most_they_become_rarer_before_flows_do() -> None:
    limit = CpuLimit(1.0, 0, lambda _: None)
    sampler = SimpleNamespace(period_s=MOST_PERIOD_S / 2, name="ss")
    limit.samplers.append(sampler)
    used = iter([Used(n * CHECK_NS, n * 0.1, n * 0.09) for n in range(3)])
    limit.used = lambda _now: next(used)  # type: ignore[method-assign]
    for number in range(2):
        limit.check(number * CHECK_NS)
    assert sampler.period_s == MOST_PERIOD_S
    assert limit.notes[0].endswith("half as many polls by ss")
    assert limit.share == 1


def test_time_that_is_allowed_changes_nothing() -> None:
    limit = CpuLimit(5.0, 0, lambda _: None)
    used = iter([Used(n * CHECK_NS, n * 0.09, 0.0) for n in range(3)])
    limit.used = lambda _now: next(used)  # type: ignore[method-assign]
    for number in range(3):
        limit.check(number * CHECK_NS)
    assert (limit.share, limit.notes) == (1, [])


CHANGES = """
SELECT f.local_port, f.remote_port,
  list(phase ORDER BY seq) FILTER (phase IS DISTINCT FROM before) AS phases, count(*) FROM (
  SELECT *, lag(phase) OVER (PARTITION BY flow ORDER BY seq) AS before
  FROM (SELECT *, bbr_mode * 16 + least(bbr_cycle_idx, 2) AS phase FROM events)) e
JOIN flows f USING (run_id, flow)
WHERE f.local_port = $port  -- others' flows on this host go on before and after
GROUP BY ALL ORDER BY ALL
"""


# As fast as it can, so that BBR leaves its STARTUP; then a while with little to send.
BULK = (
    CONNECT
    + """
print(client.getsockname()[1])
threading.Thread(target=lambda: [None for _ in iter(lambda: peer.recv(65536), b"")]).start()
for turn in range(1500): client.sendall(b"x" * 20000)
for turn in range(30): client.sendall(b"x" * 20000); time.sleep(0.02)
client.close()
"""
)


def port_recorded_twice_at_once(folder: Path) -> int:
    """The port of a flow that both recorded; 0 if the kernel skipped a run of either program.

    On a busy CPU it may (trace_call_bpf()). That is told, and the two need not have seen the same.
    """
    phases, full = ("-o", str(folder / "phases"), "--phases"), ("-o", str(folder / "full"))
    talk = collect("--no-packets", *phases, "--", sys.executable, "-c", BULK)
    done = ran("--no-packets", *full, "--rung", "tcp_probe", "--", *talk)
    accounts = [manifest(folder / name)["accounting"] for name in ("phases", "full")]
    missed = sum(account["missed_runs"] for account in accounts)
    assert (done.returncode == 0) == (missed == 0), done.stderr
    return 0 if missed else int(done.stdout.split()[-1])


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_two_recorders_at_once_and_the_one_of_phases_has_what_the_other_saw_change(
    tmp_path: Path,
) -> None:
    """Both are complete, too: none takes the other's sockets, numbers or signals."""
    for number in range(5):
        folder = tmp_path / str(number)
        if port := port_recorded_twice_at_once(folder):
            break
    assert port, "the kernel skipped runs of the programs each time"
    changes = {}
    for name in ("phases", "full"):
        assert manifest(folder / name)["completeness"]["sequence_missing"] == 0
        path = folder / f"{name}.duckdb"
        bbrscope("ingest", "--store", str(path), str(folder / name))
        with open_store(path, read_only=True) as store:
            changes[name] = store.con.execute(CHANGES, {"port": port}).fetchall()
            rungs = store.con.execute("SELECT rung FROM runs").fetchall()
        assert rungs == [({"phases": "phases", "full": "tcp_probe"}[name],)]
    assert [row[:3] for row in changes["phases"]] == [row[:3] for row in changes["full"]]
    ((*_, phases, events),) = changes["phases"]
    assert len(phases) > 2
    assert events == len(phases)
    assert changes["full"][0][3] > 5 * events


def test_a_limit_that_was_passed_by_little_is_not_said_to_be_reached_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = iter((0.0, 0.01 * CHECK_NS / 1e9 * 1.04))
    monkeypatch.setattr(CpuLimit, "used", lambda _self, ns: Used(ns, next(used), 0.0))
    monkeypatch.setattr(cpu_limit.os, "kill", lambda *_: None)
    limit = CpuLimit(1.0, 1, lambda _text: None)
    limit.check(0)
    limit.check(CHECK_NS)
    assert limit.notes == [
        "recording took 1.04 % of a CPU, more than --max-cpu 1 %: from here on 1 of 2 flows"
    ]
