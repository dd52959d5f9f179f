"""Every later command over a store, in this process, and what became of each."""

from __future__ import annotations

import contextlib
import io
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bbrscope.reports.cli import main

WORDS = tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    Attributes:
        words: the command line.
        status: what it exits with; None if it failed within itself.
        out, err: what it printed.
        failure: the traceback of an internal error, or nothing.
    """

    words: WORDS
    status: int | None
    out: str
    err: str
    failure: str = ""

    @property
    def is_sound(self) -> bool:
        """It did its job, or said why it cannot: never a traceback, never a raw database error."""
        raw = "Error:" in self.err and "DuckDB on" in self.err
        return self.status in (0, 1, 2) and not self.failure and not raw


class _Terminal(io.TextIOWrapper):
    """Standard output as a command finds it: text, and the bytes below it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)

    def text(self) -> str:
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode("utf-8", "backslashreplace")


def run(*words: str | Path) -> Outcome:
    """Run one command line here."""
    line = tuple(map(str, words))
    out, err = _Terminal(), _Terminal()
    status: int | None = None
    failure = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _tracebacks():
        try:
            main(list(line))
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception:
            failure = traceback.format_exc()
    return Outcome(line, status, out.text(), err.text(), failure)


@contextlib.contextmanager
def _tracebacks() -> Iterator[None]:
    """Let an internal error come through instead of being printed in one line."""
    before = os.environ.get("BBRSCOPE_TRACEBACK")
    os.environ["BBRSCOPE_TRACEBACK"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["BBRSCOPE_TRACEBACK"]
        else:
            os.environ["BBRSCOPE_TRACEBACK"] = before


# Runs that are diagnosed at once: it takes some tenths of a second for each.
DIAGNOSED = 20
# Of so many runs, one is simulated under other rules.
SIMULATED = 10


def commands_on_all(store: Path, runs: Sequence[str]) -> Iterator[WORDS]:
    """Yield the command lines by which every run of a store is replayed, diagnosed and listed.

    Some of them are simulated under other rules, but not the first, which nothing shortened.
    """
    at = ("--store", str(store))
    yield ("runs", *at, "--format", "json")
    yield ("replay", *at, "--fields")
    for first in range(0, len(runs), DIAGNOSED):
        yield ("diagnose", *at, "--", *runs[first : first + DIAGNOSED])
    for run in runs[1::SIMULATED]:
        yield what_if(run, at)


def what_if(run: str, at: WORDS) -> WORDS:
    """The command line that simulates a run; fewer seeds are refused before anything is read."""
    return ("what-if", *at, "--as", "v3", "--json", "--", run)


CHARTS = (
    "lanes rates volumes rtt loss rounds sequence wire queue shares jain convergence scatter "
    "rtt-cdf goodput-box inflight-cdf"
).split()


def later_commands(store: Path, runs: Sequence[str], folder: Path) -> Iterator[WORDS]:
    """Yield every other command line that a user may type once these runs are in the store.

    Files go below `folder`. Run names that look like options come after ``--``.
    """
    at = ("--store", str(store))
    for number, run in enumerate(runs):
        yield from about(run, at, folder / str(number))
        yield from exports((run,), at, folder / str(number))
    yield from exports(runs[:3], at, folder / "several")
    yield ("runs", *at)
    yield ("replay", *at, "--json", "--names", "draft", "--", *runs)
    yield ("diagnose", *at, "--format", "json", "--", *runs)
    yield ("metrics", *at, "--by", "run", "--format", "csv")
    yield ("diff", *at, "--all", "--", runs[0], runs[-1])
    yield ("diff", *at, "--format", "json", "--a", runs[0], "--b", runs[-1])
    yield ("report", *at, "-o", str(folder / "several.html"), "--", *runs[:3])
    yield ("plot", *at, "-o", str(folder / "scatter.svg"), "--", "scatter", *runs[:3])
    yield ("export", *at, "--format", "parquet", "--views", "-o", str(folder / "lab"))
    yield ("model", "ware", *at, "--all")
    yield ("model", "cliff", *at, "--scenario", "cao-cliff")
    for scenario in ("song-single-buffer", "song-cubic"):
        yield ("study", *at, "--quick", "-o", str(folder / f"{scenario}.html"), scenario)
        yield ("study", *at, "--full", "--format", "csv", scenario)
    yield ("simulate", "--fidelity", *at)


def exports(runs: Sequence[str], at: WORDS, path: Path) -> Iterator[WORDS]:
    """The other tools' formats, of one run or several."""
    for form, ending in (("perfetto", "pftrace"), ("qlog", "qlog"), ("openmetrics", "om")):
        yield ("export", *at, "--format", form, "-o", f"{path}.{ending}", "--", *runs)
    if len(runs) == 1:
        yield ("export", *at, "--format", "xplot", "-o", f"{path}.xpl", "--", *runs)
        old = ("--dialect", "0.3", "-o", f"{path}.sqlog")
        yield ("export", *at, "--format", "qlog", *old, "--", *runs)
        bundle = str(Path(at[1]).parent / runs[0])
        yield ("export", *at, "--format", "pcapng", "--capture", bundle, "-o", f"{path}.pcapng",
               "--", *runs)  # fmt: skip


def about(run: str, at: WORDS, folder: Path) -> Iterator[WORDS]:
    """The commands about one run."""
    for form in ((), ("--all",), ("--json",), ("--full", "--names", "draft"), ("--at", "1s"),
                 ("--only", "phase"), ("--only", "cwnd"), ("--flow", "1"), ("--flow", "9"),
                 ("--between", "0.1s", "0.3s")):  # fmt: skip
        yield ("explain", *at, *form, "--", run)
    for by in "flow phase second round run".split():
        yield ("metrics", *at, "--by", by, "--", run)
    for rules in (("--as", "v1"), ("--as", "v2"), ("--as", "v3"), ("--set", "cwnd_min_target=8")):
        yield ("replay", *at, *rules, "--", run)
    yield what_if(run, at)
    yield ("replay", *at, "--", run)
    yield ("report", *at, "-o", f"{folder}.html", "--", run)
    yield ("report", *at, "--between", "0.1s", "0.2s", "-o", f"{folder}b.html", "--", run)
    for chart in CHARTS:
        yield ("plot", *at, "--spec", "--", chart, run)
    yield (
        "model",
        "ware",
        *at,
        "--capacity",
        "10mbit",
        "--rtt",
        "40ms",
        "--buffer",
        "1bdp",
        "--",
        run,
    )
    lake = str(folder) + ".lake"
    yield ("lake", "add", lake, "--salvage", "--jobs", "1", "--", str(Path(at[1]).parent / run))
