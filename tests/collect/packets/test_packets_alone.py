"""Blocks that programs add to a pcapng are no packets, whatever tshark takes them for."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.packets import parts
from bbrscope.collect.packets.capture_blocks import blocks
from bbrscope.collect.packets.packets_alone import packets_alone

from tests.frames import capture, ethernet, ipv4, tcp

pytestmark = pytest.mark.skipif(
    shutil.which("editcap") is None, reason="no tshark: apt-get install tshark"
)
CUSTOM, JOURNAL, UNKNOWN = 0xBAD, 9, 0xABCDEF01
NETFLIX = struct.pack("<II", 10949, 2) + bytes(100)


def block(kind: int, body: bytes) -> bytes:
    size = 12 + len(body)
    return struct.pack("<II", kind, size) + body + struct.pack("<I", size)


@pytest.fixture
def captures(tmp_path: Path) -> tuple[Path, Path]:
    """A pcapng of several connections, and the same with other blocks between its packets."""
    frames = [
        ethernet(ipv4(tcp(1000 + 100 * turn, 5, 16, 100, ports=(40000 + port, 80))))
        for turn in range(20)
        for port in range(6)
    ]
    plain, among = tmp_path / "plain.pcapng", tmp_path / "among.pcapng"
    times = [(1_700_000_000, 10 * number) for number in range(len(frames))]
    pcap = capture(tmp_path / "plain.pcap", frames, times=times)
    subprocess.run(["editcap", "-F", "pcapng", str(pcap), str(plain)], check=True)
    added = (block(CUSTOM, NETFLIX), block(JOURNAL, b"MESSAGE=hello\n\0\0"), block(UNKNOWN, b""))
    with among.open("wb") as file:
        for number, one in enumerate(blocks(plain)):
            file.write(one.raw)
            if number >= 2:
                file.write(added[number % 3])
    return plain, among


def loaded(path: Path, store_path: Path) -> list[Any]:
    with open_store(store_path) as store:
        ingest(store, path)
        return store.con.execute("FROM packets ORDER BY packet").fetchall()


@pytest.mark.parametrize("sorted_by_connection", [False, True])
def test_packets_are_numbered_without_other_blocks(
    captures: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sorted_by_connection: bool,
) -> None:
    plain, among = captures
    monkeypatch.setattr(parts, "WORTH_SORTING", 0 if sorted_by_connection else 1 << 60)
    monkeypatch.setattr(parts, "_cores", lambda: 2)
    expected = loaded(plain, tmp_path / "plain.duckdb")
    assert len(expected) == 120
    assert loaded(among, tmp_path / "among.duckdb") == expected


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_only_other_blocks_are_left_out_however_the_pieces_are_cut(
    captures: tuple[Path, Path], size: int
) -> None:
    def passed(data: bytes) -> bytes:
        pieces = [(at, data[at : at + size]) for at in range(0, len(data), size)]
        return b"".join(piece for _, piece in packets_alone(pieces))

    plain, among = (path.read_bytes() for path in captures)
    alone = passed(among)
    assert alone == passed(plain)
    assert block(CUSTOM, NETFLIX) not in alone
    assert [one.frame for one in blocks(captures[0]) if one.frame] == list(range(1, 121))
    # What is cut off stays so, and what makes no sense stays as it is.
    assert passed(among[:-3]) == alone + among[-block_end(among) : -3]
    broken = among[: -block_end(among)] + struct.pack("<II", UNKNOWN, 7) + plain
    assert passed(broken).endswith(struct.pack("<II", UNKNOWN, 7) + plain)
    assert passed(b"\xd4\xc3\xb2\xa1" + plain) == b"\xd4\xc3\xb2\xa1" + plain


def block_end(data: bytes) -> int:
    """The size of the last block."""
    return int(struct.unpack("<I", data[-4:])[0])
