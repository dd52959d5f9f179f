"""Captured packets as plain arrays: a reader of its own, without tshark and without the store."""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import zstandard

Ints = npt.NDArray[np.int64]
Numbers = dict[str, float | None]

WRAP = 1 << 32
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
ETHERNET, IPV4, IPV6, TCP = 1, 0x0800, 0x86DD, 6
# Ethernet, IPv4 or IPv6, TCP with all of its options.
MOST_HEADERS = 14 + 40 + 60
# A TCP header with two NOPs and timestamps.
TIMESTAMPS_ONLY = 32
AFTER_RESET = -1


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


def _options(options: bytes, ack: int) -> tuple[int, int, int, int]:
    """TSval and TSecr of TCP options, -1: none; how many bytes its SACK blocks tell of; and how
    many of them came twice.

    A first block tells of these (RFC 2883) that lies below the acknowledgement, or in the second.
    """
    at, value, echo, sacked, twice = 0, -1, -1, 0, 0
    while at < len(options) and options[at]:
        if options[at] == 1:
            at += 1
            continue
        if at + 1 >= len(options) or options[at + 1] < 2:
            break
        size = options[at + 1]
        if options[at] == 8 and at + 10 <= len(options):
            value, echo = struct.unpack_from(">II", options, at + 2)
        if options[at] == 5 and at + size <= len(options):
            edges = struct.unpack_from(f">{(size - 2) // 4}I", options, at + 2)
            sacked = sum((b - a) % WRAP for a, b in zip(edges[::2], edges[1::2], strict=False))
            first, *others = [
                ((a - ack) % WRAP, (b - a) % WRAP)
                for a, b in zip(edges[::2], edges[1::2], strict=False)
            ]
            below = first[0] >= WRAP // 2
            within = any((first[0] - a) % WRAP + first[1] <= size for a, size in others[:1])
            twice = first[1] if below or within else 0
        at += size
    return value, echo, sacked, twice


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
    sacked, twice = (np.zeros(len(at), dtype=np.int64) for _ in range(2))
    acks = number(tcp + 8, 4)
    for row in np.flatnonzero(~usual | (offset > TIMESTAMPS_ONLY)).tolist():
        each = _options(data[options[row] : tcp[row] + offset[row]], int(acks[row]))
        value[row], echo[row], sacked[row], twice[row] = each
    table = pl.DataFrame(
        {
            "packet": np.arange(len(at)),
            "ns": monotonic(bundle, ns),
            "frame": whole,
            # The last four bytes tell hosts of a testbed apart.
            "src": number(ip + np.where(six, 20, 12), 4),
            "dst": number(ip + np.where(six, 36, 16), 4),
            "sport": number(tcp, 2),
            "dport": number(tcp + 2, 2),
            "seq": number(tcp + 4, 4),
            "ack": acks,
            "flags": bytes_[tcp + 13].astype(np.int64),
            "ecn": np.where(six, number(ip, 2) >> 4 & 3, bytes_[ip + 1] & 3).astype(np.int64),
            "payload": size - header - offset,
            "tsval": value,
            "tsecr": echo,
            "sacked": sacked,
            "twice": twice,
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


def in_flight(it: Connection) -> pl.Series:
    """Bytes in flight after each of the sender's packets with payload, null where unknown.

    As Wireshark counts them: from the oldest captured byte that is not acknowledged to the newest
    one, without what the last packet back said was there already (SACK). Behind a hole in the
    capture nothing is known until the next packet back. AFTER_RESET: there Wireshark counts by
    rules of its own, which are not repeated here.
    """
    both = pl.concat([it.sent.with_columns(ours=True), it.back.with_columns(ours=False)])
    start = int(it.sent["seq"][0])
    held: deque[tuple[int, int]] = deque()
    newest, sacked, known, found, over = 0, 0, True, [], False
    columns = both.sort("packet").select("ours", "seq", "payload", "ack", "flags", "sacked")
    for ours, seq, payload, ack, flags, told in columns.iter_rows():
        if ours:
            begin = (seq - start + WRAP // 2) % WRAP - WRAP // 2
            end = begin + payload + (1 if flags & (SYN | FIN) else 0)
            if end == begin:
                continue
            known = known and begin <= newest
            held.append((begin, end))
            newest = max(newest, end)
            if payload:
                flight = newest - min(held)[0] - sacked if known else None
                found.append(AFTER_RESET if over else flight)
        elif flags & RST:
            over = True
        elif flags & ACK:
            upto = (ack - start + WRAP // 2) % WRAP - WRAP // 2
            held = deque((max(begin, upto), end) for begin, end in held if end > upto)
            sacked, known = told, True
    return pl.Series("flight", found, dtype=pl.Int64)


def sent_of(it: Connection) -> pl.DataFrame:
    """The sender's packets: `ns`, `frame`, `payload`, `ce`, and whether it was sent again."""
    sent = it.sent
    begin = positions(sent["seq"]) + (sent["flags"].to_numpy() & SYN > 0)
    end = begin + sent["payload"].to_numpy()
    old = (end <= highest_before(end, 0)) & (sent["payload"].to_numpy() > 0)
    stamps = sent["tsval"].to_numpy()
    late = stamps < highest_before(stamps, 0)
    data = pl.col("payload") > 0
    return sent.select(
        "ns", "frame", "payload", ce=(pl.col("ecn") == 3) & data, data=data
    ).with_columns(again=old & ~late, overtaken=old & late)


def segments(it: Connection) -> dict[str, float | None]:
    """What the sender's packets show, from first to last."""
    sent = it.sent
    seconds = int(sent["ns"][-1] - sent["ns"][0]) / 1e9
    counted = _sums(sent_of(it))
    wire = counted["pkt_wire_bytes"] or 0
    return {
        **counted,
        **_mean_in_flight(in_flight(it)),
        "pkt_throughput_mbps": wire * 8 / 1e6 / seconds,
    }


def _mean_in_flight(flight: pl.Series) -> dict[str, float | None]:
    if (flight == AFTER_RESET).any():
        return {}
    return {"pkt_inflight_bytes": flight.mean()}  # type: ignore[dict-item]


def _sums(sent: pl.DataFrame) -> dict[str, float | None]:
    data = int(sent["data"].sum())
    again = int(sent["again"].sum())
    return {
        "pkt_wire_bytes": int(sent["frame"].sum()),
        "pkt_segments": data,
        "pkt_retransmissions": again,
        "pkt_retransmission_rate": again / data if data else None,
        "pkt_reordered": int(sent["overtaken"].sum()),
        "pkt_ce_rate": int(sent["ce"].sum()) / data if data else None,
    }


def replied(it: Connection) -> pl.DataFrame:
    """What came back: `ns`, bytes newly `acked`, and `rtt` [us] by timestamps where it is one."""
    sent, back = it.sent, it.back.filter(pl.col("flags") & ACK > 0)
    numbers = positions(back["ack"])
    before = highest_before(numbers, 0)
    tick = tick_ns(sent)
    stamped = sent.filter(pl.col("tsval") >= 0)
    zero = int((stamped["ns"] - stamped["tsval"] * tick).min())  # type: ignore[arg-type]
    rtt = (pl.col("ns") - zero - pl.col("tsecr") * tick + _way_home(it)) / 1e3
    return back.with_columns(acked=np.maximum(numbers - before, 0)).select(
        "ns", "acked", rtt=pl.when((pl.col("acked") > 0) & (pl.col("tsecr") > 0)).then(rtt)
    )


def replies(it: Connection) -> dict[str, float | None]:
    """What came back says: bytes acknowledged, and the RTT by timestamps."""
    seconds = int(it.sent["ns"][-1] - it.sent["ns"][0]) / 1e9
    back = replied(it)
    acked = int(back["acked"].sum())
    return {**_times(back), "pkt_goodput_mbps": acked * 8 / 1e6 / seconds}


def _times(back: pl.DataFrame) -> dict[str, float | None]:
    rtts = back["rtt"].drop_nulls()
    return {
        "pkt_acked_bytes": int(back["acked"].sum()),
        "pkt_rtt_min_us": rtts.min(),  # type: ignore[dict-item]
        "pkt_rtt_mean_us": rtts.mean(),  # type: ignore[dict-item]
    } | {f"pkt_rtt_p{p}_us": rtts.quantile(p / 100, "linear") for p in (50, 95, 99)}


def by_slice(it: Connection, starts: Ints, labels: list[Hashable]) -> dict[Hashable, Numbers]:
    """What packets brought in each slice of time; several with one label are one.

    Args:
        starts: when each slice begins [ns], ascending; the last one has no end.
        labels: of each slice.
    """
    sent = sent_of(it).with_columns(flight=_beside(sent_of(it), in_flight(it)))
    found: dict[Hashable, Numbers] = {}
    for of, table in ((_sums_and_flight, sent), (_times, replied(it))):
        place = np.searchsorted(starts, table["ns"].to_numpy(), "right") - 1
        inside = table.with_columns(place=place).filter(pl.col("place") >= 0)
        named = inside.with_columns(
            label=pl.Series([str(labels[at]) for at in inside["place"]], dtype=pl.String)
        )
        for label in dict.fromkeys(labels):
            rows = named.filter(label=str(label))
            if rows.height:
                found.setdefault(label, {}).update(of(rows))
    return found


def _sums_and_flight(sent: pl.DataFrame) -> Numbers:
    return {**_sums(sent), **_mean_in_flight(sent["flight"])}


def _beside(sent: pl.DataFrame, flights: pl.Series) -> pl.Series:
    """Numbers of the packets with payload, in a column of all packets."""
    values = iter(flights)
    return pl.Series([next(values) if data else None for data in sent["data"]], dtype=pl.Int64)


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
    """The columns pkt_ of metrics_by_flow, but of the link."""
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
