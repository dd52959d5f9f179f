"""Hand-made frames, so that every field's value is known."""

from __future__ import annotations

import struct
from pathlib import Path


def tcp(seq: int, ack: int, flags: int, payload: int = 0, options: bytes = b"", ports=(40000, 80)):  # type: ignore[no-untyped-def]
    offset = (20 + len(options)) // 4
    header = struct.pack("!HHIIHHHH", *ports, seq, ack, offset << 12 | flags, 500, 0, 0)
    return header + options + b"x" * payload


def ipv4(
    segment: bytes, src: str = "10.0.0.1", dst: str = "10.0.0.2", tos: int = 0, proto: int = 6
):  # type: ignore[no-untyped-def]
    ends = bytes(int(part) for address in (src, dst) for part in address.split("."))
    length = 20 + len(segment)
    return struct.pack("!BBHHHBBH", 0x45, tos, length, 77, 0, 64, proto, 0) + ends + segment


def ipv6(segment: bytes, tclass: int = 0) -> bytes:
    head = struct.pack("!IHBB", 6 << 28 | tclass << 20, len(segment), 6, 64)
    return head + bytes([0xFD] + [0] * 14 + [1]) + bytes([0xFD] + [0] * 14 + [2]) + segment


def ethernet(packet: bytes, vlan: int | None = None) -> bytes:
    kind = 0x86DD if packet[0] >> 4 == 6 else 0x0800
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return bytes(12) + tag + struct.pack("!H", kind) + packet


def sll2(packet: bytes) -> bytes:
    return struct.pack("!HHIHBB8s", 0x0800, 0, 1, 1, 0, 6, bytes(8)) + packet


def capture(
    path: Path,
    frames: list[bytes],
    link: int = 1,
    times: list[tuple[int, int]] | None = None,
    nano: bool = False,
) -> Path:
    magic = 0xA1B23C4D if nano else 0xA1B2C3D4
    data = struct.pack("<IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for index, frame in enumerate(frames):
        seconds, fraction = times[index] if times else (1_700_000_000 + index, 0)
        data += struct.pack("<IIII", seconds, fraction, len(frame), len(frame)) + frame
    path.write_bytes(data)
    return path
