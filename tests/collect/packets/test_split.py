"""Captures dissected in parts: nothing of the result tells, and memory stays within its bounds."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bbrscope import fixtures
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.ingest.outcome import Outcome
from bbrscope.collect.packets import parts as packets_parts
from bbrscope.collect.packets import tshark as packets_tshark
from bbrscope.collect.packets.capture_file import pieces
from bbrscope.collect.packets.tshark_fields import FIELDS
from bbrscope.collect.packets.tshark_text import Decoder
from bbrscope.collect.store.store import open_store

from tests.frames import capture, ethernet, ipv4, ipv6, tcp

pytestmark = pytest.mark.skipif(
    shutil.which("tshark") is None,
    reason=f"tshark is not installed: {packets_tshark.GET_TSHARK}",
)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped recording's capture, unpacked."""
    path = tmp_path_factory.mktemp("recorded") / "recorded.pcap"
    source = fixtures.path("v2_single_1bdp") / "packets.pcap.zst"
    path.write_bytes(b"".join(piece for _, piece in pieces(source)))
    return path


def _many_flows(recorded: Path, path: Path, flows: int) -> Path:
    """The capture with its packets dealt out to flows of other addresses, each of them whole."""
    data = recorded.read_bytes()
    out, at = bytearray(data[:24]), 24
    while at < len(data):
        end = at + 16 + struct.unpack_from("<I", data, at + 8)[0]
        for flow in range(flows):
            frame = bytearray(data[at:end])
            # Third bytes of both IPv4 addresses, behind record and Ethernet headers.
            frame[16 + 28] = frame[16 + 32] = flow
            out += frame
        at = end
    path.write_bytes(out)
    return path


def _everything(path: Path) -> Path:
    """Connections of all kinds, entangled: what tshark follows must go where its connection is."""
    frames = []
    for turn in range(60):
        for port in range(40000, 40012):
            ends, back = (port, 80), (80, port)
            seq, ack = 1000 + 100 * turn, 5000
            segment = tcp(seq, ack, 16, 100, ports=ends)
            answer = tcp(ack, seq + 100, 16, 0, ports=back)
            if port % 3 == 0:
                frames += [ethernet(ipv6(segment)), ethernet(ipv6(answer))]
            elif port % 3 == 1:
                tunnel = ipv4(ipv4(segment), "192.0.2.1", "192.0.2.2", 0, 4)
                frames += [ethernet(tunnel), ethernet(ipv4(answer, "10.0.0.2", "10.0.0.1"), 7)]
            else:
                # Sent again, and told of by an ICMP error that quotes eight bytes of it.
                quoted = ipv4(segment)[:28]
                error = ipv4(struct.pack("!BBHI", 3, 4, 0, 0) + quoted, "10.9.9.9", proto=1)
                frames += [ethernet(ipv4(segment)), ethernet(error), ethernet(ipv4(segment))]
        frames.append(bytes(12) + b"\x08\x06" + bytes(28))
        frames.append(ethernet(ipv4(struct.pack("!HHHH", 53, 53, 108, 0) + bytes(100), proto=17)))
        # Headers that are longer than the frame, or shorter than any header.
        for words in (0, 3, 15):
            bogus = bytearray(tcp(turn, 1, 24, 60, ports=(51000 + words, 80)))
            bogus[12] = words << 4
            frames.append(ethernet(ipv4(bytes(bogus))))
        # A connection that tshark can name only by an error about it.
        lonely = ipv4(tcp(1, 2, 16, 0, ports=(50000 + turn, 81)))[:28]
        frames.append(ethernet(ipv4(struct.pack("!BBHI", 3, 1, 0, 0) + lonely, proto=1)))
    return capture(path, frames, times=[(1_700_000_000, 10 * n) for n in range(len(frames))])


def _loaded(path: Path, folder: Path, parts: bool) -> tuple[Outcome, dict[str, list[Any]]]:
    """What a capture becomes; sorted by connection into two parts or more, or not at all."""
    with pytest.MonkeyPatch.context() as patch, open_store(folder / f"{parts}.duckdb") as store:
        patch.setattr(packets_parts, "WORTH_SORTING", 0 if parts else 1 << 60)
        patch.setattr(packets_parts, "_cores", lambda: 2)
        outcome = ingest(store, path)
        rows = {
            table: store.con.execute(f"FROM {table} ORDER BY ALL").fetchall()
            for table in ("packets", "streams", "captures", "capture_quality")
        }
    return outcome, rows


