"""Packets of a Perfetto trace, encoded as protobuf: tracks, slices, instants, counters.

Only what is used here of protos/perfetto/trace: Trace.packet 1; TracePacket: timestamp 8,
trusted_packet_sequence_id 10, track_event 11, sequence_flags 13, compressed_packets 50,
track_descriptor 60; the fields of the others are named where they are written. Packets are deflated
a megabyte at a time, as Perfetto's own recorder does when it is told to compress.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
NO_UNIT, NANOSECONDS, COUNT, BYTES = 0, 1, 2, 3
_BATCH = 1 << 20
_U64 = (1 << 64) - 1
# TracePacket.trusted_packet_sequence_id: one writer, so one sequence.
_SEQUENCE = b"\x50\x01"

# A number, a text, or numbers by name.
Argument = int | float | str | Mapping[str, int]


def varint(number: int) -> bytes:
    """Return a number in base 128; a negative one as its 64 bits.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    number &= _U64
    if number < 128:
        return bytes((number,))
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(field: int, number: int) -> bytes:
    """Return a field of type varint."""
    return varint(field << 3) + varint(number)


def bytes_field(field: int, value: bytes | str) -> bytes:
    """Return a field of bytes, text or a message."""
    data = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def double_field(field: int, value: float) -> bytes:
    """Return a field of type double."""
    return varint(field << 3 | 1) + struct.pack("<d", value)


class PerfettoTrace:
    """Writes a trace to a file, packet by packet; call `finish` at the end.

    Attributes:
        packets: how many packets of the trace format were written.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._batch = bytearray()
        self._tracks = 0
        self.packets = 0

    def process(self, pid: int, name: str) -> int:
        """Add a process with its track; return the track's uuid."""
        about = number_field(1, pid) + bytes_field(6, name)
        return self._track(bytes_field(3, about))

    def track(self, parent: int, name: str, rank: int) -> int:
        """Add a track below another, at a place among its siblings; return its uuid."""
        return self._track(number_field(5, parent) + bytes_field(2, name) + number_field(12, rank))

    def group(self, parent: int, name: str, rank: int) -> int:
        """Add a track whose children are shown in the order of their rank; return its uuid."""
        order = number_field(11, 3)
        return self._track(
            number_field(5, parent) + bytes_field(2, name) + number_field(12, rank) + order
        )

    def counter(self, parent: int, name: str, unit: int, unit_name: str, rank: int) -> int:
        """Add a counter's track; return its uuid.

        `unit` is of CounterDescriptor.Unit (`NO_UNIT`, `COUNT` ...); `unit_name` is another
        unit in words, or empty.
        """
        about = number_field(3, unit) if unit else b""
        about += bytes_field(6, unit_name) if unit_name else b""
        return self._track(
            number_field(5, parent)
            + bytes_field(2, name)
            + number_field(12, rank)
            + bytes_field(8, about)
        )

    def slice(
        self, track: int, name: str, start: int, end: int, arguments: Mapping[str, Argument]
    ) -> None:
        """Add a slice from `start` to `end` [ns]; those of a track follow each other, or nest."""
        self._event(track, start, _BEGIN, bytes_field(23, name) + _annotations(arguments))
        self._event(track, end, _END, b"")

    def instant(
        self,
        track: int,
        name: str,
        ns: int,
        arguments: Mapping[str, Argument],
        flows: Sequence[int] = (),
    ) -> None:
        """Add an instant; an arrow leads through the events that have one of its `flows`, by time.

        Those of one time are in the order in which they are written.
        """
        arrows = b"".join(varint(47 << 3 | 1) + struct.pack("<Q", flow) for flow in flows)
        self._event(track, ns, _INSTANT, bytes_field(23, name) + arrows + _annotations(arguments))

    def counts(self, track: int, times: Iterable[int], values: Iterable[int]) -> None:
        """Add values of a counter; times in ns."""
        before = number_field(9, _COUNTER) + number_field(11, track) + varint(30 << 3)
        for ns, value in zip(times, values, strict=True):
            self._packet(ns, before + varint(value))

    def measures(self, track: int, times: Iterable[int], values: Iterable[float]) -> None:
        """Add values of a counter that are no whole numbers; times in ns."""
        before = number_field(9, _COUNTER) + number_field(11, track)
        for ns, value in zip(times, values, strict=True):
            self._packet(ns, before + double_field(44, value))

    def finish(self) -> None:
        """Write what is left."""
        if self._batch:
            packed = bytes_field(50, zlib.compress(bytes(self._batch), 6))
            self._file.write(bytes_field(1, packed))
            self._batch.clear()

    def _track(self, about: bytes) -> int:
        self._tracks += 1
        packet = bytes_field(60, number_field(1, self._tracks) + about)
        # The first packet says that nothing before it is missing.
        flags = number_field(13, 1) if self.packets == 0 else b""
        self._add(_SEQUENCE + flags + packet)
        return self._tracks

    def _event(self, track: int, ns: int, kind: int, rest: bytes) -> None:
        self._packet(ns, number_field(9, kind) + number_field(11, track) + rest)

    def _packet(self, ns: int, event: bytes) -> None:
        self._add(b"\x40" + varint(ns) + _SEQUENCE + b"\x5a" + varint(len(event)) + event)

    def _add(self, packet: bytes) -> None:
        self._batch += b"\x0a" + varint(len(packet)) + packet
        self.packets += 1
        if len(self._batch) >= _BATCH:
            self.finish()


def _annotations(arguments: Mapping[str, Argument]) -> bytes:
    return b"".join(bytes_field(4, _named(name, value)) for name, value in arguments.items())


def _named(name: str, value: Argument) -> bytes:
    return bytes_field(10, name) + _annotated(value)


def _annotated(value: Argument) -> bytes:
    if isinstance(value, str):
        return bytes_field(6, value)
    if isinstance(value, Mapping):
        return b"".join(bytes_field(11, _named(name, one)) for name, one in value.items())
    return number_field(4, value) if isinstance(value, int) else double_field(5, value)
