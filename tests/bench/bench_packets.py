"""How much longer `bbrscope ingest CAPTURE` takes than tshark alone on the same fields.

    python tests/bench/bench_packets.py CAPTURE.pcap [--packets 600000] [--full] [--times 3]

The capture (pcap, packed or not; Ethernet, IPv4) is repeated with other addresses and later times
until it has that many packets; --full fills frames that were cut short up to their length on the
wire, for a capture of some GB. Both are pinned to one core, then ingest has two, where two tsharks
share the connections. CPU time is compared as well, because it is steadier on a shared machine;
memory is the largest process, tshark, which keeps some 0.5 kB of each packet it sees, or ingest
itself. Ingest adds to a store that is there: making one takes half a second, once.

tshark alone is told what ingest tells it (`OPTIONS`: no name resolution, no dissection of payload),
reads the plain file and writes the fields to /dev/null as its manual shows it, `-T fields -e NAME`.
Ingest asks for them as columns, which costs tshark less.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.packets.capture_file import pieces
from bbrscope.collect.packets.tshark import OPTIONS
from bbrscope.collect.packets.tshark_fields import FIELDS

# Offsets of the third bytes of source and destination address in an Ethernet frame with IPv4.
ADDRESSES = (28, 32)


def enlarge(source: Path, target: Path, wanted: int, full: bool) -> int:
    """Write a pcap that repeats another one; return its packets."""
    data = b"".join(piece for _, piece in pieces(source))
    records, at = [], 24
    while at + 16 <= len(data):
        seconds, fraction, captured, length = struct.unpack_from("<IIII", data, at)
        records.append((seconds, fraction, length, data[at + 16 : at + 16 + captured]))
        at += 16 + captured
    span = records[-1][0] - records[0][0] + 2
    turns = max(1, wanted // len(records))
    with open(target, "wb") as out:
        out.write(data[:24])
        for turn in range(turns):
            for seconds, fraction, length, frame in records:
                changed = bytearray(frame)
                for place in ADDRESSES:
                    changed[place] = turn & 255
                if full:
                    changed.extend(bytes(length - len(frame)))
                head = struct.pack("<IIII", seconds + turn * span, fraction, len(changed), length)
                out.write(head + changed)
    return turns * len(records)


def measure(args: list[str], cores: str) -> tuple[float, float, float]:
    """Return wall and CPU seconds of a command and its children, and its peak memory in MiB.

    The kernel counts what a process held before it ran the command as the command's: so a process
    of its own starts it, which holds about 100 MiB.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measured, args, cores).result()


def _measured(args: list[str], cores: str) -> tuple[float, float, float]:
    start = time.perf_counter()
    with open(os.devnull, "w") as nothing:
        process = subprocess.Popen(["taskset", "-c", cores, *args], stdout=nothing, stderr=nothing)
        _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    assert status == 0, args
    return wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", type=Path)
    parser.add_argument("--packets", type=int, default=600_000)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    fields = [word for field in FIELDS for word in ("-e", field.name)]
    with tempfile.TemporaryDirectory() as folder:
        large = os.path.join(folder, "large.pcap")
        packets = enlarge(options.capture, Path(large), options.packets, options.full)
        print(
            f"{packets:,} packets, {os.path.getsize(large) / 1e6:,.0f} MB; best of {options.times}"
        )
        store = os.path.join(folder, "bench.duckdb")
        ingest = [sys.executable, "-m", "bbrscope.reports", "ingest", "--store", store]
        commands = {
            "tshark, one core": (
                ["tshark", "-n", "-r", large, *OPTIONS, "-T", "fields", *fields],
                "0",
            ),
            "ingest, one core": ([*ingest, large], "0"),
            "ingest, two cores": ([*ingest, large], "0,1"),
        }
        floor = (0.0, 0.0)
        for name, (command, cores) in commands.items():
            found = []
            for _ in range(options.times):
                Path(store).unlink(missing_ok=True)
                open_store(Path(store)).close()
                found.append(measure(command, cores))
            wall, cpu, memory = (min(values) for values in zip(*found, strict=True))
            floor = floor if any(floor) else (wall, cpu)
            print(
                f"{name:18} {wall:7.2f} s ({wall / floor[0]:.2f})   CPU {cpu:7.2f} s"
                f" ({cpu / floor[1]:.2f})   peak {memory:,.0f} MiB"
            )


if __name__ == "__main__":
    main()
