"""The row stream: order restored, talk kept aside, accounts right, the end cut clean."""

from __future__ import annotations

import errno
import io
import os
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from bbrscope.collect.events.read_events import EventReader
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.record.output import check
from bbrscope.collect.record.output.late_rows import put_in_order
from bbrscope.collect.record.output.stream import MOST_LINES, Compressed, Events, Stderr
from bbrscope.collect.store.store import open_store

HEAD = b"#M0,ns,sk,seqno,tp.delivered,tp.mss_cache,rs.acked_sacked\n#M1,ns,sk,bbr.mode\n#X,ns,sk\n"
SECOND = 1_000_000_000


def event(ns: int, sk: str, seqno: int, delivered: int, acked: int) -> bytes:
    rows = f"M0,{ns},{sk},{seqno},{delivered},1448,{acked}\nM1,{ns + 5},{sk},0\nX,{ns + 9},{sk}\n"
    return rows.encode()


def pump(
    pieces: list[bytes], folder: Path, cut_after_ns: int | None = None
) -> tuple[Events, bytes]:
    """Feed pieces as a child would, and return the stream and what was written."""
    source, sink = os.pipe()
    path = folder / "events.csv.zst"
    target = Compressed(path)
    events = Events(source, target)
    if cut_after_ns is not None:
        events.cut_after(cut_after_ns)
    events.start()
    for piece in pieces:
        os.write(sink, piece)
    os.close(sink)
    events.join(20)
    target.close()
    return events, zstandard.ZstdDecompressor().stream_reader(path.open("rb")).read()


def test_rows_pass_unchanged_and_are_counted_by_tag(tmp_path: Path) -> None:
    data = HEAD + event(1000, "ff00", 0, 1, 1) + event(2000, "ff00", 1, 2, 1)
    events, written = pump([data], tmp_path)
    assert written == data
    assert events.rows == {"M0": 2, "M1": 2, "X": 2}


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pieces_of_any_size_make_the_same_stream(size: int, tmp_path: Path) -> None:
    data = HEAD + b"".join(event(1000 * i, "ff00", i, i, 1) for i in range(1, 20))
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert pump(pieces, tmp_path)[1] == data


def test_rows_of_several_cpus_come_out_in_order_of_time(tmp_path: Path) -> None:
    one, two, three = (event(1000 * i, "ff00", i, i, 1) for i in (1, 2, 3))
    _, written = pump([HEAD + two, three, one], tmp_path)
    assert written == HEAD + one + two + three


