"""Inputs through ingest and later commands, in this process; what went wrong, as lines of JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path
from random import Random

from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.probes.base.errors import BbrscopeError

from . import inputs
from .commands import WORDS, Outcome, later_commands, run

# CPU time of one step [s], and memory of the process [bytes].
SECONDS, MEMORY = 10, 1 << 30
# Inputs whose runs share a store, and later commands tried on each store.
BATCH, LATER = 40, 12
COMMANDS = ("scenario", "study", "sql", "where")


class Worker:
    """Tries inputs of numbers that it is given; each depends on its number and the seed alone."""

    def __init__(self, seed: int, folder: Path, later: int = LATER) -> None:
        self.seed = seed
        self.later = later
        self.folder = folder
        self.accepted = self.refused = self.commands = 0
        self.peak = 0
        self._known: tuple[tuple[int, int], tuple[tuple[object, ...], ...]] = ((0, 0), ())

    def batch(self, first: int, count: int) -> None:
        """Inputs `first` and on, in a store of their own, then later commands on that store."""
        folder = self.folder / str(first)
        folder.mkdir()
        store = folder / "s.duckdb"
        self.step(("ingest", "--store", str(store), str(_shipped())), f"{first}: a shipped one")
        for number in range(first, first + count):
            self._input(number, folder, store)
        random = Random(f"{self.seed}.{first}")
        with open_store(store, read_only=True) as opened:
            runs = opened.runs()
        chosen = random.sample(runs, min(len(runs), 3))
        later = list(later_commands(store, chosen, folder / "out"))
        (folder / "out").mkdir()
        for words in (*later[:3], *random.sample(later[3:], self.later)):
            self.step(words, f"{first}: {' '.join(words)}")
        if not self._failed_here(folder):
            shutil.rmtree(folder)

    def _input(self, number: int, folder: Path, store: Path) -> None:
        random = Random(f"{self.seed}/{number}")
        kinds = [*inputs.LOADED, *COMMANDS]
        kind = kinds[number % len(kinds)]
        shown, place = f"{number}: {kind}", folder / f"{kind}{number}"
        at = ("--store", str(store))
        if kind in inputs.LOADED:
            path = inputs.LOADED[kind](place, random)
            before, status = self._content(store), store.stat()
            salvage = ("--salvage",) if random.random() < 0.6 else ()
            done = self.step(("ingest", *at, *salvage, "--", str(path)), shown)
            self.accepted += done.status == 0
            self.refused += done.status == 1
            if done.status and store.stat() != status and self._content(store, anew=True) != before:
                self.tell("changed", shown, "a refused input changed the store")
            if path.is_dir():
                self.step(("doctor", "--bundle", str(path)), shown)
        elif kind == "sql":
            self.step(("sql", *at, "--format", "json", "--", inputs.query(random)), shown)
        elif kind == "where":
            where = ("--where", inputs.condition(random))
            self.step(("report", *at, "--force", "-o", f"{place}.html", *where), shown)
        else:
            path = str(inputs.scenario(place, random))
            if kind == "study":
                self.step(("study", *at, "--format", "csv", path), shown)
            else:
                self.step(("lab", "list", path), shown)

    def step(self, words: WORDS, shown: str) -> Outcome:
        """Run a command, and tell what is wrong with how it went."""
        self.commands += 1
        self.tell("begin", shown, "")
        began = time.process_time()
        done = run(*words)
        spent = time.process_time() - began
        self.peak = max(self.peak, _peak())
        if not done.is_sound:
            self.tell("internal", shown, f"{words}\n{done.failure or done.err}")
        if spent > SECONDS:
            self.tell("hang", shown, f"{words}: {spent:.1f} s")
        return done

    def _content(self, store: Path, anew: bool = False) -> tuple[tuple[object, ...], ...]:
        """How many rows every table has, and a sum over the runs; found out after each change."""
        status = (store.stat().st_mtime_ns, store.stat().st_size)
        if status == self._known[0] and not anew:
            return self._known[1]
        self._known = (status, self._counted(store))
        return self._known[1]

    def _counted(self, store: Path) -> tuple[tuple[object, ...], ...]:
        try:
            with open_store(store, read_only=True) as opened:
                tables = opened.con.execute(
                    "SELECT table_name, estimated_size FROM duckdb_tables() ORDER BY ALL"
                ).fetchall()
                runs = opened.con.execute("FROM runs SELECT bit_xor(hash(runs))").fetchall()
        except BbrscopeError as error:
            self.tell("changed", str(store), f"it cannot be opened: {error}")
            return ()
        return (*tables, *runs)

    def tell(self, what: str, shown: str, more: str) -> None:
        """Write one line for the process that watches."""
        sys.__stdout__.write(json.dumps([what, shown, more]) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]

    def _failed_here(self, folder: Path) -> bool:
        return bool(os.environ.get("BBRSCOPE_FUZZ_KEEP"))

    def total(self) -> None:
        """Tell what was done, and the largest size of this process."""
        counts = (self.accepted, self.refused, self.commands, self.peak)
        self.tell("total", "", json.dumps(counts))
        if self.peak > MEMORY:
            self.tell("memory", "", f"{self.peak >> 20} MiB")


def _peak() -> int:
    """Bytes that this program held at most; ru_maxrss would count what started it, too."""
    status = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM")]
    return int(peak) << 10


def _shipped() -> Path:
    from bbrscope import fixtures

    return fixtures.path("v2_x_spur")


if __name__ == "__main__":
    seed, first, count = map(int, sys.argv[1:4])
    worker = Worker(seed, Path(sys.argv[4]))
    worker.batch(first, count)
    worker.total()
