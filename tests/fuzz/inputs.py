"""One mutated input of each kind: for ingest, or a command that reads it."""

from __future__ import annotations

import io
import json
import struct
import tarfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import zstandard
from bbrscope import fixtures
from bbrscope.collect.lab import scenario as catalogue
from bbrscope.reports import examples

from tests.conftest import SS_LINE, ss_text

from . import mutate
from .damages import DAMAGES, damaged, split

# Rows of a recording that an input begins with.
ROWS = 160
KERNEL_LINE = (
    "[  {at}.5] BBR 10.9.0.2:5201    12,345:1448    OU  42 br  0 cr  7 rtt  4100 d  2 i  4000 mrtt"
    " 4000 lbw 0 bw 9600 lb 0 ib 0 qb 12000 a 2 if 40 . * dl {at} l 0 al 0 # 0 t 99 . O lr 0 er 0"
    " ea 0 bwl -1 il -1 ih -1 c -1 v 2 . 3 B Y"
)


@cache
def _plain(path: Path, most: int) -> bytes:
    with path.open("rb") as raw:
        return zstandard.ZstdDecompressor().stream_reader(raw).read(most)


@cache
def _lines(recording: str) -> tuple[str, ...]:
    text = _plain(fixtures.path(recording) / "events.csv.zst", 4 << 20).decode()
    heads, rows = split(text.splitlines())
    return (*heads, *rows[:ROWS])


