"""The last seconds of a packet capture in memory: whole packets of the classic pcap format."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

from ..record.captures.headers_only import FILE_HEADER, ORDERS, RECORD_HEADER
from .pieces import PieceRing

PIECE_BYTES = 1 << 20
PIECE_NS = 1_000_000_000
# By the file's magic number: nanoseconds or microseconds in the second field of a record.
NANOSECONDS = (b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")


class PacketRing:
    """Takes a capture in pieces of any size and keeps the last packets.

    Times are those of the packets, CLOCK_REALTIME in ns.
    """

    def __init__(self, span_ns: int, most_bytes: int) -> None:
        self.ring = PieceRing(span_ns, most_bytes)
        self.header = b""
        self._record: struct.Struct | None = None
        self._unit_ns = 1000
        self._tail = b""
        self._waiting: list[bytes] = []
        self._span = (0, 0)
        self._size = 0
        self._lock = threading.Lock()

    @property
    def written(self) -> int:
        """Bytes that are kept."""
        return self.ring.size + self._size

    def write(self, data: bytes) -> None:
        """Take more of the capture."""
        with self._lock:
            data = self._tail + data
            if self._record is None:
                data = self._read_header(data)
            self._tail = data if self._record is None else self._take(data, self._record)

    def flush(self) -> None:
        """Do nothing: what was written can be read at once."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _read_header(self, data: bytes) -> bytes:
        if len(data) < FILE_HEADER:
            return data
        order = ORDERS.get(data[:4])
        if order is None:
            raise OSError(0, "tcpdump did not write a pcap file")
        self.header = data[:FILE_HEADER]
        self._record = struct.Struct(f"{order}IIII")
        self._unit_ns = 1 if data[:4] in NANOSECONDS else 1000
        return data[FILE_HEADER:]

    def _take(self, data: bytes, record: struct.Struct) -> bytes:
        """Keep the whole packets; return what is left."""
        ends = list(self._packets(data, record))
        if not ends:
            return data
        end, last_ns = ends[-1]
        if not self._waiting:
            self._span = (ends[0][1], last_ns)
        self._span = (self._span[0], max(self._span[1], last_ns))
        self._waiting.append(data[:end])
        self._size += end
        if self._size > PIECE_BYTES or self._span[1] - self._span[0] > PIECE_NS:
            self._seal()
        return data[end:]

    def _packets(self, data: bytes, record: struct.Struct) -> list[tuple[int, int]]:
        """Where each whole packet ends, and its time."""
        packets, at = [], 0
        while at + RECORD_HEADER <= len(data):
            seconds, fraction, captured, _ = record.unpack_from(data, at)
            if at + RECORD_HEADER + captured > len(data):
                break
            at += RECORD_HEADER + captured
            packets.append((at, seconds * 1_000_000_000 + fraction * self._unit_ns))
        return packets

    def _seal(self) -> None:
        data = b"".join(self._waiting)
        self._waiting, self._size = [], 0
        self.ring.add(*self._span, data)

    def write_window(self, from_ns: int, until_ns: int, write: Callable[[bytes], None]) -> int:
        """Write the packets of a window as a capture; return how many."""
        with self._lock:
            if self._waiting:
                self._seal()
            pieces = self.ring.since(from_ns)
        if self._record is None:
            return 0
        write(self.header)
        count = 0
        for piece in pieces:
            data, start = piece.data(), 0
            for end, ns in self._packets(data, self._record):
                if from_ns <= ns < until_ns:
                    write(data[start:end])
                    count += 1
                start = end
        return count
