"""What does a fleet cost, and do two CPUs halve it? Every wish as a ratio: 1.00 or more is met.

    python tests/bench/bench_fleet.py [--bundles 58] [--report] [--capture FILE.pcap]

Copies the shipped v2_single_1bdp (10,602 events) under as many names; its packets are left out
(--capture measures packets). Files them in a lake with one worker process and with two; loads,
replays and diagnoses them in a plain store on one CPU and on two, each command with its own default
of processes or threads, and two bundles alone, which tell what a command's start takes. Prints CPU
seconds per bundle by what they are spent on, what is paid besides that work (identifying it, its
share of a store), wall time, and memory; then the diagnosis of one run, and a commit for each
bundle. --report adds the report of 1 million events
(see bench_report.py), --capture packets beside tshark (see bench_packets.py). Only an idle machine
tells the truth about wall time: on a busy one, two processes are not given two CPUs.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from pathlib import Path
from unittest import mock

import bench_packets
import bench_report
from bbrscope import fixtures
from bbrscope.analyze.lake import fan_out, load_runs
from bbrscope.analyze.views.store_with_views import open_for_loading
from bbrscope.collect.ingest.ingest import ingest
from bbrscope.collect.ingest.parallel import Options, ingest_many
from bbrscope.collect.ingest.worker_shares import MOST_TOGETHER
from bbrscope.collect.lake.lake_place import open_place
from bbrscope.collect.packets.tshark import OPTIONS
from bbrscope.collect.packets.tshark_fields import FIELDS
from bench_packets import measure

RECORDING = "v2_single_1bdp"
# Packets have a wish of their own, beside tshark.
OPTIONS_OF_RUNS = load_runs.AddOptions(packets=False)
# A fleet of a thousand bundles on two CPUs: seconds, and bytes of all processes.
WANTED_S, WANTED_MB = 150, 1000
WANTED_CPU_MS = WANTED_S * 2
WANTED_SPEEDUP = 1.6
WANTED_REPORT_S = 12
WANTED_TSHARK = 0.7
# What is paid for one run, however small: its diagnosis, and a commit of its own.
WANTED_DIAGNOSE_S = 2
WANTED_COMMIT_MS = 150
COMMITS = 8


def copies(folder: Path, count: int) -> list[Path]:
    """Make `count` bundles of different digests."""
    made = []
    for number in range(count):
        target = folder / f"run{number}"
        shutil.copytree(Path(fixtures.__file__).parent / RECORDING, target)
        manifest = json.loads((target / "manifest.json").read_text())
        (target / "manifest.json").write_text(json.dumps({**manifest, "name": target.name}))
        made.append(target)
    return made


def wall(folder: Path, bundles: list[Path], processes: int) -> float:
    """File the bundles with worker processes; return seconds from the first result to the last."""
    lake = str(folder / f"lake{processes}")
    open_place(lake, create=True)
    # One bundle each first: a worker's start is paid once, whatever the number of bundles.
    workers = fan_out.processes(processes)
    with workers.make() as pool:
        warm = fan_out.Workers(lambda: _Kept(pool), processes)
        warming = [*fan_out.file_all(lake, bundles[:processes], OPTIONS_OF_RUNS, warm)]
        assert not any(one.refused for one in warming)
        start = time.perf_counter()
        rest = bundles[processes:]
        filed = [*fan_out.file_all(lake, rest, OPTIONS_OF_RUNS, warm)]
        assert len(filed) == len(rest)
        assert all(one.exact and not one.refused for one in filed)
        return (time.perf_counter() - start) / len(rest)


class _Kept(Executor):
    """A pool that is not shut down when the first use of it ends."""

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def submit(
        self, fn: Callable[..., object], /, *args: object, **kwargs: object
    ) -> Future[object]:  # type: ignore[override]
        return self.pool.submit(fn, *args, **kwargs)


def parts(folder: Path, bundles: list[Path]) -> Counter[str]:
    """Return CPU seconds per bundle by what they are spent on, in this process."""
    spent: Counter[str] = Counter()
    count = len(bundles) - 1

    def timed(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += (time.process_time() - start) / count

        return run

    lake = str(folder / "parts")
    open_place(lake, create=True)
    load_runs.file_bundles(lake, bundles[:1], OPTIONS_OF_RUNS)
    group = load_runs._Group
    with (
        mock.patch.object(load_runs, "ingest", timed("ingest", load_runs.ingest)),
        mock.patch.object(group, "_replay_loaded", timed("replay", group._replay_loaded)),
        mock.patch.object(group, "_diagnose", timed("diagnose", group._diagnose)),
        mock.patch.object(group, "_measure", timed("measure", group._measure)),
        mock.patch.object(group, "file", timed("write the other files", group.file)),
    ):
        start = time.process_time()
        load_runs.file_bundles(lake, bundles[1:], OPTIONS_OF_RUNS)
        spent["all"] = (time.process_time() - start) / count
    spent["besides"] = 2 * spent["all"] - sum(spent.values())
    return spent


def told(what: str, wanted: float, found: float, unit: str, least: bool = False) -> None:
    """Print a wish, what was found, and by how much it is met: 1.00 or more is enough."""
    ratio = found / wanted if least else wanted / found
    print(f"{ratio:6.2f}  {what}: {found:.2f}{unit} of {wanted:g}{unit}")


def lake_times(folder: Path, bundles: list[Path]) -> float:
    """File bundles in lakes; return wall seconds per bundle with two processes."""
    one, two = wall(folder, bundles, 1), wall(folder, bundles, 2)
    told("lake add, two processes to one", WANTED_SPEEDUP, one / two, " times", least=True)
    told("lake add, 1,000 bundles on two CPUs", WANTED_S, two * 1000, " s")
    worker = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    told("lake add, the larger of two workers", WANTED_MB, worker, " MB")
    return two


def store_times(folder: Path, bundles: list[Path]) -> float:
    """Load, replay and diagnose in a plain store; return wall seconds per bundle on two CPUs.

    A command's start is paid once, whatever the number of bundles: two alone tell what it takes.
    """
    few = bundles[:2]
    more = len(bundles) - len(few)
    total = started = 0.0
    for name in ("ingest", "replay", "diagnose"):
        walls = []
        for jobs, cores in enumerate(("0", "0,1"), 1):
            took = []
            for some in (few, bundles):
                store = folder / f"store{jobs}_{len(some)}.duckdb"
                words = [sys.executable, "-m", "bbrscope.reports", name, "--store", str(store)]
                if name == "ingest":
                    words += ["--no-packets", *map(str, some)]
                took.append(measure(words, cores))
            (start_s, start_cpu, _), (seconds, cpu, peak) = took
            walls.append(seconds)
            each = (cpu - start_cpu) / more * 1e3
            print(
                f"        {name}, CPUs {cores}: {seconds:.1f} s, CPU {start_cpu:.1f} s for"
                f" {len(few)} bundles, then {each:.0f} ms for each, {peak:.0f} MB"
            )
        told(f"{name}, two CPUs to one", WANTED_SPEEDUP, walls[0] / walls[1], " times", least=True)
        told(f"{name}, the largest process", WANTED_MB, peak, " MB")
        total += (seconds - start_s) / more
        started += start_s
    told("a store, 1,000 bundles on two CPUs", WANTED_S, total * 1000 + started, " s")
    return total


def single_costs(folder: Path, bundles: list[Path]) -> None:
    """Diagnose one run; load the others with a commit for each, and with one for all."""
    store = str(folder / "single.duckdb")
    begin = [sys.executable, "-m", "bbrscope.reports"]
    measure([*begin, "ingest", "--store", store, "--no-packets", str(bundles[0])], "0,1")
    measure([*begin, "replay", "--store", store], "0,1")
    seconds, cpu, _ = measure([*begin, "diagnose", "--store", store], "0,1")
    told("diagnose, one run", WANTED_DIAGNOSE_S, seconds, " s")
    print(f"        CPU {cpu:.1f} s")
    spent = []
    for name in ("each", "all"):
        with open_for_loading(folder / f"{name}.duckdb") as opened:
            load = partial(ingest, opened, packets=False)
            load(bundles[0])  # what the first of a process pays is no part of a commit
            start = time.process_time()
            if name == "each":
                loaded = [load(bundle) for bundle in bundles[1:]]
            else:
                loaded = [*ingest_many(opened, bundles[1:], Options(packets=False), 1)]
            assert not any(one.already for one in loaded)
            spent.append((time.process_time() - start) / len(bundles[1:]) * 1e3)
    told("ingest, a commit per bundle, CPU", WANTED_COMMIT_MS, spent[0] - spent[1], " ms")


def report_time(folder: Path) -> None:
    """Build the report of a long flow, in a process of its own."""
    path = folder / "big.duckdb"
    run, _ = bench_report.prepare(path, Path(fixtures.__file__).parent / RECORDING, 1_000_000, 1)
    words = ["report", run, "--store", str(path), "-o", str(folder / "big.html")]
    seconds, cpu, peak = measure([sys.executable, "-m", "bbrscope.reports", *words], "0,1")
    told("report of 1 million events", WANTED_REPORT_S, seconds, " s")
    print(f"        CPU {cpu:.1f} s, {peak:.0f} MB")


def packet_time(folder: Path, capture: Path, count: int = 600_000) -> None:
    """Dissect packets: ingest on two CPUs beside tshark on one."""
    large = folder / "large.pcap"
    bench_packets.enlarge(capture, large, count, False)
    fields = [word for field in FIELDS for word in ("-e", field.name)]
    alone, _, _ = measure(
        ["tshark", "-n", "-r", str(large), *OPTIONS, "-T", "fields", *fields], "0"
    )
    store = str(folder / "packets.duckdb")
    words = [sys.executable, "-m", "bbrscope.reports", "ingest", "--store", store, str(large)]
    ours, _, _ = measure(words, "0,1")
    told("packets, two CPUs to tshark on one", WANTED_TSHARK, ours / alone, " times")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=58)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--capture", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundles = copies(folder, asked.bundles)
        spent = parts(folder, bundles[: 1 + MOST_TOGETHER])
        told("lake add, CPU per bundle", WANTED_CPU_MS, spent["all"] * 1e3, " ms")
        for what, seconds in spent.most_common():
            print(f"        CPU per bundle, {what}: {seconds * 1e3:.0f} ms")
        lake_times(folder, bundles)
        store_times(folder, bundles)
        single_costs(folder, bundles[: 1 + COMMITS])
        if asked.report:
            report_time(folder)
        if asked.capture:
            packet_time(folder, asked.capture)


if __name__ == "__main__":
    main()
