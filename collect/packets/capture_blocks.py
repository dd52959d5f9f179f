"""A capture as pcapng blocks, one at a time, each packet with its time; nothing is dissected.

Blocks of a pcapng pass through byte by byte, whatever they are: names, secrets, statistics. A pcap
becomes the pcapng that Wireshark would save, with nanoseconds. Source: draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...probes.base.errors import BundleError
from ...probes.base.plurals import plural
from ..bundle.zstd import DamagedError
from .capture_file import PCAP_MAGICS, pieces
from .capture_records import (
    ENHANCED_PACKET,
    INTERFACE,
    LEAST_BLOCK,
    MOST_BYTES,
    OLD_PACKET,
    ORDER_MAGIC,
    SECTION,
    SIMPLE_PACKET,
)

COMMENT, TIME_RESOLUTION, TIME_OFFSET = 1, 9, 14
NAMES, SECRETS = 4, 10
# No text of an option is longer (its length has 16 bits); this leaves room for a character cut off.
MOST_COMMENT = 60_000
# Blocks that are no packet, as certificates and keys are, may be somewhat larger.
_MOST_BLOCK = 16 * MOST_BYTES
PACKETS = (OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET)


def heading(data: bytes | memoryview, at: int, order: str) -> tuple[str, int, int]:
    """Return the byte order, type and size of the pcapng block at a place of LEAST_BLOCK or more.

    `order` is that of the section before it; a block that begins a section has its own.
    """
    if data[at : at + 4] == PCAP_MAGICS[-1]:
        order = ">" if data[at + 8 : at + 12] == ORDER_MAGIC.to_bytes(4, "big") else "<"
    kind, size = struct.unpack_from(order + "II", data, at)
    return order, kind, size


def is_size(size: int, most: int) -> bool:
    """Tell whether a block can have this size, of at most so many bytes."""
    return size % 4 == 0 and LEAST_BLOCK <= size <= most


@dataclass(frozen=True)
class CaptureBlock:
    """A block of a pcapng.

    Attributes:
        kind: its type.
        raw: all its bytes.
        order: < or >, the section's byte order.
        frame: number of the packet in the capture, from 1; 0: it is no packet.
        realtime_ns: when it was captured [ns, CLOCK_REALTIME]; None: no packet, or no time.
    """

    kind: int
    raw: bytes
    order: str
    frame: int = 0
    realtime_ns: int | None = None

    def comments(self) -> list[str]:
        """Return the comments that it has: of a packet, an interface or a section."""
        at = self._options_at()
        if at is None or at + 8 > len(self.raw):
            return []
        options = _options(self.order, self.raw[at:-4])
        return [value.decode("utf-8", "replace") for code, value in options if code == COMMENT]

    def _options_at(self) -> int | None:
        """Where its options begin; None: it has none."""
        if self.kind in (ENHANCED_PACKET, OLD_PACKET):
            captured: int = struct.unpack_from(self.order + "I", self.raw, 20)[0]
            return 28 + -(-captured // 4) * 4
        return {SECTION: 24, INTERFACE: 16}.get(self.kind)

    def with_comments(self, comments: Iterable[str]) -> bytes:
        """Return a packet's bytes with comments before the options that it has."""
        options = self._options_at()
        if options is None or not self.frame:
            return self.raw
        added = b"".join(_option(self.order, COMMENT, _cut(text)) for text in comments)
        rest = self.raw[options:-4] or struct.pack(self.order + "HH", 0, 0)
        return _block(self.order, self.kind, self.raw[8:options] + added + rest)


def blocks(path: Path) -> Iterator[CaptureBlock]:
    """Yield the blocks of a capture: pcap or pcapng, plain, gzip or zstd.

    Where a file is cut off, its whole packets are given.

    Raises:
        BundleError: no capture, or its records make no sense.
    """
    source = _Bytes(path)
    if source.need(4) and source.data[:4] == PCAP_MAGICS[-1]:
        yield from _of_pcapng(source)
    elif source.need(24) and source.data[:4] in PCAP_MAGICS:
        yield from _of_pcap(source)
    else:
        raise BundleError(f"{path} is neither pcap nor pcapng", "name the capture of the run")