def _manifest(recording: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((fixtures.path(recording) / "manifest.json").read_text())
    found = {k: v for k, v in found.items() if k not in ("events", "socket_samples")}
    return {**found, "name": name}


def bundle_of(folder: Path, recording: str, rows: int) -> Path:
    """Write the first rows of a shipped recording as a bundle."""
    text = _plain(fixtures.path(recording) / "events.csv.zst", 64 << 20).decode()
    heads, found = split(text.splitlines())
    return _bundle(folder, recording, [*heads, *found[:rows]])


def _bundle(folder: Path, recording: str, lines: list[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(_manifest(recording, folder.name)))
    text = "\n".join([*(lines or _lines(recording)), ""])
    (folder / "events.csv.zst").write_bytes(zstandard.compress(text.encode()))
    return folder


def _recording(random: Random) -> str:
    return random.choice(("v1_x_lt", "v2_x_spur", "v3_x_tlp5", "v2_single_1bdp"))


def manifest(folder: Path, random: Random) -> Path:
    """A bundle whose manifest says something odd."""
    made = _bundle(folder, _recording(random))
    document = json.loads((made / "manifest.json").read_text())
    if random.random() < 0.8:
        for _ in range(random.choice((1, 1, 3))):
            document = mutate.document(document, random)
        text = json.dumps(document).encode("utf-8", "surrogatepass")
    else:
        text = mutate.data(json.dumps(document).encode(), random)
    (made / "manifest.json").write_bytes(text)
    return made


def events(folder: Path, random: Random) -> Path:
    """A bundle whose rows, or the bytes that they are compressed to, are changed."""
    recording = _recording(random)
    lines = list(_lines(recording))
    if random.random() < 0.4:
        lines = damaged(lines, random.choice(list(DAMAGES.values())), random)
    made = _bundle(folder, recording, lines)
    path = made / "events.csv.zst"
    text = "\n".join([*lines, ""]).encode()
    if random.random() < 0.1:
        path.write_bytes(mutate.data(path.read_bytes(), random, mutate.BINARY))
    elif random.random() < 0.8:
        path.write_bytes(zstandard.compress(mutate.data(text, random)))
    return made


def queue(folder: Path, random: Random) -> Path:
    """A bundle whose queue.csv.zst is changed."""
    made = _bundle(folder, "v2_single_1bdp")
    text = _plain(fixtures.path("v2_single_1bdp") / "queue.csv.zst", 4000)
    (made / "queue.csv.zst").write_bytes(zstandard.compress(mutate.data(text, random)))
    return made


def lab(folder: Path, random: Random) -> Path:
    """A bundle with a lab's key and iperf3's output, one of them changed."""
    made = _bundle(folder, "v2_single_1bdp")
    document = json.loads((made / "manifest.json").read_text())
    flow = {"flow_no": 1, "cc": "bbr", "kind": "bulk", "extra_rtt_us": 0, "start_s": 0.0}
    document["lab"] = {
        "scenario": "song-single-buffer", "title": "t", "source": "Song21", "rep": 1, "seed": 1,
        "quick": True, "place": "vm", "params": {"buffer": "1bdp"}, "duration_s": 15.0,
        "rate_bps": 10**7, "rtt_us": 40000, "bdp_bytes": 50000, "buffer_bytes": 50000, "loss": 0.0,
        "aqm": "fifo", "cpu_busy": 0.1, "valid": True, "changes": [], "flows": [flow],
    }  # fmt: skip
    report = json.loads((fixtures.path("v2_single_1bdp") / "iperf1.json").read_text())
    intervals = report["intervals"][:4]
    report["intervals"] = intervals
    received = {"sum_received": report["end"]["sum_received"]}
    report["server_output_json"] = {"end": received, "intervals": intervals}
    if random.random() < 0.5:
        document["lab"] = mutate.document(document["lab"], random)
    else:
        report = mutate.document(report, random)
    (made / "manifest.json").write_text(json.dumps(document))
    text = json.dumps(report).encode("utf-8", "surrogatepass")
    (made / "iperf1.json").write_bytes(text)
    return made


def archive(folder: Path, random: Random) -> Path:
    """A bundle as .tar.zst, changed in its headers or its compressed bytes."""
    made = _bundle(folder / "bundle", _recording(random))
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=random.choice((0, 1, 2))) as tar:
        tar.add(made, arcname=folder.name)
    plain, path = raw.getvalue(), folder / "b.tar.zst"
    if random.random() < 0.7:
        head = mutate.data(plain[:2048], random, mutate.BINARY)
        path.write_bytes(zstandard.compress(head + plain[2048:]))
    else:
        path.write_bytes(mutate.data(zstandard.compress(plain), random, mutate.BINARY))
    return path


@cache
def _capture() -> bytes:
    return _plain(fixtures.path("v2_single_1bdp") / "packets.pcap.zst", 12_000)


def _as_pcapng(pcap: bytes) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        size = len(body) + -len(body) % 4 + 12
        head = struct.pack("<II", kind, size)
        return head + body.ljust(size - 12, b"\0") + struct.pack("<I", size)

    link = struct.unpack_from("<I", pcap, 20)[0] & 0xFFFF
    options = struct.pack("<HHB3xHHqHH", 9, 1, 9, 14, 8, 0, 0, 0)
    made = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
    made += block(1, struct.pack("<HHI", link, 0, 0) + options)
    at = 24
    while at + 16 <= len(pcap):
        seconds, part, kept, size = struct.unpack_from("<IIII", pcap, at)
        ns = seconds * 10**9 + part
        body = struct.pack("<IIIII", 0, ns >> 32, ns & 0xFFFFFFFF, kept, size)
        made += block(6, body + pcap[at + 16 : at + 16 + kept])
        at += 16 + kept
    return made


def packets(folder: Path, random: Random) -> Path:
    """A capture, changed; alone, or in a bundle."""
    pcapng = random.random() < 0.5
    original = _as_pcapng(_capture()) if pcapng else _capture()
    text = mutate.data(original, random, mutate.BINARY)
    if random.random() < 0.6:
        folder.mkdir(parents=True)
        path = folder / f"{folder.name}.{'pcapng' if pcapng else 'pcap'}"
        path.write_bytes(text)
        return path
    made = _bundle(folder, "v2_single_1bdp")
    (made / f"packets.{'pcapng' if pcapng else 'pcap'}.zst").write_bytes(zstandard.compress(text))
    return made


def ss_log(folder: Path, random: Random) -> Path:
    """A log of ss, changed; alone, or in a bundle."""
    text = ss_text([(2.88672, 2.88672), (0.34375, 2.88672), (1, 2), (1.25, 2), (1, 2)])
    assert SS_LINE
    changed = mutate.data(text.encode(), random)
    if random.random() < 0.6:
        folder.mkdir(parents=True)
        path = folder / f"{folder.name}.ss.log"
        path.write_bytes(changed)
        return path
    made = _bundle(folder, "v1_x_lt")
    (made / "ss.txt.zst").write_bytes(zstandard.compress(changed))
    return made


def kernel_log(folder: Path, random: Random) -> Path:
    """Lines that v2alpha prints, changed."""
    folder.mkdir(parents=True)
    text = "\n".join(KERNEL_LINE.format(at=at) for at in range(100, 130)) + "\n"
    path = folder / f"{folder.name}.dmesg.txt"
    path.write_bytes(mutate.data(text.encode(), random))
    return path


# Of these, the result is what ingest gets.
LOADED: dict[str, Callable[[Path, Random], Path]] = {
    "manifest": manifest,
    "events": events,
    "events2": events,
    "queue": queue,
    "lab": lab,
    "archive": archive,
    "packets": packets,
    "ss": ss_log,
    "dmesg": kernel_log,
}

WHERES = ("version = 'v2' AND flows > 0", "run LIKE 'v%'", "duration_ns > 10e9 OR true")


def scenario(folder: Path, random: Random) -> Path:
    """A scenario of the catalogue, changed."""
    folder.mkdir(parents=True)
    files = sorted((Path(catalogue.__file__).parent / "catalogue").glob("*.toml"))
    path = folder / "own.toml"
    path.write_bytes(mutate.data(random.choice(files).read_bytes(), random))
    return path


def query(random: Random) -> str:
    """A query, changed."""
    texts = [examples.text(name) for name in examples.names()]
    text = random.choice(
        [*texts, "FROM runs", "SELECT TIMESTAMP 'infinity', 1e308, [1], 'x'::BLOB"]
    )
    changed = mutate.data(text.encode(), random).decode("utf-8", "replace")
    # No program can be given a NUL, and what may run for ever is the user's own wish.
    return changed.replace("\0", "")


def condition(random: Random) -> str:
    """A condition for --where, changed."""
    text = mutate.data(random.choice(WHERES).encode(), random).decode("utf-8", "replace")
    return text.replace("\0", "")
