"""Try mutated inputs: ``python -m tests.fuzz --inputs 10000``; exit status 1 if any got through.

Every batch of inputs is a process of its own, watched from here for its time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from .worker import BATCH

# A step that takes this long on the clock hangs, whatever else the machine does [s].
WALL = 120


@dataclass
class Campaign:
    """What was tried, and what got through: kind of failure, input, details."""

    failures: list[tuple[str, str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    peak: int = 0

    def batch(self, seed: int, first: int, count: int, folder: Path) -> None:
        """Try inputs `first` to `first` + `count` in a process of their own."""
        words = [sys.executable, "-m", "tests.fuzz.worker", *map(str, (seed, first, count, folder))]
        with (folder / "stderr").open("w+") as errors:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
            last = self._watch(process)
            if process.wait():
                errors.seek(0)
                self.failures.append(("died", last, errors.read()[-3000:]))

    def _watch(self, process: subprocess.Popen[str]) -> str:
        """Take in what a worker tells, and end it if it falls silent; return its last step."""
        lines: Queue[str] = Queue()
        assert process.stdout is not None
        stream = process.stdout
        Thread(target=lambda: [*map(lines.put, stream), lines.put("")], daemon=True).start()
        last = ""
        while True:
            try:
                line = lines.get(timeout=WALL)
            except Empty:
                self.failures.append(("hang", last, f"no end after {WALL} s"))
                process.kill()
                return last
            if not line:
                return last
            what, shown, more = json.loads(line)
            if what == "total":
                accepted, refused, commands, peak = json.loads(more)
                self.counts.update(accepted=accepted, refused=refused, commands=commands)
                self.peak = max(self.peak, peak)
            elif what == "begin":
                last = shown
            else:
                self.failures.append((what, shown, more))

    def told(self, inputs: int, seconds: float) -> str:
        """Return the campaign in one paragraph."""
        by_kind = Counter(what for what, _, _ in self.failures)
        bad = ", ".join(f"{n} {what}" for what, n in by_kind.items()) or "no failure"
        return (
            f"{inputs} inputs ({self.counts['accepted']} loaded, {self.counts['refused']} refused),"
            f" {self.counts['commands']} commands, {seconds:.0f} s, largest process"
            f" {self.peak >> 20} MiB: {bad}"
        )


def main() -> None:
    """Run a campaign and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=200, help="how many [200]")
    parser.add_argument("--seed", type=int, default=1, help="other inputs [1]")
    parser.add_argument("--first", type=int, default=0, help="number of the first input [0]")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no batch after these")
    parser.add_argument("--quiet", action="store_true", help="print the end alone")
    options = parser.parse_args()
    campaign, began, done = Campaign(), time.monotonic(), 0
    while done < options.inputs and time.monotonic() - began < options.seconds:
        count = min(BATCH, options.inputs - done)
        with tempfile.TemporaryDirectory(prefix="bbrscope-fuzz-") as folder:
            known = len(campaign.failures)
            campaign.batch(options.seed, options.first + done, count, Path(folder))
        done += count
        for what, shown, more in campaign.failures[known:]:
            print(f"--- {what} {shown}\n{more}", flush=True)
        if not options.quiet:
            print(campaign.told(done, time.monotonic() - began), flush=True)
    print(campaign.told(done, time.monotonic() - began))
    sys.exit(bool(campaign.failures))


if __name__ == "__main__":
    main()