def test_rows_that_come_after_newer_ones_were_written_are_put_in_order_later(
    tmp_path: Path,
) -> None:
    """As a bpftrace that stood still prints them: all rows of one CPU before those of the next."""
    made = [event(i * SECOND // 4, "ff00", i, 10 + i, 1) for i in range(1, 80)]
    one_cpu, other_cpu = made[:20] + made[20:60:2], made[21:60:2]
    source, sink = os.pipe()
    path = tmp_path / "events.csv.zst"
    target = Compressed(path)
    events = Events(source, target)
    for piece in ([HEAD], one_cpu, other_cpu, made[60:]):
        events.accept(b"".join(piece))
    events.accept_end()
    target.close()
    os.close(source)
    os.close(sink)
    assert written_so_far(path) != HEAD + b"".join(made)
    found = check.check(path)
    assert (found.sequence_missing, found.flows) == (0, 1)
    assert found.out_of_order > 0
    # Up to the time of the newest that was written before: it was a second older than the newest.
    assert 0 < events.late_ns <= (59 - 21) * SECOND // 4
    put_in_order(path, events.late_ns)
    assert written_so_far(path) == HEAD + b"".join(made)
    assert list(tmp_path.iterdir()) == [path]
    found = check.check(path)
    assert (found.out_of_order, found.sequence_missing, found.chain_breaks) == (0, 0, 0)


def test_rows_in_order_are_not_called_late(tmp_path: Path) -> None:
    made = b"".join(event(i * SECOND // 4, "ff00", i, 10 + i, 1) for i in range(1, 80))
    assert pump([HEAD, made], tmp_path)[0].late_ns == 0


def test_what_is_not_a_row_is_kept_aside_and_understood(tmp_path: Path) -> None:
    talk = b"Attaching 13 probes...\nLost 7 events\nsomething odd\n\n"
    end = b"\n@attempted_M: 9\n@attempted_X: 9\n"
    events, written = pump([talk, HEAD, event(1000, "ff00", 0, 1, 1), end], tmp_path)
    assert written == HEAD + event(1000, "ff00", 0, 1, 1)
    assert events.lost == 7
    assert events.attempted == {"M": 9, "X": 9}
    assert "something odd" in events.talk


def test_attached_means_that_both_heartbeats_were_seen(tmp_path: Path) -> None:
    assert not pump([HEAD, b"+first\n"], tmp_path)[0].attached.is_set()
    assert pump([HEAD, b"+first\n", b"+last\n"], tmp_path)[0].attached.is_set()


@pytest.mark.parametrize("overs", [0, 1, 2, 5])
def test_all_is_printed_when_the_program_said_twice_that_it_is_over(
    overs: int, tmp_path: Path
) -> None:
    """Not when bpftrace is silent: it may wait for a CPU, with rows on their way."""
    source, sink = os.pipe()
    events = Events(source, Compressed(tmp_path / "events.csv.zst"))
    events.start()
    os.write(sink, HEAD + event(1000, "ff00", 0, 1, 1) + b"+over\n" * overs)
    assert events.wait_printed(0.2) == (overs >= 2)
    os.close(sink)
    events.join(20)
    assert not events.talk
    assert events.attached.is_set() is False


def test_events_that_begin_after_the_stop_are_cut_whole_and_counted(tmp_path: Path) -> None:
    before, after = event(1000, "ff00", 0, 1, 1), event(5000, "ff00", 1, 2, 1)
    events, written = pump([HEAD, before, after], tmp_path, cut_after_ns=4000)
    assert written == HEAD + before
    assert events.cut == {"M0": 1, "M1": 1, "X": 1}


def test_what_main_left_belongs_to_the_event_that_was_recorded(tmp_path: Path) -> None:
    """The exit of a call that began before the stop is kept, that of a later call is not."""
    rows = [b"M0,3999,ff00,1,2,14\n", b"M1,4001,ff00,7\n", b"X,4003,ff00,9\n"]
    later = [b"X,4005,ff00,10\n", b"IX0,4006,ff11,10\n", b"IX1,4007,ff11,10\n"]
    events, written = pump([HEAD, *rows, *later], tmp_path, cut_after_ns=4000)
    assert written == HEAD + b"".join(rows)
    assert events.cut == {"X": 1, "IX0": 1, "IX1": 1}


def test_a_row_cut_short_by_death_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    whole = event(1000, "ff00", 0, 1, 1)
    _, written = pump([HEAD, whole, b"M0,2000,ff00,1,2,14"], tmp_path)
    assert written == HEAD + whole


def test_memory_is_bounded_by_little_more_than_a_second_of_rows(tmp_path: Path) -> None:
    source, sink = os.pipe()
    events = Events(source, Compressed(tmp_path / "events.csv.zst"))
    for i in range(1, 200):
        events.accept((HEAD if i == 1 else b"") + event(i * SECOND // 10, "ff00", i, i, 1))
        assert len(events._held) <= 3 * 14
    os.close(source)
    os.close(sink)


def test_a_full_disk_is_remembered_and_the_child_is_still_read(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    source, sink = os.pipe()
    events = Events(source, Compressed(Path("/dev/full")))
    events.start()
    rows = b"".join(event(i * SECOND, "ff00", i, i, 1) for i in range(1, 2000))
    noise = os.urandom(1 << 20).hex().encode()  # does not compress away
    os.write(sink, HEAD)
    for i in range(40):
        os.write(sink, b"M0,%d,ff00,%s\n" % (i * SECOND, noise[i * 1000 : i * 1000 + 900]))
    for start in range(0, len(rows), 4096):
        os.write(sink, rows[start : start + 4096])
    os.close(sink)
    events.join(20)
    assert not events.is_alive()
    assert events.error is not None
    assert events.error.errno == errno.ENOSPC


def completeness(data: bytes, folder: Path) -> check.Completeness:
    path = folder / "events.csv.zst"
    path.write_bytes(zstandard.compress(HEAD + data))
    return check.check(path)


def test_a_whole_recording_has_no_gap(tmp_path: Path) -> None:
    data = b"".join(event(1000 * i, "ff00", i, 10 + i, 1) for i in range(5))
    found = completeness(data, tmp_path)
    assert (found.events, found.sockets) == (5, 1)
    assert (found.sequence_missing, found.chain_breaks) == (0, 0)


def test_a_missing_number_is_a_missing_event(tmp_path: Path) -> None:
    data = b"".join(event(1000 * i, "ff00", i, 10 + i, 1) for i in (0, 1, 4, 5))
    found = completeness(data, tmp_path)
    assert (found.sequence_missing, found.chain_breaks) == (2, 0)
    assert found.first[0][1] == "ff00"


def test_a_call_that_no_probe_saw_breaks_the_chain_of_delivered(tmp_path: Path) -> None:
    """A kprobe that did not fire takes no number either: only the data can tell."""
    data = event(1000, "ff00", 0, 10, 1) + event(2000, "ff00", 1, 12, 1)
    found = completeness(data, tmp_path)
    assert (found.sequence_missing, found.chain_breaks) == (0, 1)


IDLE_HEAD = (
    b"#M0,ns,sk,seqno,rs.prior_delivered:32+rs.delivered:32,rs.acked_sacked,tp.delivered,"
    b"tp.app_limited:32+tp.packets_out:32,tp.mss_cache\n#E0,ns,sk,seqno,tp.delivered\n"
)


def call(number: int, acked: int, prior: int, delivered: int, in_flight: int) -> bytes:
    """A row of main() under IDLE_HEAD."""
    words = b"%x,%d,%d,%x,1448" % (1 << 32 | prior, acked, delivered, in_flight << 32)
    return b"M0,%d,ff00,%d,%b\n" % (1000 * number, number, words)


@pytest.mark.parametrize(
    ("in_flight", "sent", "prior", "breaks"),
    [
        # A D-SACK while nothing was in flight, then data, or no more than a FIN.
        (0, 1, 11, 0),
        (0, 0, 11, 0),
        # A call went unseen: a packet was sent and acknowledged, and then another.
        (0, 2, 11, 1),
        # Or one of those that were in flight was, or the first of two sent together.
        (1, 1, 11, 1),
        (0, 1, 10, 1),
    ],
)
def test_what_is_delivered_again_while_nothing_is_in_flight_calls_no_main(
    in_flight: int, sent: int, prior: int, breaks: int, tmp_path: Path
) -> None:
    """A retransmission that was not needed counts as delivered when a D-SACK tells of it."""
    rows = [call(0, 1, 9, 10, in_flight)]
    rows += [b"E0,%d,ff00,%d,11\n" % (1000 * n, n) for n in range(1, sent + 1)]
    rows.append(call(sent + 1, 1, prior, 12, 0))
    path = tmp_path / "events.csv.zst"
    path.write_bytes(zstandard.compress(IDLE_HEAD + b"".join(rows)))
    found = check.check(path)
    assert (found.events, found.sequence_missing, found.chain_breaks) == (sent + 2, 0, breaks)
    assert noted(path) == ["delivered_jump"] * breaks
    # Of what is known to be missing nobody knows that it was no call of main().
    rows[-1] = call(sent + 2, 1, prior, 12, 0)
    path.write_bytes(zstandard.compress(IDLE_HEAD + b"".join(rows)))
    assert noted(path) == ["delivered_jump", "sequence_gap"]


def noted(path: Path) -> list[str]:
    """The codes of the notes that ingest makes on a recording's rows."""
    reader = EventReader(path, path.name)
    assert sum(batch.num_rows for batch in reader.batches()) > 1
    return sorted({note.code for note in reader.notes} - {"no_init", "no_exits"})


def test_an_address_used_again_starts_from_zero(tmp_path: Path) -> None:
    data = event(1000, "ff00", 0, 10, 1) + event(2000, "ff00", 0, 1, 1)
    found = completeness(data, tmp_path)
    assert (found.sequence_missing, found.chain_breaks) == (0, 0)


@pytest.mark.parametrize(
    ("rows", "flows"),
    [
        # Numbers stay 0 where the recorder has no room to count the events of so many sockets.
        ([(0, b"M"), (0, b"M"), (0, b"M")], 1),
        ([(0, b"M"), (0, b"I"), (1, b"M")], 2),
        ([(0, b"M"), (7, b"N"), (0, b"M"), (7, b"N"), (0, b"M")], 2),
        ([(7, b"N"), (0, b"M"), (7, b"N"), (0, b"M"), (8, b"N"), (0, b"M")], 2),
        ([(0, b"M"), (1, b"M"), (0, b"M")], 2),
    ],
)
def test_numbers_that_stay_zero_make_as_many_flows_as_they_do_when_loaded(
    rows: list[tuple[int, bytes]], flows: int, tmp_path: Path, make_bundle: Any
) -> None:
    """Row N is of a socket's port, the others of an event's number."""
    head = (
        b"#N,ns,sk,sport,dport,daddr,saddr,family\n#M,ns,sk,seqno,rs.acked_sacked,tp.delivered,"
        b"tp.mss_cache,bbr.lt_bw\n#I,ns,sk,seqno,sport,dport,daddr,saddr,family,bbr.lt_bw\n"
    )
    text = {b"N": b"%d,20,1,2,2", b"M": b"%d,1,10,1448,0", b"I": b"%d,8,20,1,2,2,0"}
    data = b"".join(
        tag + b",%d,ff00," % (1000 * at) + text[tag] % number + b"\n"
        for at, (number, tag) in enumerate(rows)
    )
    bundle = make_bundle((head + data).decode().splitlines())
    found = check.check(bundle / "events.csv.zst")
    assert (found.flows, found.sequence_missing) == (flows, 0)
    with open_store(tmp_path / "loaded.duckdb") as store:
        assert ingest(store, bundle, packets=False).flows == flows


def test_an_address_used_again_whose_first_events_are_missing_says_how_many(
    tmp_path: Path,
) -> None:
    data = event(1000, "ff00", 7, 10, 1) + event(2000, "ff00", 3, 1, 1)
    found = completeness(data, tmp_path)
    assert (found.sequence_missing, found.out_of_order, found.flows) == (3, 0, 2)


@pytest.mark.parametrize(
    ("order", "odd"), [((0, 1, 1, 2), 1), ((0, 2, 1, 3), 1), ((3, 0, 1, 2, 4), 3)]
)
def test_events_twice_or_out_of_order_are_not_called_missing(
    order: tuple[int, ...], odd: int, tmp_path: Path
) -> None:
    data = b"".join(event(1000 * i, "ff00", i, 10 + i, 1) for i in order)
    found = completeness(data, tmp_path)
    assert (found.sequence_missing, found.out_of_order, found.chain_breaks) == (0, odd, 0)
    assert (found.events, found.flows) == (len(order), 1)


def test_a_stream_cut_by_a_crash_is_checked_to_its_last_whole_row(tmp_path: Path) -> None:
    path = tmp_path / "events.csv.zst"
    writer = Compressed(path)
    writer.write(HEAD + event(1000, "ff00", 0, 10, 1))
    writer.flush()
    assert check.check(path).events == 1
    writer.close()


def test_the_chain_is_followed_through_columns_of_several_rows(tmp_path: Path) -> None:
    """bpftrace 0.17 prints v2's and v3's rows in so many parts that the MSS is in the second."""
    head = b"#M0,ns,sk,seqno,rs.acked_sacked,tp.delivered\n#M1,ns,sk,tp.mss_cache\n"
    rows = [(0, 1, 10), (1, 2, 12), (2, 1, 15)]
    data = b"".join(
        b"M0,%d,ff00,%d,%d,%d\nM1,%d,ff00,1448\n" % (1000 * n, n, acked, total, 1000 * n + 5)
        for n, acked, total in rows
    )
    path = tmp_path / "events.csv.zst"
    path.write_bytes(zstandard.compress(head + data))
    found = check.check(path)
    assert (found.events, found.sequence_missing, found.chain_breaks) == (3, 0, 1)


def test_every_loss_that_is_reported_on_stderr_is_counted_and_of_the_rest_the_first_lines(
    tmp_path: Path,
) -> None:
    """bpftrace 0.24 and later tell losses there: far more lines than are kept."""
    source, sink = os.pipe()
    target = Compressed(tmp_path / "events.csv.zst")
    events = Events(source, target)
    events.start()
    os.write(sink, b"Lost 3 events\n")
    os.close(sink)
    losses = b"".join(b"WARNING: Lost %d events\n" % n for n in range(1, 51)) * 400
    said = Stderr(
        io.BytesIO(b"WARNING: one\n" + losses + b"two\n" * 5000 + b"Lost 7 events"), events
    )
    said.start()
    said.join(20)
    events.join(20)
    target.close()
    assert events.lost == 3 + 400 * 1275 + 7
    assert said.lines[:2] == ["WARNING: one", "two"]
    assert len(said.lines) == MOST_LINES


def test_rows_are_written_though_no_newer_ones_come(tmp_path: Path) -> None:
    """A killed collector leaves them; newest rows may still be waiting for those of other CPUs."""
    now = time.monotonic_ns()
    old, new = event(now - 60 * SECOND, "ff00", 0, 1, 1), event(now + 60 * SECOND, "ff00", 1, 2, 1)
    source, sink = os.pipe()
    path = tmp_path / "events.csv.zst"
    target = Compressed(path)
    events = Events(source, target)
    events.start()
    os.write(sink, HEAD + new + old)
    deadline = time.monotonic() + 30
    while written_so_far(path) != HEAD + old:
        assert time.monotonic() < deadline, written_so_far(path)
        time.sleep(0.1)
    os.close(sink)
    events.join(20)
    target.close()
    assert written_so_far(path) == HEAD + old + new


def written_so_far(path: Path) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())


def test_what_comes_after_the_end_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    target = Compressed(tmp_path / "events.csv.zst")
    target.write(b"X,1,a\n")
    target.close()
    written = (tmp_path / "events.csv.zst").read_bytes()
    target.flush()
    with pytest.raises(OSError, match="closed"):
        target.write(b"X,2,a\n")
    assert (tmp_path / "events.csv.zst").read_bytes() == written
