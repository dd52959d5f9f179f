"""What does a run cost on its way into a lake, and do two processes halve it?

    python tests/bench/bench_fleet.py [--bundles 24]

Copies the small shipped recordings (3,800 to 5,300 events each) under as many names, files them in
a lake with one worker process and with two, and prints wall time per bundle, the speed-up, CPU
seconds by what they were spent on, what is paid per bundle besides that work (identifying it, its
share of a store, handing it to a worker, its manifest row), and the largest process. Ratios hold on
other machines; seconds do not.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from unittest import mock

from bbrscope import fixtures
from bbrscope.analyze.lake import fan_out, load_runs
from bbrscope.collect.lake.lake_place import open_place

SMALL = ("v1_x_lt", "v2_x_spur", "v3_x_tlp5")


def copies(folder: Path, count: int) -> list[Path]:
    """Make `count` bundles of different digests."""
    made = []
    for number in range(count):
        target = folder / f"run{number}"
        shutil.copytree(Path(fixtures.__file__).parent / SMALL[number % len(SMALL)], target)
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
        warming = [*fan_out.file_all(lake, bundles[:processes], load_runs.AddOptions(), warm)]
        assert not any(one.refused for one in warming)
        start = time.perf_counter()
        rest = bundles[processes:]
        filed = [*fan_out.file_all(lake, rest, load_runs.AddOptions(), warm)]
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

    def timed(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **kwargs: object) -> object:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                spent[name] += (time.process_time() - start) / len(bundles)

        return run

    lake = str(folder / "parts")
    open_place(lake, create=True)
    load_runs.file_bundles(lake, bundles[:1], load_runs.AddOptions())
    group = load_runs._Group
    with (
        mock.patch.object(load_runs, "ingest", timed("ingest", load_runs.ingest)),
        mock.patch.object(group, "_diagnose", timed("diagnose", group._diagnose)),
        mock.patch.object(group, "work_out", timed("replay, diagnose, measure", group.work_out)),
        mock.patch.object(group, "file", timed("write Parquet", group.file)),
    ):
        start = time.process_time()
        load_runs.file_bundles(lake, bundles[1:], load_runs.AddOptions())
        spent["all"] = (time.process_time() - start) / len(bundles)
    work = spent["ingest"] + spent["replay, diagnose, measure"] + spent["write Parquet"]
    spent["besides"] = spent["all"] - work
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundles", type=int, default=24)
    count = parser.parse_args().bundles
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundles = copies(folder, count)
        for what, seconds in parts(folder, bundles[:17]).most_common():
            print(f"CPU per bundle, {what}: {seconds * 1e3:.0f} ms")
        one, two = wall(folder, bundles, 1), wall(folder, bundles, 2)
    print(f"wall per bundle: {one:.3f} s with one process, {two:.3f} s with two")
    print(f"two processes are {one / two:.2f} times as fast as one")
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"largest worker: {largest:.0f} MB")


if __name__ == "__main__":
    main()
