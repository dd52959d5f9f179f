"""An hour of a flow with a fault in it, at the speed of this machine: the minute before is kept."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from bbrscope.collect.bundle.bundle import EVENTS, PACKETS, SS
from bbrscope.collect.flight import dump, flight_recorder, text_ring
from bbrscope.collect.flight.beginnings import columns_of
from bbrscope.collect.flight.flight_recorder import FlightPlan, FlightRecorder
from bbrscope.collect.flight.triggers import Happened, LiveBatch, of_rows
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
EVERY_3_S = FlightPlan(6.0, MEMORY, (), 0.0, None, 3.0)


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
        rows=SimpleNamespace(take=lambda: [coming.pop() for _ in range(len(coming))], dropped=0),
        headers=HEADS,
        lost=0,
        apart=nullcontext,
        place=SimpleNamespace(program=""),
    )
    facts = {"format": "bbrscope-bundle", "version": 1, "bbr": "v1", "constants": {"HZ": 250}}
    clocks = {"start": {"realtime_ns": 0, "monotonic_ns": 0}}
    recorder._writer = SimpleNamespace(
        of_dump=lambda name, _start, _end, notes: {
            **facts,
            "name": name,
            "clocks": clocks,
            "notes": notes,
        },
    )
    return recorder, ring, coming, now


def begun(recorder: Any, now: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the recorder begin now, without anything that it would start."""
    attaching = SimpleNamespace(count_too=lambda _side: None)
    recorder.watching.attach = lambda: attaching
    writer = recorder._writer
    writer.at_start = lambda *_: {"rung": "fentry"}
    monkeypatch.setattr(flight_recorder, "ManifestWriter", lambda *_: writer)
    monkeypatch.setattr(recorder.side, "start", lambda: None)
    recorder.start()
    assert recorder._readings[0].monotonic_ns == now.ns


def rotating(
    flight: FlightPlan, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, Any, SimpleNamespace]:
    """A recorder that began at the first second, its ring of events, and its clock."""
    recorder, ring, _, now = flying(flight, folder / "edge", monkeypatch)
    now.ns = SECOND
    begun(recorder, now, monkeypatch)
    return recorder, ring, now


def happened(ns: int) -> Happened:
    """That something did at a time."""
    return Happened("a burst", ns)


def test_a_signal_has_its_dump_whatever_is_due_or_was_written_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher: Any = SimpleNamespace(
        check=lambda _batch: happened(now.ns) if now.ns // SECOND == 20 else None
    )
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


def test_a_signal_is_of_its_own_time_however_late_the_rows_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triggers that take long, on a slow host, leave rows of seconds to the next look."""
    watcher: Any = SimpleNamespace(check=lambda _batch: None)
    flight = FlightPlan(10.0, MEMORY, (("losses", watcher),))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    waiting: list[bytes] = []
    for now.ns, rows in looks():
        ring.write(rows)
        waiting += rows.splitlines(keepends=True)
        if now.ns == 28 * SECOND + SECOND // 2:
            recorder.ask()
        if not 20 * SECOND < now.ns <= 28 * SECOND:
            coming[:], waiting = waiting[::-1], []
            recorder.take_rows(now.ns)
        if now.ns > 32 * SECOND:
            break
    (document,) = (manifest(dump)["flight"] for dump in recorder.dumps)
    assert document["fired_ns"] == 28 * SECOND + SECOND // 2
    assert document["until_ns"] == document["fired_ns"] + SECOND


def test_each_trigger_has_its_bundle_though_another_was_written_just_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses at 20 s and from 24 s to 30 s, which is so soon again, and a timeout at 23 s."""

    def at(*seconds: int) -> Any:
        return SimpleNamespace(
            check=lambda _: happened(now.ns) if now.ns // SECOND in seconds else None
        )

    watchers = (("losses", at(20, *range(24, 30))), ("rto", at(23)))
    flight = FlightPlan(60.0, MEMORY, watchers)
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    for now.ns, rows in looks():
        ring.write(rows)
        coming[:] = rows.splitlines(keepends=True)[::-1]
        recorder.take_rows(now.ns)
        if now.ns > 40 * SECOND:
            break
    documents = [manifest(dump)["flight"] for dump in recorder.dumps]
    assert [document["trigger"] for document in documents] == ["losses", "rto"]
    assert recorder.due.unwritten["losses"] >= 2 * 6


