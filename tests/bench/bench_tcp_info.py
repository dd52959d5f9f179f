"""How many snapshots of M-Lab's tcp-info does `bbrscope ingest` load in a second?

    python tests/bench/bench_tcp_info.py [--snapshots 500000] [--files 500] [--times 3]

Writes an archive as M-Lab's program does (JSON lines of some 620 bytes, zstd), of one connection,
and as many snapshots in many archives of one connection each, as M-Lab keeps them. Loads both with
the command itself, from its start to its end, into a store that is there already. The wish is
100,000 snapshots per second of wall time; 1.00 or more is met. CPU time is told as well, because
only an idle machine tells the truth about wall time, and unpacking alone, as the floor.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import zstandard
from bbrscope.analyze.views.store_with_views import open_store
from bench_packets import measure

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests import tcp_info

WANTED = 100_000
GAINS = ((739, 739), (320, 512), (192, 512), (256, 512), (88, 739), (256, 256))


def snapshots(count: int, port: int) -> Iterator[str]:
    """Yield the lines of a connection: counters grow, the rest changes by chance, every 10 ms."""
    chance = random.Random(port)
    begin = datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC)
    socket = tcp_info.message(port)
    acked = delivered = 0
    for number in range(count):
        acked += chance.randrange(200_000)
        delivered = acked // 1448
        values = {
            "byte7": number & 1,
            "snd_mss": 1448,
            "min_rtt": 20_000,
            "snd_ssthresh": 0x7FFFFFFF,
            "rtt": chance.randrange(20_000, 90_000),
            "rttvar": chance.randrange(9000),
            "snd_cwnd": chance.randrange(4, 900),
            "unacked": chance.randrange(900),
            "pacing_rate": chance.randrange(1 << 27),
            "delivery_rate": chance.randrange(1 << 27),
            "bytes_acked": acked,
            "bytes_sent": acked + 90_000,
            "delivered": delivered,
            "busy_time": number * 10_000,
            "data_out": delivered + 60,
            "notsent_bytes": number,
        }
        gains = GAINS[number // 50 % len(GAINS)]
        bbr = struct.pack("<5I", chance.randrange(1 << 27), 0, 20_000, *gains)
        moment = begin + timedelta(milliseconds=10 * number)
        stamp = moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{moment.microsecond // 1000:03d}Z"
        yield tcp_info.line(stamp, socket, tcp_info.tcp_info(values), bbr)


def write(path: Path, count: int, port: int) -> int:
    """Write an archive; return the bytes of its text."""
    size = 0
    with open(path, "wb") as file, zstandard.ZstdCompressor().stream_writer(file) as packed:
        for line in snapshots(count, port):
            size += packed.write(line.encode() + b"\n")
    return path.stat().st_size


def told(what: str, count: int, command: list[str], folder: Path, times: int) -> None:
    """Load with a fresh store, `times` times; print the best."""
    found = []
    for _ in range(times):
        store = folder / "bench.duckdb"
        store.unlink(missing_ok=True)
        open_store(store).close()
        found.append(measure([*command, "--store", str(store)], "0,1"))
    wall, cpu, memory = (min(values) for values in zip(*found, strict=True))
    print(
        f"{count / wall / WANTED:6.2f}  {what}: {count / wall:,.0f} snapshots/s of {WANTED:,}"
        f"   wall {wall:.2f} s, CPU {cpu:.2f} s ({count / cpu:,.0f} per CPU second),"
        f" peak {memory:,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--snapshots", type=int, default=500_000)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    ingest = [sys.executable, "-m", "bbrscope.reports", "ingest"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large = folder / "large.jsonl.zst"
        packed = write(large, options.snapshots, 1)
        start = time.process_time()
        with open(large, "rb") as file:
            size = sum(map(len, zstandard.ZstdDecompressor().read_to_iter(file, 1 << 20)))
        floor = time.process_time() - start
        megabytes = f"{size / 1e6:,.0f} MB of text, packed {packed / 1e6:,.0f} MB"
        print(f"{megabytes}; unpacked in {floor:.2f} s")
        told("one archive", options.snapshots, [*ingest, str(large)], folder, options.times)
        each = options.snapshots // options.files
        small = [folder / f"ndt_{number}.00000.jsonl.zst" for number in range(options.files)]
        for number, path in enumerate(small):
            write(path, each, 2 + number)
        many = [*ingest, *map(str, small)]
        what = f"{options.files} archives of {each:,}"
        told(what, each * options.files, many, folder, options.times)


if __name__ == "__main__":
    main()
