"""Load many bundles at once: processes fill stores of their own, and one writer takes them over.

DuckDB lets one process write a file. Reading, pairing and dissecting take far longer than writing
rows, so workers do that into scratch stores, each with a share of the bundles, whose rows are then
copied, a share in one transaction.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.worker_pool import worker_pool
from ..store import schema
from ..store.store import Store, open_store, quoted
from .identify import name_and_digest
from .ingest import Outcome, ingest, outcome
from .worker_shares import shares, size_of

if TYPE_CHECKING:
    import duckdb

# A process that loads costs seconds of CPU before its first row (imports, compiled code), and each
# share a scratch store and a copy: below this much to read, one process is the fastest.
BYTES_PER_PROCESS = 100 << 20


def worthwhile_jobs(paths: Sequence[Path]) -> int:
    """How many processes load these bundles fastest: at most one per CPU, and one for little."""
    size = sum(map(size_of, paths))
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
    with _folder(store) as folder:
        # Ctrl-C reaches every process: this one tells of it and clears up, the others just end.
        pool = worker_pool(workers, end_at_ctrl_c=True)
        try:
            loading = [
                _Share(some, part, pool.submit(_load, part, some, options, known))
                for number, some in enumerate(shares(paths, workers))
                for part in [folder / f"{number}.duckdb"]
            ]
            for share in loading:
                yield from _settle(store, share, options)
                share.part.unlink(missing_ok=True)
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


@dataclass(frozen=True)
class _Share:
    """Bundles that one worker loads into the scratch store `part`."""

    paths: tuple[Path, ...]
    part: Path
    job: Future[list[_Loaded]]


# What a worker says of a bundle: the name of the run that it filled, why it could not, or nothing:
# it left the bundle to the writer.
_Loaded = str | BbrscopeError | None


def _load(
    part: Path, paths: Sequence[Path], options: Options, known: Collection[str]
) -> list[_Loaded]:
    """Fill a scratch store with bundles, but for those whose content is in the store already."""
    with open_store(part) as scratch:
        names: set[str] = set()
        return [_load_one(scratch, path, options, known, names) for path in paths]


def _load_one(
    scratch: Store, path: Path, options: Options, known: Collection[str], names: set[str]
) -> _Loaded:
    try:
        run, digest = name_and_digest(path, options.kind, options.salvage)
        # Which of two of one name stays, if any, depends on the writer's store.
        if digest in known or run in names:
            return None
        names.add(run)
        found = ingest(scratch, path, **vars(options))
        return None if found.already else found.run
    except BbrscopeError as error:
        return error


def _settle(store: Store, share: _Share, options: Options) -> Iterator[Outcome | BbrscopeError]:
    """Wait for a worker and bring what it loaded into the store; yield what became of each."""
    try:
        said = share.job.result()
        runs = {
            run: path for run, path in zip(said, share.paths, strict=True) if isinstance(run, str)
        }
        taken = _take_over(store, share.part, runs, options.replace) if runs else {}
    except BbrscopeError as error:
        yield from (error for _ in share.paths)
        return
    for path, one in zip(share.paths, said, strict=True):
        if one is None:
            yield _loaded_here(store, path, options)
        else:
            yield taken[one] if isinstance(one, str) else one


def _loaded_here(store: Store, path: Path, options: Options) -> Outcome | BbrscopeError:
    try:
        return ingest(store, path, **vars(options))
    except BbrscopeError as error:
        return error


def _take_over(
    store: Store, part: Path, runs: Mapping[str, Path], replace: bool
) -> dict[str, Outcome | BbrscopeError]:
    """Copy the runs of a scratch store, under numbers of their own; return what became of each."""
    store.con.execute(f"ATTACH {quoted(str(part))} AS part (READ_ONLY)")
    try:
        with store.transaction() as con:
            numbers: dict[int, int] = {}
            taken: dict[str, Outcome | BbrscopeError] = {}
            same: dict[str, int] = {}
            for run, old, digest in con.execute(_PART_RUNS).fetchall():
                known = con.execute("SELECT run_id FROM runs WHERE bundle_digest = ?", [digest])
                for (run_id,) in known.fetchall():
                    # The same content was given twice.
                    same[run] = run_id
                if run in same:
                    continue
                try:
                    numbers[old] = same[run] = store.new_run(run, runs[run], replace)
                except StoreError as error:
                    taken[run] = error
                else:
                    _copy(con, "runs", {old: numbers[old]})
            for table in schema.TABLES:
                of_runs = any(column.name == "run_id" for column in table.columns)
                if of_runs and table.name != "runs":
                    _copy(con, table.name, numbers)
            for run, run_id in same.items():
                taken[run] = outcome(con, run_id, already=run_id not in numbers.values())
            return taken
    finally:
        store.con.execute("DETACH part")


_PART_RUNS = "SELECT run, run_id, bundle_digest FROM part.runs ORDER BY run_id"


def _copy(con: duckdb.DuckDBPyConnection, table: str, numbers: Mapping[int, int]) -> None:
    """Copy the rows of runs of a scratch store, whose numbers there are the keys."""
    if numbers:
        cases = " ".join(f"WHEN {old} THEN {new}" for old, new in numbers.items())
        con.execute(
            f'INSERT INTO "{table}" BY NAME SELECT * REPLACE ((CASE run_id {cases} END) AS run_id)'
            f' FROM part."{table}" WHERE run_id IN ({", ".join(map(str, numbers))})'
        )
