"""Captured packets as plain arrays: a reader of its own, without tshark and without the store."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import zstandard

Ints = npt.NDArray[np.int64]

WRAP = 1 << 32
SYN, ACK = 0x02, 0x10
ETHERNET, IPV4, IPV6, TCP = 1, 0x0800, 0x86DD, 6
# Ethernet, IPv4 or IPv6, TCP with all of its options.
MOST_HEADERS = 14 + 40 + 60


def _records(data: bytes) -> tuple[Ints, Ints, Ints]:
    """Offsets of packets in a pcap, their times [ns, realtime clock] and whole lengths."""
    magic, kind = struct.unpack_from("<I16xI", data)
    scale = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}[magic]
    assert kind == ETHERNET
    rows, at = [], 24
    while at + 16 <= len(data):
        s, fraction, length, whole = struct.unpack_from("<IIII", data, at)
        rows.append((at + 16, s * 1_000_000_000 + fraction * scale, whole))
        at += 16 + length
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def monotonic(bundle: Path, ns: Ints) -> Ints:
    """Times of the realtime clock on the events' clock, by the readings of both in the manifest.

    The difference goes from the first readings' to the last ones' in a straight line, whole
    nanoseconds of it counted, as BUNDLE.md has it.
    """
    clocks = json.loads((bundle / "manifest.json").read_text()).get("clocks") or {}
    if not clocks:
        return ns
    start, end = clocks["start"], clocks.get("end") or clocks["start"]
    ahead = start["realtime_ns"] - start["monotonic_ns"]
    drift = end["realtime_ns"] - end["monotonic_ns"] - ahead
    span = max(1, end["realtime_ns"] - start["realtime_ns"])
    gone = (ns - start["realtime_ns"]) * drift
    moved: Ints = ns - ahead - np.sign(gone) * (np.abs(gone) // span)
    return moved


def _timestamps(options: bytes) -> tuple[int, int]:
    """TSval and TSecr of TCP options; -1: none."""
    at = 0
    while at < len(options) and options[at]:
        if options[at] == 1:
            at += 1
            continue
        if options[at] == 8 and at + 10 <= len(options):
            value, echo = struct.unpack_from(">II", options, at + 2)
            return value, echo
        if at + 1 >= len(options) or options[at + 1] < 2:
            break
        at += options[at + 1]
    return -1, -1


def packets(bundle: Path) -> pl.DataFrame:
    """Return every TCP packet of a bundle's capture: ends, numbers, payload, timestamps, ECN.

    Times `ns` are on the events' clock.
    """
    with (bundle / "packets.pcap.zst").open("rb") as raw:
        data = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True).read()
    at, ns, whole = _records(data)
    bytes_ = np.frombuffer(data + bytes(MOST_HEADERS), dtype=np.uint8)

    def number(offset: Ints, size: int) -> Ints:
        value = np.zeros(len(offset), dtype=np.int64)
        for step in range(size):
            value = value << 8 | bytes_[offset + step]
        return value

    kind = number(at + 12, 2)
    six = kind == IPV6
    ip = at + 14
    header = np.where(six, 40, (bytes_[ip].astype(np.int64) & 15) * 4)
    tcp = ip + header
    protocol = np.where(six, bytes_[ip + 6], bytes_[ip + 9])
    size = np.where(six, number(ip + 4, 2) + 40, number(ip + 2, 2))
    offset = (bytes_[tcp + 12].astype(np.int64) >> 4) * 4
    options = tcp + 20
    # What Linux puts first into all but a handshake: two NOPs, and the option of 10 bytes.
    usual = number(options, 4) == 0x0101080A
    value = np.where(usual, number(options + 4, 4), -1)
    echo = np.where(usual, number(options + 8, 4), -1)
    for row in np.flatnonzero(~usual).tolist():
        value[row], echo[row] = _timestamps(data[options[row] : tcp[row] + offset[row]])
    table = pl.DataFrame(
        {
            "ns": monotonic(bundle, ns),
            "frame": whole,
            # The last four bytes tell hosts of a testbed apart.
            "src": number(ip + np.where(six, 20, 12), 4),
            "dst": number(ip + np.where(six, 36, 16), 4),
            "sport": number(tcp, 2),
            "dport": number(tcp + 2, 2),
            "seq": number(tcp + 4, 4),
            "ack": number(tcp + 8, 4),
            "flags": bytes_[tcp + 13].astype(np.int64),
            "ecn": np.where(six, number(ip, 2) >> 4 & 3, bytes_[ip + 1] & 3).astype(np.int64),
            "payload": size - header - offset,
            "tsval": value,
            "tsecr": echo,
        }
    )
    return table.filter(pl.Series(((kind == IPV4) | six) & (protocol == TCP)))


@dataclass
class Connection:
    """One direction's bytes: what the sender sent, and what came back for it."""

    sent: pl.DataFrame
    back: pl.DataFrame


