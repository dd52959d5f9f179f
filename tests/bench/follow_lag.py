#!/usr/bin/env python3
"""How far behind is `collect --follow`? From an event in the kernel to its line on the screen.

    python tests/bench/follow_lag.py [--speed N]

First the rows of each shipped recording: they come through a pipe as bpftrace would write them,
each at its time (N times as fast as recorded), and are followed as a recording under way is. Then
what is real from end to end: root, this host, rung tcp_probe, twelve BBR flows on loopback that
begin one after another, and a line for each change of phase. For each line that was printed, the
time when it was read minus the time of the event in it: median, 95th percentile, largest.

Measured on a machine of two CPUs with other work on both (five times as fast below):

    recording          rows/s  lines   median    95 %   largest
    v1_x_lt               731    796   0.35 s   0.46 s   0.62 s
    v2_single_1bdp      1,264    175   0.36 s   0.49 s   0.73 s
    v2_x_spur             917    203   0.38 s   0.55 s   0.63 s
    v3_x_tlp5             195  2,141   0.38 s   0.59 s   0.72 s
    v1_x_lt             3,653    796   0.38 s   0.52 s   0.59 s
    v2_single_1bdp      6,319    175   0.44 s   0.61 s   0.91 s
    v2_x_spur           4,586    203   0.44 s   0.62 s   0.68 s
    v3_x_tlp5             976  2,141   0.36 s   0.48 s   0.60 s
    this host                     48   0.31 s   0.41 s   0.41 s
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

from bbrscope import fixtures
from bbrscope.collect.record.output.live_rows import LiveRows
from bbrscope.collect.record.output.stream import Compressed, Events
from bbrscope.collect.record.recording import TICK_S
from bbrscope.reports.live.story_printer import StoryPrinter

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.live_stream import stream

MAIN = "from bbrscope.reports.entry import main; main()"
COLLECT = [sys.executable, "-c", MAIN, "collect", "--rung", "tcp_probe", "--no-packets", "--follow"]
CLOCK = re.compile(rb"^(\d\d:\d\d:\d\d\.\d{3})  ")
# PROBE_RTT comes after 10 s.
FLOWS = """
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
  iperf3 -s -1 -p 53$((n + 10)) > /dev/null & sleep 0.3
  iperf3 -c 127.0.0.1 -p 53$((n + 10)) -C bbr -b 5M -t 12 > /dev/null & sleep 0.4
done
sleep 13
"""
# Until the loop is compiled and the last rows were looked at.
BEFORE_S, AFTER_S = 3.0, 1.0


def lags(lines: int) -> list[float]:
    """Read a story until it ends; seconds from the time in each line to its coming."""
    found = []
    with open(lines, "rb", buffering=0) as source:
        for line in iter(source.readline, b""):
            now = time.time()
            if clock := CLOCK.match(line):
                day = datetime.now().strftime("%Y-%m-%d ")
                found.append(now - datetime.fromisoformat(day + clock[1].decode()).timestamp())
    return found


def show(what: str, found: list[float]) -> None:
    """Print one line of the result."""
    ranked = sorted(found)
    high = ranked[int(0.95 * (len(ranked) - 1))]
    print(
        f"{what:<24}{len(found):7d} lines  median {statistics.median(found):5.2f} s"
        f"  95 % {high:5.2f} s  largest {ranked[-1]:5.2f} s",
        flush=True,
    )


def host() -> list[float]:
    """A real recording of this host."""
    with tempfile.TemporaryDirectory() as folder:
        source, sink = os.pipe()
        words = ["-q", "-o", f"{folder}/run", "--", "sh", "-c", FLOWS]
        process = subprocess.Popen([*COLLECT, *words], stdout=sink)
        os.close(sink)
        found = lags(source)
        if process.wait():
            raise SystemExit("bbrscope collect failed: this needs root, bpftrace and iperf3")
        return found


def play(bundle: Path, speed: float, start_ns: int, sink: int) -> None:
    """Write the rows of a bundle, each at its time."""
    heads, rows = stream(bundle)
    os.write(sink, heads)
    first = rows[0][0]
    for ns, line in rows:
        due = start_ns + int((ns - first) / speed)
        if (wait := due - time.monotonic_ns()) > 0:
            time.sleep(wait / 1e9)
        tag, _ns, rest = line.split(b",", 2)
        os.write(sink, b"%s,%d,%s" % (tag, due, rest))
    os.close(sink)


def follow(bundle: Path, speed: float, sink: int) -> None:
    """Follow the rows as Recording.watch does, and print to `sink`."""
    os.dup2(sink, 1)
    printer, rows = StoryPrinter(), LiveRows()
    manifest = json.loads((bundle / "manifest.json").read_text())
    printer.begin({**manifest, "rung": "fentry"})
    source, into = os.pipe()
    start_ns = time.monotonic_ns() + int(BEFORE_S * 1e9)
    player = multiprocessing.Process(target=play, args=(bundle, speed, start_ns, into))
    player.start()
    os.close(into)
    with tempfile.TemporaryDirectory() as folder:
        target = Compressed(Path(folder) / "events.csv.zst")
        events = Events(source, target)
        events.tap = rows
        events.start()
        last = 0.0
        while not last or time.monotonic() - last < AFTER_S:
            time.sleep(TICK_S)
            printer.see(events.headers, rows.take(), time.monotonic_ns())
            last = last or (0.0 if player.is_alive() else time.monotonic())
        target.close()


def played(bundle: Path, speed: float) -> list[float]:
    """A recording that comes as it once came."""
    source, sink = os.pipe()
    found: list[float] = []
    reader = threading.Thread(target=lambda: found.extend(lags(source)))
    process = multiprocessing.Process(target=follow, args=(bundle, speed, sink))
    process.start()
    os.close(sink)
    reader.start()
    process.join()
    reader.join()
    return found


def main() -> None:
    """Print the lag of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--speed", type=float, default=1.0)
    speed = parser.parse_args().speed
    for name in fixtures.names():
        bundle = fixtures.path(name)
        rows = stream(bundle)[1]
        seconds = (rows[-1][0] - rows[0][0]) / 1e9 / speed
        show(f"{name}, {len(rows) / seconds:.0f} rows/s", played(bundle, speed))
    show("this host, tcp_probe", host())


if __name__ == "__main__":
    main()
