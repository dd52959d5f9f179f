"""Inputs through ingest and later commands, in this process; what went wrong, as lines of JSON."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.store.store import Store
from bbrscope.probes.base.errors import BbrscopeError
from bbrscope.reports.choose import by_condition

from . import inputs
from .commands import WORDS, Outcome, commands_on_all, later_commands, run

# CPU time of one step [s], and memory of the process [bytes].
SECONDS, MEMORY = 10, 1 << 30
# Inputs whose runs share a store, and later commands tried on each store.
BATCH, LATER = 200, 14
# Every so many inputs go through the command line, the others through what it calls.
BY_COMMAND = 10
COMMANDS = ("scenario", "study", "sql", "where")
KINDS = (*inputs.LOADED, *COMMANDS)


class Worker:
    """Tries inputs of numbers that it is given; each depends on its number and the seed only."""

    def __init__(self, seed: int, folder: Path, later: int = LATER) -> None:
        self.seed = seed
        self.later = later
        self.folder = folder
        self.accepted = self.refused = self.commands = 0
        self.peak = 0
        self._known: tuple[object, ...] | None = None

    def batch(self, first: int, count: int) -> None:
        """Inputs `first` and on, in a store of their own, then later commands on that store."""
        folder = self.folder / str(first)
        folder.mkdir()
        path = folder / "s.duckdb"
        shipped = str(fixtures.path("v2_x_spur"))
        self.step(("ingest", "--store", str(path), shipped), f"{first}: a shipped one")
        numbers = range(first, first + count)
        self._known = None
        # An open store is not opened anew by each command: that takes longer than most inputs.
        with open_store(path) as store:
            for number in numbers:
                if _kind(number) in inputs.LOADED:
                    self._load(number, folder, store)
        for number in numbers:
            if _kind(number) not in inputs.LOADED:
                self._read(number, folder, path)
        self._later(first, path, folder / "out")
        if not os.environ.get("BBRSCOPE_FUZZ_KEEP"):
            shutil.rmtree(folder)

    def _later(self, first: int, path: Path, out: Path) -> None:
        """Later commands: those about all runs, and some of those about some."""
        random = Random(f"{self.seed}.{first}")
        with open_store(path, read_only=True) as opened:
            runs = opened.runs()
        chosen = random.sample(runs, min(len(runs), 8))
        later = random.sample(list(later_commands(path, chosen, out)), self.later)
        out.mkdir()
        for words in (*commands_on_all(path, runs), *later):
            self.step(words, f"{first}: {' '.join(words)}", usage=False)

    def _load(self, number: int, folder: Path, store: Store) -> None:
        """Have an input loaded, or refused with the store as it was."""
        random, kind = Random(f"{self.seed}/{number}"), _kind(number)
        shown = f"{number}: {kind}"
        path = inputs.LOADED[kind](folder / f"{kind}{number}", random)
        before = self._known = self._known or _content(store)
        salvage = random.random() < 0.6
        if number % BY_COMMAND:
            done = self.call(lambda: ingest(store, path, salvage=salvage), shown)
        else:
            options = ("--store", str(store.path), *(("--salvage",) if salvage else ()))
            done = self.step(("ingest", *options, "--", str(path)), shown).status
        self.accepted += done == 0
        self.refused += done == 1
        self._known = _content(store) if done else None
        if done and self._known != before:
            self.tell("changed", shown, "a refused input changed the store")
        if path.is_dir():
            self.step(("doctor", "--bundle", str(path)), shown)

    def _read(self, number: int, folder: Path, store: Path) -> None:
        """Give a query, a condition or a scenario to the command that reads it."""
        random, kind = Random(f"{self.seed}/{number}"), _kind(number)
        shown, place = f"{number}: {kind}", folder / f"{kind}{number}"
        at = ("--store", str(store))
        if kind == "sql":
            self.step(("sql", *at, "--format", "json", "--", inputs.query(random)), shown)
        elif kind == "where":
            text = inputs.condition(random)
            if number % BY_COMMAND:
                self.call(lambda: by_condition(store, text), shown)
            else:
                where = ("--where", f"run = 'v2_x_spur' AND ({text})")
                self.step(("report", *at, "--force", "-o", f"{place}.html", *where), shown)
        else:
            path = str(inputs.scenario(place, random))
            words = ("study", *at, "--format", "csv") if kind == "study" else ("lab", "list")
            self.step((*words, path), shown)

    def call(self, what: Callable[[], object], shown: str) -> int | None:
        """Do what a command does; return its status, None after an internal error."""

        def tried() -> Outcome:
            try:
                what()
            except BbrscopeError as error:
                return Outcome((), 1, "", f"{error.fact}\n{error.way_out}")
            except Exception:
                return Outcome((), None, "", "", traceback.format_exc())
            return Outcome((), 0, "", "")

        return self._watched(tried, shown, shown, True).status

    def step(self, words: WORDS, shown: str, usage: bool = True) -> Outcome:
        """Run a command, which may say that it is used wrongly if `usage`."""
        return self._watched(lambda: run(*words), shown, str(words), usage)

    def _watched(self, do: Callable[[], Outcome], shown: str, words: str, usage: bool) -> Outcome:
        """Do something, and tell what is wrong with how it went."""
        self.commands += 1
        self.tell("begin", shown, "")
        _forget_peak()
        began = time.process_time()
        done = do()
        spent, peak = time.process_time() - began, _peak()
        self.peak = max(self.peak, peak)
        if not done.is_sound or (done.status == 2 and not usage):
            self.tell("internal", shown, f"{words}\n{done.failure or done.err}")
        if spent > SECONDS:
            self.tell("hang", shown, f"{words}: {spent:.1f} s")
        if peak > MEMORY:
            self.tell("memory", shown, f"{words}: {peak >> 20} MiB")
        return done

    def tell(self, what: str, shown: str, more: str) -> None:
        """Write one line for the process that watches."""
        sys.__stdout__.write(json.dumps([what, shown, more]) + "\n")  # type: ignore[union-attr]
        sys.__stdout__.flush()  # type: ignore[union-attr]

    def total(self) -> None:
        """Tell what was done, and the largest size of this process."""
        counts = (self.accepted, self.refused, self.commands, self.peak)
        self.tell("total", "", json.dumps(counts))


def _kind(number: int) -> str:
    return KINDS[number % len(KINDS)]


def _content(store: Store) -> tuple[object, ...]:
    """How many rows of which runs every table has, and a sum over the runs."""
    named = "SELECT table_name FROM duckdb_columns() WHERE column_name = 'run_id' AND NOT internal"
    tables = store.con.execute(
        f"{named} AND table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY ALL"
    ).fetchall()
    counts = " UNION ALL ".join(f'SELECT count(*), sum(run_id) FROM "{name}"' for (name,) in tables)
    runs = store.con.execute("FROM runs SELECT bit_xor(hash(runs))").fetchall()
    return (*tables, *store.con.execute(counts).fetchall(), *runs)


def _forget_peak() -> None:
    """Let this process's peak of memory begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Bytes that this program held at most since then; ru_maxrss would count what started it."""
    status = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM")]
    return int(peak) << 10


if __name__ == "__main__":
    seed, first, count = map(int, sys.argv[1:4])
    worker = Worker(seed, Path(sys.argv[4]))
    for begin in range(first, first + count, BATCH):
        worker.batch(begin, min(BATCH, first + count - begin))
    worker.total()