def connections(table: pl.DataFrame) -> list[Connection]:
    """Return the senders of a capture in the order of their first packets, by who sent more."""
    found = []
    for (a, b, p, q), rows in table.group_by(["src", "dst", "sport", "dport"], maintain_order=True):
        other = table.filter(
            (pl.col("src") == b)
            & (pl.col("dst") == a)
            & (pl.col("sport") == q)
            & (pl.col("dport") == p)
        )
        if rows["payload"].sum() > other["payload"].sum():
            found.append(Connection(rows, other))
    return found


def positions(numbers: pl.Series) -> Ints:
    """Sequence numbers, counted on where they wrap; the first one is 0."""
    steps = np.diff(numbers.to_numpy().astype(np.int64)) % WRAP
    steps[steps >= WRAP // 2] -= WRAP
    return np.concatenate([[0], np.cumsum(steps)])


def highest_before(values: Ints, least: int) -> Ints:
    """The largest value of all rows before each."""
    return np.concatenate([[least], np.maximum.accumulate(values)[:-1]])


def tick_ns(sent: pl.DataFrame) -> int:
    """How long a tick of the sender's timestamps lasts: the nearest that Linux has used."""
    stamped = sent.filter(pl.col("tsval") >= 0)
    spent = int(stamped["ns"][-1] - stamped["ns"][0])
    each = spent / max(1, int(stamped["tsval"][-1] - stamped["tsval"][0]) % WRAP)
    return min((1_000, 1_000_000, 4_000_000, 10_000_000), key=lambda tick: abs(each / tick - 1))


def segments(it: Connection) -> dict[str, float]:
    """What the sender's packets show, from first to last."""
    sent = it.sent
    seconds = int(sent["ns"][-1] - sent["ns"][0]) / 1e9
    data = sent.filter(pl.col("payload") > 0)
    begin = positions(sent["seq"]) + (sent["flags"].to_numpy() & SYN > 0)
    end = begin + sent["payload"].to_numpy()
    old = (end <= highest_before(end, 0)) & (sent["payload"].to_numpy() > 0)
    stamps = sent["tsval"].to_numpy()
    late = stamps < highest_before(stamps, 0)
    again, overtaken = int((old & ~late).sum()), int((old & late).sum())
    wire = int(sent["frame"].sum())
    return {
        "pkt_wire_bytes": wire,
        "pkt_throughput_mbps": wire * 8 / 1e6 / seconds,
        "pkt_segments": data.height,
        "pkt_retransmissions": again,
        "pkt_retransmission_rate": again / data.height,
        "pkt_reordered": overtaken,
        "pkt_ce_rate": data.filter(ecn=3).height / data.height,
    }


def replies(it: Connection) -> dict[str, float | None]:
    """What came back says: bytes acknowledged, and the RTT by timestamps."""
    sent, back = it.sent, it.back.filter(pl.col("flags") & ACK > 0)
    seconds = int(sent["ns"][-1] - sent["ns"][0]) / 1e9
    numbers = positions(back["ack"])
    before = highest_before(numbers, 0)
    advance = numbers > before
    found: dict[str, float | None] = {
        "pkt_acked_bytes": int(numbers.max()),
        "pkt_goodput_mbps": int(numbers.max()) * 8 / 1e6 / seconds,
    }
    tick = tick_ns(sent)
    stamped = sent.filter(pl.col("tsval") >= 0)
    zero = int((stamped["ns"] - stamped["tsval"] * tick).min())  # type: ignore[arg-type]
    timed = back.filter(pl.Series(advance) & (pl.col("tsecr") > 0))
    rtts = (timed["ns"] - zero - timed["tsecr"] * tick + _way_home(it)) / 1e3
    found |= {
        "pkt_rtt_min_us": rtts.min(),  # type: ignore[dict-item]
        "pkt_rtt_mean_us": rtts.mean(),  # type: ignore[dict-item]
    }
    for percent in (50, 95, 99):
        found[f"pkt_rtt_p{percent}_us"] = rtts.quantile(percent / 100, "linear")
    return found


def _way_home(it: Connection) -> int:
    """Least time [ns] from a packet that came back to one of the sender's that echoes it."""
    if not (it.back["flags"].to_numpy() & SYN).any():
        return 0
    stamps = it.back.filter(pl.col("tsval") >= 0).group_by("tsval").agg(pl.col("ns").min())
    echoes = it.sent.filter(pl.col("tsecr") > 0).group_by("tsecr").agg(pl.col("ns").min())
    both = stamps.join(echoes, left_on="tsval", right_on="tsecr")
    waits = (both["ns_right"] - both["ns"]).filter(both["ns_right"] >= both["ns"])
    return int(waits.min() or 0)  # type: ignore[arg-type]


def numbers(it: Connection) -> dict[str, float | None]:
    """The columns pkt_ of metrics_by_flow, but of the link, and what tshark counts as in flight."""
    return {**segments(it), **replies(it)}


def senders(bundle: Path, least_share: float = 0.01, least_packets: int = 50) -> list[Connection]:
    """Return the connections of a capture that carried more than a control connection."""
    if not (bundle / "packets.pcap.zst").is_file():
        return []
    found = connections(packets(bundle))
    most = max(int(one.sent["payload"].sum()) for one in found)
    return [
        one
        for one in found
        if one.sent["payload"].sum() >= least_share * most and one.sent.height >= least_packets
    ]