class _Bytes:
    """The plain bytes of a capture, some at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = b""
        self._pieces = pieces(path)

    def need(self, size: int) -> bool:
        """Tell whether `size` bytes are at hand; the rest of the file is read up to there."""
        while len(self.data) < size:
            try:
                piece = next(self._pieces, None)
            except DamagedError:
                return False
            if piece is None:
                return False
            self.data += piece[1]
        return True

    def all(self) -> Iterator[memoryview]:
        """Yield what is at hand, more and more of it; the reader takes what it understands."""
        while True:
            yield memoryview(self.data)
            if not self.need(len(self.data) + 1):
                return

    def strange(self, what: str) -> BundleError:
        return BundleError(
            f"{self.path} is damaged: {what}", "export what Wireshark can save of it"
        )


def _of_pcapng(source: _Bytes) -> Iterator[CaptureBlock]:
    reader = _SectionReader(source)
    for data in source.all():
        at = 0
        while (size := reader.size(data, at)) is not None:
            yield reader.block(bytes(data[at : at + size]))
            at += size
        source.data = bytes(data[at:])


@dataclass
class _SectionReader:
    """What blocks of a pcapng mean depends on the section and the interfaces before them."""

    source: _Bytes
    order: str = "<"
    frames: int = 0
    interfaces: list[tuple[int, int, int]] = field(default_factory=list)

    def size(self, data: memoryview, at: int) -> int | None:
        """Return the size of the block at `at`; None: not all of it is there."""
        if at + LEAST_BLOCK > len(data):
            return None
        self.order, _, size = heading(data, at, self.order)
        if not is_size(size, _MOST_BLOCK):
            raise self.source.strange(f"a block of {plural(size, 'byte')}")
        return size if at + size <= len(data) else None

    def block(self, raw: bytes) -> CaptureBlock:
        """Return a block; a section's length is left open, as its packets will grow."""
        (kind,) = struct.unpack_from(self.order + "I", raw)
        if kind == SECTION and len(raw) >= 28:
            self.interfaces = []
            raw = raw[:16] + b"\xff" * 8 + raw[24:]
        elif kind == INTERFACE and len(raw) >= 20:
            self.interfaces.append(self._clock(raw))
        if kind not in PACKETS:
            return CaptureBlock(kind, raw, self.order)
        self.frames += 1
        return CaptureBlock(kind, raw, self.order, self.frames, self._time(kind, raw))

    def _clock(self, raw: bytes) -> tuple[int, int, int]:
        """Ticks per second as base and exponent, and what to add to times [s]."""
        base, exponent, offset = 10, 6, 0
        for code, value in _options(self.order, raw[16:-4]):
            if code == TIME_RESOLUTION and len(value) == 1:
                base, exponent = (2, value[0] & 127) if value[0] & 128 else (10, value[0])
            elif code == TIME_OFFSET and len(value) == 8:
                (offset,) = struct.unpack(self.order + "q", value)
        return base, exponent, offset

    def _time(self, kind: int, raw: bytes) -> int | None:
        if kind == SIMPLE_PACKET:
            return None
        if len(raw) < 32:
            raise self.source.strange(f"a packet's block of {plural(len(raw), 'byte')}")
        number, high, low, captured = struct.unpack_from(self.order + "IIII", raw, 8)
        if kind == OLD_PACKET:
            (number,) = struct.unpack_from(self.order + "H", raw, 8)
        if number >= len(self.interfaces) or captured > len(raw) - 32:
            raise self.source.strange("a packet without interface, or beyond its block")
        base, exponent, offset = self.interfaces[number]
        ticks = (high << 32) + low
        return int(ticks * 10**9 // base**exponent + offset * 10**9)


def _of_pcap(source: _Bytes) -> Iterator[CaptureBlock]:
    magic, header = source.data[:4], source.data[:24]
    order = "<" if magic in (PCAP_MAGICS[0], PCAP_MAGICS[2]) else ">"
    unit = 1 if magic in PCAP_MAGICS[2:4] else 1000
    snap, link = struct.unpack_from(order + "II", header, 16)
    body = struct.pack("<IHHq", ORDER_MAGIC, 1, 0, -1)
    yield CaptureBlock(SECTION, _block("<", SECTION, body), "<")
    clock = _option("<", TIME_RESOLUTION, b"\x09") + struct.pack("<HH", 0, 0)
    interface = struct.pack("<HHI", link & 0xFFFF, 0, snap) + clock
    yield CaptureBlock(INTERFACE, _block("<", INTERFACE, interface), "<")
    source.data = source.data[24:]
    frame = 0
    for data in source.all():
        at = 0
        while at + 16 <= len(data):
            seconds, part, size, length = struct.unpack_from(order + "IIII", data, at)
            if size > MOST_BYTES:
                raise source.strange(f"a packet of {plural(size, 'byte')}")
            if at + 16 + size > len(data):
                break
            frame += 1
            ns = seconds * 10**9 + part * unit
            packet = bytes(data[at + 16 : at + 16 + size]) + bytes(-size % 4)
            head = struct.pack("<IIIII", 0, ns >> 32, ns & 0xFFFFFFFF, size, length)
            raw = _block("<", ENHANCED_PACKET, head + packet)
            yield CaptureBlock(ENHANCED_PACKET, raw, "<", frame, ns)
            at += 16 + size
        source.data = bytes(data[at:])


def _block(order: str, kind: int, body: bytes) -> bytes:
    size = len(body) + 12
    return struct.pack(order + "II", kind, size) + body + struct.pack(order + "I", size)


def _option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


def _options(order: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, size = struct.unpack_from(order + "HH", data, at)
        if code == 0:
            return
        yield code, data[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4


def _cut(text: str) -> bytes:
    encoded = text.encode("utf-8", "replace")
    return encoded[:MOST_COMMENT].decode("utf-8", "ignore").encode("utf-8")
