"""Try mutated inputs: ``python -m tests.fuzz --inputs 10000``; exit status 1 if any got through.

Some batches of inputs share a process, watched from here for its time and memory.
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
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Lock, Thread

from .worker import BATCH, MEMORY

# A step that takes so much CPU time hangs, and one that waits so long on the clock [s].
CPU, WALL = 60, 1800
# A process of more than this is ended before the machine suffers [bytes].
ENDED = 3 * MEMORY
# Batches that a process tries: imports and compiled code are loaded once for them.
BATCHES = 2


@dataclass
class Campaign:
    """What was tried, and what got through: kind of failure, input, details."""

    failures: list[tuple[str, str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    peak: int = 0
    done: int = 0

    def batches(self, seed: int, first: int, count: int, folder: Path) -> None:
        """Try inputs `first` to `first` + `count` in a process of their own."""
        words = [sys.executable, "-m", "tests.fuzz.worker", *map(str, (seed, first, count, folder))]
        with (folder / "stderr").open("w+") as errors:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
            last = self._watch(process)
            if process.wait():
                errors.seek(0)
                self.failures.append(("died", last, errors.read()[-3000:]))

    def add(self, part: Campaign, inputs: int) -> None:
        """Count in what a part of the inputs gave."""
        self.failures += part.failures
        self.counts.update(part.counts)
        self.peak = max(self.peak, part.peak)
        self.done += inputs

    def _watch(self, process: subprocess.Popen[str]) -> str:
        """Take in what a worker tells, and end it if it falls silent; return its last step."""
        lines: Queue[str] = Queue()
        assert process.stdout is not None
        stream = process.stdout
        Thread(target=lambda: [*map(lines.put, stream), lines.put("")], daemon=True).start()
        last, began, spent = "", time.monotonic(), 0.0
        while True:
            try:
                line = lines.get(timeout=1)
            except Empty:
                used = _cpu_seconds(process.pid) - spent
                if used > CPU or time.monotonic() - began > WALL:
                    self.failures.append(("hang", last, f"no end after {used:.0f} s of CPU"))
                elif _resident(process.pid) > ENDED:
                    self.failures.append(("memory", last, f"over {ENDED >> 20} MiB"))
                else:
                    continue
                process.kill()
                return last
            if not line:
                return last
            began, spent = time.monotonic(), _cpu_seconds(process.pid)
            what, shown, more = json.loads(line)
            if what == "total":
                accepted, refused, commands, peak = json.loads(more)
                self.counts.update(accepted=accepted, refused=refused, commands=commands)
                self.peak = max(self.peak, peak)
            elif what == "begin":
                last = shown
            else:
                self.failures.append((what, shown, more))

    def summary(self, seconds: float) -> str:
        """Return the campaign in one paragraph."""
        by_kind = Counter(what for what, _, _ in self.failures)
        bad = ", ".join(f"{n} {what}" for what, n in by_kind.items()) or "no failure"
        return (
            f"{self.done:,} inputs ({self.counts['accepted']:,} loaded,"
            f" {self.counts['refused']:,} refused), {self.counts['commands']:,} steps,"
            f" {seconds:.0f} s, largest process {self.peak >> 20} MiB: {bad}"
        )


def _cpu_seconds(pid: int) -> float:
    """CPU time that a process has taken so far; 0: it ended."""
    try:
        times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    """Bytes of memory that a process has now; 0: it ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()


def main() -> None:
    """Run a campaign and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=200, help="how many [200]")
    parser.add_argument("--seed", type=int, default=1, help="other inputs [1]")
    parser.add_argument("--first", type=int, default=0, help="number of the first input [0]")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no batch after these")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once [1]")
    parser.add_argument("--quiet", action="store_true", help="print the end only")
    options = parser.parse_args()
    campaign, began, lock = Campaign(), time.monotonic(), Lock()
    end, size = options.first + options.inputs, BATCH * BATCHES
    starts = iter(range(options.first, end, size))

    def some() -> None:
        """Try one part of the inputs after the other, beside other threads of this kind."""
        while time.monotonic() - began < options.seconds:
            with lock:
                first = next(starts, None)
            if first is None:
                return
            with tempfile.TemporaryDirectory(prefix="bbrscope-fuzz-") as folder:
                part = Campaign()
                part.batches(options.seed, first, min(size, end - first), Path(folder))
            with lock:
                campaign.add(part, min(size, end - first))
                for what, shown, more in part.failures:
                    print(f"--- {what} {shown}\n{more}", flush=True)
                if not options.quiet:
                    print(campaign.summary(time.monotonic() - began), flush=True)

    threads = [Thread(target=some) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(campaign.summary(time.monotonic() - began))
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    main()
