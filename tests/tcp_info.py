"""Lines of M-Lab's tcp-info, written by the kernel's own order of fields."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping

# include/uapi/linux/tcp.h: sizes in bytes, in order.
TCP_INFO = [
    *((f"byte{number}", 1) for number in range(8)),
    *((name, 4) for name in "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets".split()),
    *((name, 4) for name in "data_sent ack_sent data_recv ack_recv pmtu rcv_ssthresh".split()),
    *((name, 4) for name in "rtt rttvar snd_ssthresh snd_cwnd advmss reordering rcv_rtt".split()),
    *((name, 4) for name in "rcv_space total_retrans".split()),
    *((name, 8) for name in "pacing_rate max_pacing_rate bytes_acked bytes_received".split()),
    *((name, 4) for name in "segs_out segs_in notsent_bytes min_rtt data_in data_out".split()),
    *((name, 8) for name in "delivery_rate busy_time rwnd_limited sndbuf_limited".split()),
    *((name, 4) for name in "delivered delivered_ce".split()),
    *((name, 8) for name in "bytes_sent bytes_retrans".split()),
]


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def message(port: int = 5000, cookie: int | None = None) -> bytes:
    """struct inet_diag_msg of a connection from 10.0.0.1:`port`, its addresses mapped to IPv6."""
    source, target = (bytes(10) + b"\xff\xff" + bytes(ip) for ip in ((10, 0, 0, 1), (10, 0, 0, 2)))
    head = struct.pack(">BBBBHH16s16s", 10, 1, 0, 0, port, 443, source, target)
    return head + struct.pack("<IQ", 0, port if cookie is None else cookie) + bytes(20)


def tcp_info(values: Mapping[str, int]) -> bytes:
    """struct tcp_info with these values, all others 0."""
    return b"".join(values.get(name, 0).to_bytes(size, "little") for name, size in TCP_INFO)


def line(time: str, socket: bytes, info: bytes, bbr: bytes) -> str:
    """One snapshot as the Go program writes it; without attribute 16 if `bbr` is empty."""
    attributes: list[str | None] = [None] * 17
    attributes[2], attributes[4], attributes[16] = text(info), text(b"bbr\0"), text(bbr)
    if not bbr:
        attributes = attributes[:16]
    record = {"Timestamp": time, "RawIDM": text(socket), "Attributes": attributes}
    return json.dumps(record, separators=(",", ":"))


def snapshot(second: int, number: int, port: int = 5000) -> str:
    """A snapshot whose every field is 1000 * `number` + its place in TCP_INFO, but for a few."""
    values = {name: 1000 * number + place for place, (name, _) in enumerate(TCP_INFO) if place > 7}
    values |= {"byte7": 1, "snd_ssthresh": 0x7FFFFFFF, "retrans": 0, "lost": 0, "sacked": 1}
    bbr = struct.pack("<5I", 0x80000000, 1, 20_000, 739, 512)
    time = f"2019-07-16T21:09:{second:02d}.000000{number % 1000:03d}Z"
    return line(time, message(port), tcp_info(values), bbr)
