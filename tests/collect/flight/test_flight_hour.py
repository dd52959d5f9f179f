"""An hour of a flow with a fault in it, at the speed of this machine: the minute before is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bbrscope.collect.bundle.bundle import EVENTS
from bbrscope.collect.flight import flight_recorder
from bbrscope.collect.flight.flight_recorder import FlightPlan, FlightRecorder
from bbrscope.collect.flight.triggers import of_rows
from bbrscope.collect.record.host.clocks import ClockReading
from bbrscope.collect.record.output import check
from bbrscope.collect.record.plan import RecordingPlan

from tests.recordings import manifest, text

SECOND = 1_000_000_000
HOUR_S, FAULT_S, PER_SECOND = 3600, 2520, 10
LAST_S, MEMORY = 60.0, 4_000_000
HEADERS = (
    b"#M0,ns,sk,seqno,tp.delivered,tp.mss_cache,rs.acked_sacked,icsk_ca_state\n"
    b"#M1,ns,sk,bbr.mode\n#X,ns,sk,tp.snd_cwnd\n#S,ns,sk,seqno,new_state,icsk_ca_state\n"
    b"#I,ns,sk,sport,dport,daddr,family,saddr,seqno\n#IX,ns,sk,tp.snd_cwnd\n"
)
HEADS = HEADERS.splitlines(keepends=True)


def looks() -> Iterator[tuple[int, bytes]]:
    """Half a second of rows at a time, and the time then: one flow, a timeout at FAULT_S."""
    number, rows = 1, [b"I,%d,ff,1,2,3,2,4,0\nIX,%d,ff,10\n" % (SECOND, SECOND + 1)]
    for step in range(2 * HOUR_S):
        begin = SECOND + step * SECOND // 2
        for i in range(PER_SECOND // 2):
            ns = begin + (i + 1) * SECOND // PER_SECOND - SECOND // 20
            if step == 2 * FAULT_S and i == 0:
                rows.append(b"S,%d,ff,%d,4,0\n" % (ns - 500, number))
                number += 1
            delivered = step * PER_SECOND // 2 + i
            rows.append(b"M0,%d,ff,%d,%d,1448,1,0\n" % (ns, number, delivered))
            rows.append(b"M1,%d,ff,%d\nX,%d,ff,10\n" % (ns + 100, step % 4, ns + 200))
            number += 1
        yield begin + SECOND // 2, b"".join(rows)
        rows = []


def flying(
    flight: FlightPlan, output: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any, list[bytes], SimpleNamespace]:
    """A recorder with nothing attached, its ring of events, the rows to look at, and its clock."""
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(
        flight_recorder.clocks, "sample", lambda: ClockReading(now.ns, now.ns, now.ns, 0)
    )
    said: list[str] = []
    recorder: Any = FlightRecorder(RecordingPlan(output), flight, said.append)
    recorder.watching.place.close()
    ring = recorder.rings.open(EVENTS)
    ring.write(HEADERS)
    coming: list[bytes] = []
    recorder.watching = SimpleNamespace(
        rows=SimpleNamespace(take=lambda: [coming.pop() for _ in range(len(coming))]),
        headers=HEADS,
        lost=0,
        place=SimpleNamespace(program=""),
    )
    facts = {"format": "bbrscope-bundle", "version": 1, "bbr": "v1", "constants": {"HZ": 250}}
    clocks = {"start": {"realtime_ns": 0, "monotonic_ns": 0}}
    recorder._writer = SimpleNamespace(
        limit_notes=[], of_dump=lambda name, *_: {**facts, "name": name, "clocks": clocks}
    )
    return recorder, ring, coming, now


def test_a_signal_has_its_dump_whatever_is_due_or_was_written_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher: Any = SimpleNamespace(check=lambda _batch: "burst" if now.ns // SECOND == 20 else "")
    flight = FlightPlan(10.0, MEMORY, (("losses", watcher),))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    # The first while the dump of the losses is due, the second while further losses would wait.
    asked = iter((20.5, 24.0))
    next_s = next(asked)
    for now.ns, rows in looks():
        ring.write(rows)
        coming[:] = rows.splitlines(keepends=True)[::-1]
        if now.ns >= next_s * SECOND:
            recorder.ask()
            next_s = next(asked, 1e9)
        recorder.take_rows(now.ns)
        if now.ns > 30 * SECOND:
            break
    documents = [manifest(dump)["flight"] for dump in recorder.dumps]
    assert [document["trigger"] for document in documents] == ["losses", "signal", "signal"]
    assert documents[1]["until_ns"] > 20.5 * SECOND
    assert documents[2]["until_ns"] == 25 * SECOND


def test_the_minute_before_a_fault_is_written_out_of_an_hour_in_the_memory_that_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = of_rows("rto")
    assert trigger is not None
    flight = FlightPlan(LAST_S, MEMORY, (("rto", trigger),))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    most = 0
    for now.ns, rows in looks():
        ring.write(rows)
        coming[:] = rows.splitlines(keepends=True)[::-1]
        recorder.take_rows(now.ns)
        most = max(most, recorder.rings.size)
    (dump,) = recorder.dumps
    document, found = manifest(dump)["flight"], check.check(dump / "events.csv.zst")
    assert document["trigger"] == "rto"
    assert most < MEMORY
    assert sum(path.stat().st_size for path in dump.iterdir()) < MEMORY
    assert document["until_ns"] - document["from_ns"] == int((LAST_S + flight.after_s) * SECOND)
    fault = SECOND + FAULT_S * SECOND
    assert fault < document["until_ns"] < fault + 3 * SECOND
    assert abs(found.events - (LAST_S + 1) * PER_SECOND) <= 2
    assert (found.sequence_missing, found.chain_breaks, found.exits_missing) == (0, 0, {})
    rows_kept = text(dump / "events.csv.zst").splitlines()
    assert rows_kept[len(HEADS) + 1].startswith("N1,")
    assert [line for line in rows_kept if line.startswith("S,")]
