"""Load many bundles at once: processes read them, and one writer stores what they made of them.

DuckDB lets one process write a file. Reading, pairing and dissecting take as long as writing rows,
so workers do that, each with a share of the bundles: events go into Arrow files as they are read,
all else into a scratch store. The writer then stores a share in one transaction, while workers have
the next ones in hand.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.worker_pool import worker_pool
from ..store import schema
from ..store.arrow import streamed
from ..store.limits import limited
from ..store.schema import recorded_table
from ..store.store import Store, open_store, quoted
from .identify import name_and_digest
from .ingest import LOADED_BY, ingest
from .outcome import Outcome, outcome
from .together import all_or_each
from .worker_shares import shares, size_of

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# A process that loads costs seconds of CPU before its first row (imports, compiled code), and each
# share a scratch store and a copy: below this much to read, one process is the fastest.
BYTES_PER_PROCESS = 50 << 20


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
            coming = (
                _Share(some, part, pool.submit(_load, part, some, options, known))
                for number, some in enumerate(shares(paths, workers))
                for part in [folder / f"{number}.duckdb"]
            )
            # What waits for the writer is on the disk, uncompressed: no more than keeps all busy.
            loading = deque(islice(coming, 2 * workers))
            while loading:
                share = loading.popleft()
                yield from _settle(store, share, options)
                share.clear()
                loading.extend(islice(coming, 1))
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

    def events(self, path: Path) -> Path:
        """Return the file that a bundle's events are in, if it has any."""
        return _events_file(self.part, self.paths.index(path))

    def clear(self) -> None:
        """Delete what the worker made."""
        for path in (self.part, *map(self.events, self.paths)):
            path.unlink(missing_ok=True)


# What a worker says of a bundle: what became of it in the worker's store, why it could not be
# loaded, or nothing: it left the bundle to the writer.
_Loaded = Outcome | BbrscopeError | None


def _events_file(part: Path, index: int) -> Path:
    return part.with_name(f"{part.stem}-{index}.arrow")


def _load(
    part: Path, paths: Sequence[Path], options: Options, known: Collection[str]
) -> list[_Loaded]:
    """Fill a scratch store with bundles, but for those whose content is in the store already.

    Their events are in files beside it; the store has the columns that loading asks for.
    """
    events = recorded_table("events")
    few = tuple(c for c in events.columns if c.name in LOADED_BY or c.name == "run_id")
    names: dict[str, Path] = {}
    with open_store(part) as scratch:
        # The CPUs are shared by processes, here and where shares are taken over: threads that wait
        # for work cost a tenth.
        scratch.con.execute("SET threads = 1")
        scratch.con.execute('DROP TABLE "events"')
        scratch.con.execute(replace(events, columns=few).ddl())
        return all_or_each(
            scratch,
            paths,
            lambda path: _load_one(
                scratch, path, options, known, names, _events_file(part, paths.index(path))
            ),
        )


def _load_one(
    scratch: Store,
    path: Path,
    options: Options,
    known: Collection[str],
    names: dict[str, Path],
    file: Path,
) -> _Loaded:
    try:
        run, digest = name_and_digest(path, options.kind, options.salvage)
        # Which of two of one name stays, if any, depends on the writer's store.
        if digest in known or names.setdefault(run, path) != path:
            return None
        with _ArrowFile(file) as events:
            found = ingest(scratch, path, seen=events.add, columns=LOADED_BY, **vars(options))
        return None if found.already else found
    except BbrscopeError as error:
        return error


class _ArrowFile(ExitStack):
    """A file of record batches, written as they come; there is none before the first."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        import pyarrow as pa

        if self._writer is None:
            file = self.enter_context(self._path.open("wb"))
            self._writer = self.enter_context(pa.ipc.new_stream(file, batch.schema))
        self._writer.write_batch(batch)


def _store_events(con: duckdb.DuckDBPyConnection, files: Mapping[Path, int]) -> None:
    """Bring runs' events into the store, with the numbers that they have there.

    Planning a statement of so many columns takes as long as storing hundreds of rows: runs that
    have the same columns go in together.
    """
    for columns, some in groupby(_batches(files), attrgetter("schema")):
        with streamed(con, "incoming_events", columns, some):
            con.execute("INSERT INTO events BY NAME SELECT * FROM incoming_events")


def _batches(files: Mapping[Path, int]) -> Iterator[pa.RecordBatch]:
    """Yield the events in these files, with the number of their run as the first column."""
    import pyarrow as pa

    for file, run_id in files.items():
        of_run = pa.scalar(run_id, pa.int32())
        with pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield batch.add_column(0, "run_id", pa.repeat(of_run, len(batch)))


def _settle(store: Store, share: _Share, options: Options) -> Iterator[Outcome | BbrscopeError]:
    """Wait for a worker and bring what it loaded into the store; yield what became of each."""
    try:
        said = share.job.result()
        runs = {
            one.run: (path, one)
            for path, one in zip(share.paths, said, strict=True)
            if isinstance(one, Outcome)
        }
        taken = _take_over(store, share, runs, options.replace) if runs else {}
    except BbrscopeError as error:
        yield from (error for _ in share.paths)
        return
    for path, one in zip(share.paths, said, strict=True):
        if one is None:
            yield _loaded_here(store, path, options)
        else:
            yield taken[one.run] if isinstance(one, Outcome) else one


def _loaded_here(store: Store, path: Path, options: Options) -> Outcome | BbrscopeError:
    try:
        return ingest(store, path, **vars(options))
    except BbrscopeError as error:
        return error


def _take_over(
    store: Store, share: _Share, runs: Mapping[str, tuple[Path, Outcome]], replace_old: bool
) -> dict[str, Outcome | BbrscopeError]:
    """Copy the runs of a scratch store, under numbers of their own; return what became of each."""
    store.con.execute(f"ATTACH {quoted(str(share.part))} AS part (READ_ONLY)")
    try:
        with limited(store.con, threads=1), store.transaction() as con:
            numbers: dict[int, int] = {}
            taken: dict[str, Outcome | BbrscopeError] = {}
            events: dict[Path, int] = {}
            for run, old, digest in con.execute(_PART_RUNS).fetchall():
                known = con.execute("SELECT run_id FROM runs WHERE bundle_digest = ?", [digest])
                for (run_id,) in known.fetchall():
                    # The same content was given twice.
                    taken[run] = outcome(con, run_id, already=True)
                if run in taken:
                    continue
                path, loaded = runs[run]
                try:
                    numbers[old] = store.new_run(run, path, replace_old)
                except StoreError as error:
                    taken[run] = error
                else:
                    _copy(con, "runs", {old: numbers[old]})
                    taken[run] = replace(loaded, run_id=numbers[old])
                    if (file := share.events(path)).exists():
                        events[file] = numbers[old]
            _store_events(con, events)
            for table in schema.TABLES:
                of_runs = any(column.name == "run_id" for column in table.columns)
                if of_runs and table.name not in ("runs", "events"):
                    _copy(con, table.name, numbers)
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