def test_what_comes_after_a_dump_that_is_not_written_yet_has_a_dump_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are kept some time after they are looked at: losses at 20 s, a timeout at 22.5 s."""
    rto, fault = of_rows("rto"), 22 * SECOND + SECOND // 2
    assert rto is not None
    losses: Any = SimpleNamespace(
        check=lambda _: happened(now.ns) if now.ns == 20 * SECOND else None
    )
    flight = FlightPlan(10.0, MEMORY, (("losses", losses), ("rto", rto)))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    late: deque[bytes] = deque()
    for now.ns, rows in looks():
        if now.ns == fault + SECOND // 2:
            rows = b"S,%d,ff,210,4,0\n" % fault + rows
        late.append(rows)
        if len(late) > 6:  # of half a second each
            ring.write(late.popleft())
        coming[:] = rows.splitlines(keepends=True)[::-1]
        recorder.take_rows(now.ns)
        if now.ns > 40 * SECOND:
            break
    documents = [manifest(dump)["flight"] for dump in recorder.dumps]
    spans = [(one["trigger"], one["fired_ns"], one["until_ns"]) for one in documents]
    assert spans == [
        ("losses", 20 * SECOND, 21 * SECOND),
        ("rto", fault, fault + SECOND),
    ]
    assert not recorder.due.unwritten
    assert [document["unwritten_before"] for document in documents] == [0, 0]


def test_an_event_that_is_under_way_at_the_end_of_a_dump_is_whole_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first row is kept when the bundle is due, and another socket's; the others are not."""
    recorder, ring, now = rotating(EVERY_3_S, tmp_path, monkeypatch)
    rest = b""
    for now.ns, rows in looks():
        ring.write(rest + rows)
        rest = b""
        if now.ns == 4 * SECOND:
            ring.write(b"M0,%d,ee,1,1,1448,1,0\nM0,%d,dd,1,1,1448,1,0\n" % (now.ns - 1, now.ns))
            rest = b"".join(
                b"M1,%d,%s,2\nX,%d,%s,10\n" % (now.ns + after, socket, now.ns + after, socket)
                for after, socket in enumerate((b"ee", b"dd"), 1)
            )
        recorder.take_rows(now.ns)
        if len(recorder.dumps) == 2:
            break
    kept = [text(dump / EVENTS).splitlines() for dump in recorder.dumps]
    assert [sum(",ee," in row for row in rows) for rows in kept] == [3, 0]
    assert [sum(",dd," in row for row in rows) for rows in kept] == [0, 3]
    assert manifest(recorder.dumps[0])["completeness"]["exits_missing"] == {}


def test_a_dump_whose_recorder_is_killed_says_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    recorder, ring, _, now = flying(FlightPlan(10.0, MEMORY, ()), tmp_path / "edge", monkeypatch)
    monkeypatch.setattr(dump, "_write_parts", killed)
    for now.ns, rows in looks():
        ring.write(rows)
        if now.ns == 20 * SECOND:
            recorder.ask()
        if now.ns > 21 * SECOND:
            break
        recorder.take_rows(now.ns)
    with pytest.raises(KeyboardInterrupt):
        recorder.take_rows(now.ns)
    (left,) = tmp_path.glob("edge-*.partial")
    document = manifest(left)
    assert (document["unfinished"], document["events"]) == (True, None)
    assert document["flight"]["until_ns"] == 21 * SECOND
    assert document["clocks"]


