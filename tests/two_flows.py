"""A packet capture, written byte by byte, of two flows whose shares of a link are known."""

from __future__ import annotations

import struct
from pathlib import Path


def tcp_frame(
    sport: int, seq: int, ack: int, flags: int, payload: int, back: bool = False
) -> bytes:
    """A TCP segment in an Ethernet frame, from `sport` to port 80 or back."""
    ends = (80, sport) if back else (sport, 80)
    segment = struct.pack("!HHIIHHHH", *ends, seq, ack, 5 << 12 | flags, 500, 0, 0) + bytes(payload)
    hosts = bytes([10, 0, 0, 2, 10, 0, 0, 1]) if back else bytes([10, 0, 0, 1, 10, 0, 0, 2])
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(segment), 0, 0, 64, 6, 0)
    return bytes(12) + b"\x08\x00" + head + hosts + segment


def two_flows(path: Path, rates: list[tuple[int, int]]) -> Path:
    """A capture with two flows that move so many bytes in each second, ten times a second."""
    packets: list[tuple[int, bytes]] = []
    for place, sport in enumerate((1001, 1002)):
        packets.append((place, tcp_frame(sport, 0, 0, 2, 0)))
        packets.append((place + 10, tcp_frame(sport, 0, 1, 18, 0, back=True)))
        done = 1
        for second, rate in enumerate(rates):
            for tenth in range(10):
                at = second * 1_000_000 + tenth * 100_000 + 50_000 + place
                part = rate[place] // 10
                packets.append((at, tcp_frame(sport, done, 1, 16, part)))
                done += part
                packets.append((at + 10, tcp_frame(sport, 1, done, 16, 0, back=True)))
        packets.append((len(rates) * 1_000_000 + place, tcp_frame(sport, done, 1, 17, 0)))
    data = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for at, frame in sorted(packets):
        seconds, micros = divmod(at, 1_000_000)
        data += struct.pack("<IIII", 1_700_000_000 + seconds, micros, len(frame), len(frame))
        data += frame
    path.write_bytes(data)
    return path
