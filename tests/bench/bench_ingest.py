"""How fast is ingest, and how much memory does it take? On one core, end to end.

    python tests/bench/bench_ingest.py [BUNDLE] [--events 1000000] [--keep FOLDER]

Repeats a recording (default: the shipped v2_single_1bdp) with later times and other sockets until
it has that many events, loads it into an empty store on one core, and prints events per second and
peak memory: of the event stream only (decompress, parse, pair, make Arrow batches) and of the
whole ingest (DuckDB's file written and closed). Every figure is the best of three, each in a
process of its own whose code is compiled already; the time is CPU time, which other work on the
machine disturbs less. Memory must not depend on --events.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import zstandard
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.events.read_events import EventReader
from bbrscope.collect.ingest.ingest import ingest

PAUSE_NS = 1_000_000_000
SOCKET_STEP = 1 << 12
EVENT_TAGS = ("M", "I", "S", "E", "H", "U", "L")


def enlarge(source: Path, target: Path, events: int) -> int:
    """Write the recording `source` as often as needed into the bundle `target`; count events."""
    with open(source / "events.csv.zst", "rb") as raw:
        text = zstandard.ZstdDecompressor().stream_reader(raw).read().decode()
    lines = text.splitlines()
    heads = [line for line in lines if line.startswith("#")]
    rows = [line.split(",", 3) for line in lines if not line.startswith("#")]
    times = [int(row[1]) for row in rows]
    sockets = [int(row[2], 16) for row in rows]
    own = sum(row[0] in EVENT_TAGS or row[0].removesuffix("0") in EVENT_TAGS for row in rows)
    repeats = max(1, events // own)
    span = max(times) - min(times) + PAUSE_NS
    manifest = json.loads((source / "manifest.json").read_text())
    manifest["events"] = {tag: count * repeats for tag, count in manifest["events"].items()}
    target.mkdir(parents=True)
    (target / "manifest.json").write_text(json.dumps(manifest))
    compressor = zstandard.ZstdCompressor(level=9)
    with open(target / "events.csv.zst", "wb") as raw, compressor.stream_writer(raw) as out:
        out.write("".join(f"{line}\n" for line in heads).encode())
        for turn in range(repeats):
            shifted = (
                f"{row[0]},{ns + turn * span},{sk + turn * SOCKET_STEP:x},{row[3]}\n"
                for row, ns, sk in zip(rows, times, sockets, strict=True)
            )
            out.write("".join(shifted).encode())
    return own * repeats


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(bundle: Path, what: str) -> None:
    """Measure in this process, on one core; print a JSON object."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        with open_store(Path(folder) / "warm.duckdb") as store:
            ingest(store, fixtures.path("v2_x_spur"), packets=False)
        with open_store(Path(folder) / "bench.duckdb") as store:
            store.con.execute("SET threads = 1")
            before = peak_mib()
            begin = time.process_time()
            if what == "stream":
                reader = EventReader(bundle / "events.csv.zst", "events.csv.zst")
                events = sum(batch.num_rows for batch in reader.batches())
            else:
                events = ingest(store, bundle, packets=False).events
        seconds = time.process_time() - begin
    found = {"events": events, "seconds": seconds, "before": before, "peak": peak_mib()}
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", nargs="?", type=Path, default=fixtures.path("v2_single_1bdp"))
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="keep the enlarged bundle in this folder")
    parser.add_argument("--measure", choices=["stream", "whole"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.bundle, options.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        big = (options.keep or Path(folder)) / "big"
        events = enlarge(options.bundle, big, options.events)
        size = (big / "events.csv.zst").stat().st_size
        print(f"{events:,} events, {size / 1e6:,.1f} MB compressed, one core")
        for what, name in (("stream", "event stream only"), ("whole", "whole ingest")):
            command = [sys.executable, __file__, str(big), "--measure", what]
            runs = [
                json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                for _ in range(3)
            ]
            best = min(runs, key=lambda run: run["seconds"])
            print(
                f"{name:20} {best['events'] / best['seconds']:>10,.0f} events/s"
                f"   peak {best['peak']:,.0f} MiB, of which {best['before']:,.0f} MiB "
                "before it began (interpreter, libraries, compiled code)"
            )


if __name__ == "__main__":
    main()