@pytest.mark.parametrize("damage", [0, 0.01])
def test_columns_hold_what_tshark_says_as_fields(tmp_path: Path, damage: float) -> None:
    """What ingest asks for costs tshark half as much; `-T fields` is the way its manual shows."""
    path = _everything(tmp_path / "sound.pcap")
    if damage:
        whole, path = path, tmp_path / "damaged.pcap"
        subprocess.run(["editcap", "--seed", "7", "-E", str(damage), whole, path], check=True)
    names = [word for field in FIELDS for word in ("-e", field.name)]
    done = subprocess.run(
        ["tshark", "-n", "-r", path, *packets_tshark.OPTIONS, "-T", "fields", *names],
        capture_output=True,
        check=True,
    ).stdout
    expected = Decoder().decode(np.frombuffer(done, np.uint8), len(done))
    source = pieces(path)
    with packets_tshark.Dissection(source, "it", None, lambda: True) as dissection:
        (found,) = dissection.batches()
    assert found.rows.equals(expected.rows)
    assert found.born.tolist() == expected.born.tolist()
    assert found.rows.num_rows > 1000


def test_lines_longer_than_the_buffer_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _everything(tmp_path / "x.pcap")
    read = []
    for size in (packets_tshark.BLOCK, 100):
        monkeypatch.setattr(packets_tshark, "BLOCK", size)
        with packets_tshark.Dissection(pieces(path), "it", None, lambda: True) as dissection:
            read.append([batch.rows for batch in dissection.batches()])
    (whole,), short = read
    assert len(short) > 100
    assert pa.Table.from_batches(short).equals(pa.Table.from_batches([whole]))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each sorted capture was dealt out to."""
    jobs: list[int] = []
    deal = packets_parts.Parts._jobs

    def counted(parts: packets_parts.Parts) -> list[list[int]]:
        dealt = deal(parts)
        jobs.append(len(dealt))
        return dealt

    monkeypatch.setattr(packets_parts.Parts, "_jobs", counted)
    return jobs


@pytest.mark.parametrize("kind", ["recorded", "everything", "pcapng", "cut", "gz"])
def test_parts_give_what_one_tshark_gives(
    recorded: Path, tmp_path: Path, ran: list[int], kind: str
) -> None:
    path = tmp_path / "x.pcap"
    if kind == "recorded":
        shutil.copy(recorded, path)
    elif kind == "cut":
        path.write_bytes(recorded.read_bytes()[:-13])
    else:
        _everything(path)
    if kind == "gz":
        subprocess.run(["gzip", path], check=True)
        path = tmp_path / "x.pcap.gz"
    if kind == "pcapng":
        subprocess.run(["editcap", "-F", "pcapng", path, tmp_path / "x.pcapng"], check=True)
        path = tmp_path / "x.pcapng"
    _, whole = _loaded(path, tmp_path, parts=False)
    assert ran == []
    outcome, parts = _loaded(path, tmp_path, parts=True)
    assert ran == [2]
    assert parts == whole
    assert ("capture_cut" in outcome.notes) == (kind == "cut")
    assert outcome.packets > 1000


def test_a_connection_that_headers_alone_do_not_tell_is_dissected_by_one_tshark(
    tmp_path: Path, ran: list[int]
) -> None:
    """In fragments: only the first has ports."""
    frames = []
    for turn in range(40):
        for port in range(40000, 40008):
            packet = ipv4(tcp(1000 + 160 * turn, 7, 16, 160, ports=(port, 80)))
            if turn == 20 and port % 2:
                head, body = bytearray(packet[:20]), packet[20:]
                for offset, part in ((0x2000, body[:96]), (12, body[96:])):
                    struct.pack_into("!H", head, 2, 20 + len(part))
                    struct.pack_into("!HH", head, 4, port, offset)
                    frames.append(ethernet(bytes(head) + part))
            else:
                frames.append(ethernet(packet))
    path = capture(tmp_path / "fragments.pcap", frames)
    _, whole = _loaded(path, tmp_path, parts=False)
    outcome, parts = _loaded(path, tmp_path, parts=True)
    assert ran == [2]
    assert parts == whole
    assert outcome.packets == 40 * 8


def test_many_connections_need_no_more_memory_than_there_is(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[int]
) -> None:
    """One tshark would take 290 MB for these; 220 MB hold some 80,000 packets at a time."""
    path = _many_flows(recorded, tmp_path / "many.pcap", 8)
    taken = []
    memory = packets_tshark.Dissection.memory

    def noted(dissection: packets_tshark.Dissection) -> int:
        taken.append(memory(dissection))
        return taken[-1]

    monkeypatch.setattr(packets_tshark.Dissection, "memory", noted)
    limit = 220_000_000
    monkeypatch.setattr(
        packets_parts, "free_memory", lambda: int(limit / packets_parts.MEMORY_SHARE)
    )
    outcome, _ = _loaded(path, tmp_path, parts=True)
    assert outcome.notes == {}
    assert outcome.packets == 8 * _segments(recorded)
    assert ran[0] > 2
    assert 0 < max(taken) <= limit


def _segments(recorded: Path) -> int:
    said = subprocess.run(
        ["tshark", "-r", str(recorded), "-Y", "tcp", "-T", "fields", "-e", "frame.number"],
        capture_output=True,
        check=True,
    ).stdout
    return said.count(b"\n")
