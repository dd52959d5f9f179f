"""Load many bundles at once: each process fills a store of its own, and one writer takes them over.

DuckDB lets one process write a file. Reading, pairing and dissecting take far longer than writing
rows, so workers do that into scratch stores, whose rows are then copied, run by run, each run in
one transaction.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...probes.base.errors import BbrscopeError
from ..store import schema
from ..store.store import Store, open_store, quoted
from .identify import name_and_digest
from .ingest import Outcome, ingest, outcome

# A process that loads costs seconds of CPU before its first row (imports, compiled code), and each
# bundle a scratch store and a copy: below this much to read, one process is the fastest.
BYTES_PER_PROCESS = 100 << 20


def worthwhile_jobs(paths: Sequence[Path]) -> int:
    """How many processes load these bundles fastest: at most one per CPU, and one for little."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    size = sum(file.stat().st_size for file in files if file.is_file())
    return max(1, min(len(paths), len(os.sched_getaffinity(0)), size // BYTES_PER_PROCESS))


@dataclass(frozen=True)
class Options:
    """The arguments that `ingest.ingest` gets for every bundle."""

    replace: bool = False
    salvage: bool = False
    packets: bool = True
    kind: str | None = None


def ingest_many(
    store: Store, paths: Sequence[Path], options: Options, jobs: int
) -> Iterator[Outcome | BbrscopeError]:
    """Load bundles with several processes; yield what became of each, in their order.

    Of one that cannot be loaded, why; it leaves the others alone.

    Args:
        store: opened for writing; the only one that is written to by this process.
        paths: bundles, or what else `ingest` takes.
        options: for all of them.
        jobs: processes, at most one per bundle.

    Raises:
        BbrscopeError: a process was killed; what was loaded before stays.
    """
    known = [row[0] for row in store.con.execute("SELECT bundle_digest FROM runs").fetchall()]
    workers = min(len(paths), jobs)
    # fork would share DuckDB's threads with the children.
    context = multiprocessing.get_context("spawn")
    with _folder(store) as folder:
        pool = ProcessPoolExecutor(workers, mp_context=context)
        try:
            parts = [folder / f"{number}.duckdb" for number in range(len(paths))]
            loading: list[Future[bool]] = [
                pool.submit(_load, part, path, options, known)
                for part, path in zip(parts, paths, strict=True)
            ]
            for path, part, job in zip(paths, parts, loading, strict=True):
                yield _settle(store, part, path, options, job)
                part.unlink(missing_ok=True)
        except BrokenProcessPool as error:
            raise BbrscopeError(
                "a process that loads bundles was killed, perhaps for want of memory",
                "load them one after the other: --jobs 1",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _folder(store: Store) -> Iterator[Path]:
    """Make the folder of the scratch stores, and remove it at the end.

    One that is there was left by a process that was killed: `store` is open, so none is at work.
    """
    shutil.rmtree(store.parts, ignore_errors=True)
    store.parts.mkdir(mode=0o700)
    try:
        yield store.parts
    finally:
        shutil.rmtree(store.parts, ignore_errors=True)


def _settle(
    store: Store, part: Path, path: Path, options: Options, job: Future[bool]
) -> Outcome | BbrscopeError:
    """Wait for a worker and bring what it loaded into the store; or return why there is nothing."""
    try:
        if job.result():
            return _take_over(store, part, path, options.replace)
        return ingest(store, path, **vars(options))
    except BbrscopeError as error:
        return error


def _load(part: Path, path: Path, options: Options, known: list[str]) -> bool:
    """Fill a scratch store, unless the content is in the store already; tell whether it did."""
    if name_and_digest(path, options.kind, options.salvage)[1] in known:
        return False
    with open_store(part) as scratch:
        ingest(scratch, path, **vars(options))
    return True


def _take_over(store: Store, part: Path, path: Path, replace: bool) -> Outcome:
    """Copy the run of a scratch store, under a number of its own."""
    store.con.execute(f"ATTACH {quoted(str(part))} AS part (READ_ONLY)")
    try:
        with store.transaction() as con:
            (run, digest) = con.execute("SELECT run, bundle_digest FROM part.runs").fetchall()[0]
            same = con.execute(
                "SELECT run_id FROM runs WHERE bundle_digest = ?", [digest]
            ).fetchone()
            if same:
                # The same content was given twice.
                return outcome(con, same[0], already=True)
            run_id = store.new_run(run, path, replace)
            for table in schema.TABLES:
                if any(column.name == "run_id" for column in table.columns):
                    con.execute(
                        f'INSERT INTO "{table.name}" BY NAME'
                        f' SELECT * REPLACE ({run_id} AS run_id) FROM part."{table.name}"'
                    )
            return outcome(con, run_id, already=False)
    finally:
        store.con.execute("DETACH part")
