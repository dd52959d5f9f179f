"""Load many bundles at once: each process fills a store of its own, and one writer takes them over.

DuckDB lets one process write a file. Reading, pairing and dissecting take far longer than writing
rows, so workers do that into scratch stores, whose rows are then copied, run by run, each run in
one transaction.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

from . import kept, schema
from .alone import digest_of
from .bundle import open_bundle
from .errors import BbrscopeError
from .ingest import Outcome, ingest, outcome
from .recognise import recognise
from .store import Store, open_store


@dataclass(frozen=True)
class Options:
    """What `ingest.ingest` is told of every bundle."""

    replace: bool = False
    salvage: bool = False
    packets: bool = True
    kind: str | None = None


def ingest_many(
    store: Store, paths: Sequence[Path], options: Options, jobs: int | None = None
) -> Iterator[Outcome | BbrscopeError]:
    """Load bundles with several processes; yield what became of each, in their order.

    Of one that cannot be loaded, why; it leaves the others alone.

    Args:
        store: opened for writing; the only one that is written to by this process.
        paths: bundles, or what else `ingest` takes.
        options: for all of them.
        jobs: processes; None: as many as there are CPUs.

    Raises:
        BbrscopeError: a process was killed; what was loaded before stays.
    """
    known = [row[0] for row in store.con.execute("SELECT bundle_digest FROM runs").fetchall()]
    workers = min(len(paths), jobs or len(os.sched_getaffinity(0)))
    # fork would share DuckDB's threads with the children.
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="bbrscope-ingest-", dir=store.path.parent) as folder:
        pool = ProcessPoolExecutor(workers, mp_context=context)
        try:
            parts = [Path(folder) / f"{number}.duckdb" for number in range(len(paths))]
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
    kind = options.kind or recognise(path)
    if kind == "bundle":
        with open_bundle(path) as bundle:
            digest = bundle.digest
    else:
        digest = digest_of(path) if path.is_file() else ""
    if digest in known:
        return False
    with open_store(part) as scratch:
        ingest(scratch, path, **vars(options))
    return True


def _take_over(store: Store, part: Path, path: Path, replace: bool) -> Outcome:
    """Copy the run of a scratch store, under a number of its own."""
    place = str(part).replace("'", "''")
    store.con.execute(f"ATTACH '{place}' AS part (READ_ONLY)")
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
            for table in (*schema.TABLES, *kept.TABLES):
                if any(column.name == "run_id" for column in table.columns):
                    con.execute(
                        f'INSERT INTO "{table.name}" BY NAME'
                        f' SELECT * REPLACE ({run_id} AS run_id) FROM part."{table.name}"'
                    )
            return outcome(con, run_id, already=False)
    finally:
        store.con.execute("DETACH part")
