"""How much longer `bbrscope ingest CAPTURE` takes than tshark alone on the same fields.

    python tests/bench/bench_packets.py CAPTURE.pcap

Both are pinned to one core. CPU time is compared as well, because it is steadier on a shared
machine; memory is the peak of the largest process, which is tshark: it keeps some 0.5 kB a packet.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bbrscope.collect.packets_tshark import FIELDS, OPTIONS


def measure(args: list[str]) -> tuple[float, float]:
    """Return wall and CPU seconds of a command on one core."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        ["taskset", "-c", "0", *args],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return wall, cpu


def main() -> None:
    capture = Path(sys.argv[1])
    fields = [word for field in FIELDS for word in ("-e", field)]
    for _ in range(3):
        tshark = measure(["tshark", "-n", "-r", str(capture), *OPTIONS, "-T", "fields", *fields])
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "bench.duckdb")
            command = [sys.executable, "-m", "bbrscope.reports", "ingest", "--store", store]
            ingest = measure([*command, str(capture)])
        print(
            f"tshark {tshark[0]:6.2f} s (CPU {tshark[1]:6.2f})   "
            f"ingest {ingest[0]:6.2f} s (CPU {ingest[1]:6.2f})   "
            f"ratio {ingest[0] / tshark[0]:.2f} (CPU {ingest[1] / tshark[1]:.2f})"
        )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"peak memory of one process {peak / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