def test_the_newest_dumps_are_kept_and_what_cannot_be_removed_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two dumps a second, by a name that what another recorder is writing has, too."""
    removed = list[Path]()

    def remove(path: Path, ignore_errors: bool) -> None:
        assert ignore_errors
        if said.count("cannot remove") == 3:
            removed.append(path)
            path.rename(tmp_path / f"gone-{len(removed)}")

    said = list[str]()
    flight = FlightPlan(2.0, MEMORY, (), 0.5, 2)
    recorder, ring, _, now = flying(flight, tmp_path / "edge", monkeypatch)
    monkeypatch.setattr(flight_recorder.shutil, "rmtree", remove)
    monkeypatch.setattr(flight_recorder.time, "strftime", lambda _: "20260101-000000")
    recorder.say = lambda text: said.append(" ".join(text.split()[:2]))
    (tmp_path / "edge-20260101-000000.partial").mkdir()
    (tmp_path / "edge-20260101-000000-003").mkdir()
    for now.ns, rows in looks():
        ring.write(rows)
        if now.ns % (2 * SECOND) == 0:
            recorder.ask()
        recorder.take_rows(now.ns)
        if now.ns > 12 * SECOND:
            break
    names = [f"edge-20260101-000000-{number:03}" for number in (2, 4, 5, 6, 7)]
    assert [path.name for path in removed] == names[:3]
    assert [path.name for path in recorder.dumps] == names[3:]
    assert said.count("cannot remove") == 3


def test_a_dump_without_rows_has_the_packets_that_tcpdump_still_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By inet_diag: it hands them on up to a second late."""
    recorder, _, _, now = flying(FlightPlan(10.0, MEMORY, ()), tmp_path / "edge", monkeypatch)
    recorder.rings.drop(EVENTS)
    ended = "tcpdump ended by itself"
    recorder.side.packets = SimpleNamespace(describe=dict, notes=lambda: [ended])
    packets = recorder.rings.open(PACKETS)
    head = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 128, 1)
    sent = [
        (ns, struct.pack("<IIII", ns // SECOND, ns % SECOND, 1, 1) + b"x")
        for ns in range(SECOND, 40 * SECOND, SECOND // 10)
    ]
    for now.ns in range(SECOND, 40 * SECOND, SECOND // 5):
        handed = [record for ns, record in sent if ns <= now.ns // SECOND * SECOND - SECOND // 2]
        packets.write(head + b"".join(handed))
        head, sent = b"", sent[len(handed) :]
        if now.ns == 20 * SECOND:
            recorder.ask()
        recorder.take_rows(now.ns)
    (written,) = recorder.dumps
    window, captured = manifest(written)["flight"], manifest(written)["packets"]
    assert window["until_ns"] == 21 * SECOND
    assert captured["packets_captured"] == 11 * 10
    assert manifest(written)["notes"] == [ended]


def test_what_happened_last_has_its_bundle_and_what_has_none_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends before its last rows were looked at: they hold a timeout, and losses."""
    said: list[str] = []
    fired: Any = SimpleNamespace(check=lambda batch: happened(now.ns) if batch.rows else None)
    flight = FlightPlan(10.0, MEMORY, (("rto", fired), ("losses", fired)))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    recorder.say = said.append

    def later(seconds: float) -> None:
        now.ns += round(seconds * SECOND)

    monkeypatch.setattr(flight_recorder.time, "monotonic_ns", lambda: now.ns)
    monkeypatch.setattr(flight_recorder.time, "sleep", later)
    for now.ns, rows in looks():
        ring.write(rows)
        if now.ns > 20 * SECOND:
            break
    coming[:] = rows.splitlines(keepends=True)[::-1]
    recorder.watching.ended, recorder.watching.why_end = "the command ended", lambda: ""
    recorder.watching.rows.dropped = 7
    recorder.run()
    assert [manifest(dump)["flight"]["trigger"] for dump in recorder.dumps] == ["rto"]
    assert said[-2].endswith("no bundle, as one was due or just written: losses 1 time")
    assert said[-1].endswith("too fast for triggers to look at: 7")


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


@pytest.mark.parametrize("late_s", [2, 30])
def test_a_look_that_comes_late_has_the_dump_that_it_would_have_had_in_time(
    late_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host of one CPU may be busy for longer than what is kept; its rows wait all the same."""
    trigger = of_rows("rto")
    assert trigger is not None
    flight = FlightPlan(5.0, MEMORY, (("rto", trigger),))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    monkeypatch.setattr(flight_recorder.time, "monotonic_ns", lambda: now.ns)
    recorder.say = (said := list[str]()).append
    fault, waiting = (1 + FAULT_S) * SECOND, list[bytes]()
    for now.ns, rows in looks():
        if now.ns < fault - 60 * SECOND:
            continue
        ring.write(rows)
        waiting += rows.splitlines(keepends=True)
        if not fault < now.ns < fault + late_s * SECOND:
            coming[:], waiting = waiting[::-1], []
            recorder.take_rows(now.ns)
        if now.ns > fault + (late_s + 9) * SECOND:
            break
    (dump,) = recorder.dumps
    document = manifest(dump)
    window = document["flight"]
    assert window["until_ns"] - window["from_ns"] == 6 * SECOND
    assert fault < window["fired_ns"] < fault + SECOND // PER_SECOND
    assert window["until_ns"] == window["fired_ns"] + SECOND
    assert document["notes"] == []
    (told,) = (words for words in said if words.startswith("trigger rto: a retransmission"))
    assert told.endswith(f" (seen {late_s:.1f} s later)") == (late_s > 2)
    rows_kept = text(dump / EVENTS).splitlines()
    assert [line for line in rows_kept if line.startswith("S,")]
    assert sum(line.startswith("M0,") for line in rows_kept) == 6 * PER_SECOND
    # What was held for the late look goes afterwards.
    kept = ring.ring
    assert kept.pieces[0].last_ns > now.ns - kept.span_ns - 2 * SECOND


def test_a_dump_reaches_back_to_when_it_began_to_record_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger: Any = SimpleNamespace(check=lambda _: happened(now.ns), begin=lambda _: None)
    flight = FlightPlan(LAST_S, MEMORY, (("losses", trigger),))
    recorder, ring, coming, now = flying(flight, tmp_path / "edge", monkeypatch)
    for now.ns, rows in looks():
        if now.ns == 10 * SECOND:
            begun(recorder, now, monkeypatch)
        if now.ns >= 10 * SECOND:
            ring.write(rows)
            coming[:] = rows.splitlines(keepends=True)[::-1]
            recorder.take_rows(now.ns)
        if recorder.dumps:
            break
    (dump,) = recorder.dumps
    document = manifest(dump)
    assert document["flight"]["from_ns"] == 10 * SECOND
    assert document["notes"] == []


def test_rotation_leaves_nothing_out_between_beginning_and_the_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may have done all that it does before the rows are looked at."""
    recorder, ring, now = rotating(EVERY_3_S, tmp_path, monkeypatch)
    written: list[bytes] = []
    for now.ns, rows in looks():
        ring.write(rows)
        written += rows.splitlines(keepends=True)
        recorder.take_rows(now.ns)
        if len(recorder.dumps) == 2:
            break
    documents = [manifest(dump)["flight"] for dump in recorder.dumps]
    assert documents[0]["from_ns"] == SECOND
    assert documents[1]["from_ns"] == documents[0]["until_ns"]
    kept = "".join(text(dump / "events.csv.zst") for dump in recorder.dumps).splitlines()
    rows_kept = [row for row in kept if not row.startswith(("#", "N1"))]
    until = documents[-1]["until_ns"]
    wanted = [row.decode().rstrip() for row in written if int(row.split(b",")[1]) < until]
    assert rows_kept == wanted


def test_a_rotation_that_comes_early_leaves_its_memory_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 kB a second come, some 2 MB are there: what was written need not be held against it."""
    flight = FlightPlan(120.0, MEMORY, (), 0.0, None, 60.0)
    recorder, ring, now = rotating(flight, tmp_path, monkeypatch)
    dice, kept = Random(5), 0
    for now.ns, rows in looks():
        for line in rows.splitlines(keepends=True):
            noise = dice.randbytes(6_000).hex().encode() if line.startswith(b"M1") else b""
            ring.write(line.replace(b"\n", noise + b"\n"))
        recorder.take_rows(now.ns)
        kept = max(kept, recorder.rings.size)
        if now.ns > 200 * SECOND:
            break
    windows = [manifest(dump)["flight"] for dump in recorder.dumps]
    assert all(one["why"] == "memory fills" for one in windows)
    assert [one["from_ns"] for one in windows[1:]] == [one["until_ns"] for one in windows[:-1]]
    sizes = [(dump / EVENTS).stat().st_size for dump in recorder.dumps]
    assert min(sizes) > MEMORY * 10 / 16 / 2
    assert kept < MEMORY


@pytest.mark.parametrize("rotate_s", [None, 1.0, 30.0])
def test_where_flows_are_silent_a_dump_waits_for_rows_and_has_what_came_before_all_the_same(
    rotate_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row comes to say that the time to write is over; ss is asked all the while."""
    kept_s = LAST_S if rotate_s is None else 2 * rotate_s
    after_s = 1.0 if rotate_s is None else 0.0
    flight = FlightPlan(kept_s, MEMORY, (), after_s, None, rotate_s)
    recorder, ring, _, now = flying(flight, tmp_path / "edge", monkeypatch)
    clock = SimpleNamespace(monotonic_ns=lambda: now.ns)
    monkeypatch.setattr(text_ring, "time", clock)
    begun(recorder, now, monkeypatch)
    polls = recorder.rings.open(SS)
    times: list[int] = []
    for now.ns, rows in looks():
        if now.ns <= 100 * SECOND or (rotate_s is not None and now.ns > 150 * SECOND):
            ring.write(rows)
            times += [int(row.split(b",")[1]) for row in rows.splitlines()]
        elif now.ns == 110 * SECOND and rotate_s is None:
            recorder.ask()
        polls.write(b"# monotonic_ns %d\n" % now.ns)
        recorder.take_rows(now.ns)
        if now.ns > 200 * SECOND:
            break
    documents = [manifest(dump) for dump in recorder.dumps]
    assert not [note for document in documents for note in document["notes"]]
    windows = [document["flight"] for document in documents]
    if rotate_s is None:
        (window,) = windows
        assert (window["from_ns"], window["until_ns"]) == (50 * SECOND, 111 * SECOND)
        assert manifest(recorder.dumps[0])["completeness"]["events"] == 50 * PER_SECOND
    else:
        spans = [(window["from_ns"], window["until_ns"]) for window in windows]
        assert all(until <= begin for (_, until), (begin, _) in pairwise(spans))
        assert spans[-1][1] > 170 * SECOND
        missed = [ns for ns in times if not any(begin <= ns < until for begin, until in spans)]
        assert all(ns >= spans[-1][1] for ns in missed)
        # No bundle is of the silence alone.
        assert all(any(begin <= ns < until for ns in times) for begin, until in spans)


def test_every_row_of_a_batch_counts_though_one_of_them_fires() -> None:
    """A flow that leaves Loss in the batch in which it entered it fires again when it is back."""
    trigger = of_rows("rto")
    assert trigger is not None
    columns = columns_of(HEADS)
    introduced = b"I,1,ff,20756,26855,33556746,2,33622282,0\n"
    batches = (
        [introduced, b"S,2,ff,1,4,0\n", b"S,3,ff,2,0,4\n"],
        [b"S,4,ff,3,4,0\n"],
        [b"S,5,ff,4,4,4\n", b"S,6,aa,1,4,0\n"],
    )
    said = [trigger.check(LiveBatch(columns, rows, 10)) for rows in batches]
    timeout = "a retransmission timeout of"
    flow = f"{timeout} 10.9.1.2:5201 > 10.9.0.2:59240"
    wanted = [(flow, 2), (flow, 4), (f"{timeout} socket aa", 6)]
    assert said == [Happened(why, ns) for why, ns in wanted]
