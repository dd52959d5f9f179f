"""Load many bundles at once: threads with a share each, every share in a transaction of its own.

DuckDB takes rows of several transactions at once, and compiled code, decompression and DuckDB
itself leave Python's lock to others: threads share one store, and nothing is copied between them.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Event, Lock

from ...probes.base.closing import Closing
from ...probes.base.errors import BbrscopeError
from ..store.limits import limited
from ..store.query import first_row
from ..store.store import Store
from .identify import name_and_digest
from .ingest import ingest
from .outcome import Outcome
from .together import all_or_each
from .worker_shares import shares, size_of

# A thread that was told to stop between two queries goes on to its next one, and is told again.
TOLD_AGAIN_S = 0.05
CHECKED_AFTER_S = 0.5


def default_jobs(paths: Sequence[Path]) -> int:
    """How many of these bundles to load at once: as many as there are CPUs."""
    return max(1, min(len(paths), len(os.sched_getaffinity(0))))


@dataclass(frozen=True)
class Options:
    """The arguments that `ingest.ingest` gets for every bundle."""

    replace: bool = False
    salvage: bool = False
    packets: bool = True
    kind: str | None = None


def ingest_many(
    store: Store,
    paths: Sequence[Path],
    options: Options,
    jobs: int,
    progress: Callable[[int], None] = lambda done: None,
    check: Callable[[], None] = lambda: None,
) -> Generator[Outcome | BbrscopeError]:
    """Load bundles with several threads; yield what became of each, in their order.

    Of one that cannot be loaded, why; it leaves the others alone. Runs are numbered in the order of
    `paths`, whichever is loaded first. A caller that stops early closes the generator before the
    store: what threads have not committed is undone.

    Args:
        store: opened for writing.
        paths: bundles, or what else `ingest` takes.
        options: for all of them.
        jobs: threads, at most one per bundle.
        progress: called, by one thread at a time, with the bytes done since the last call, of all
            that `size_of` finds.
        check: called every now and then while threads load; what it raises ends them all.
    """
    workers = min(len(paths), jobs)
    claims, loader = _Claims(), _Loader(options, progress)
    last = first_row(store.con, "SELECT coalesce(max(run_id), 0) FROM runs")
    assert last is not None
    numbers = iter(range(last[0] + 1, last[0] + 1 + len(paths)))
    # Threads of DuckDB that wait for work cost a tenth where all CPUs are taken.
    with limited(store.con, threads=1), _Threads(store, loader, workers) as threads:
        coming = (
            threads.submit(
                [_Bundle(path, next(numbers), claims.claim(path, options)) for path in some]
            )
            for some in shares(paths, workers)
        )
        loading = deque(islice(coming, 2 * workers))
        while loading:
            share = loading.popleft()
            while wait([share.job], CHECKED_AFTER_S).not_done:
                check()
            loaded = share.job.result()
            loading.extend(islice(coming, 1))
            for bundle in share.bundles:
                # What has the name or the content of an earlier one waits until that is settled.
                yield loaded[bundle] if bundle.alone else loader.load(store, bundle)


@dataclass(frozen=True)
class _Bundle:
    """What one thread loads; `alone` if no bundle before it has its name or content."""

    path: Path
    run_id: int
    alone: bool


@dataclass(frozen=True)
class _Claims:
    """Names and digests of the bundles so far."""

    _names: set[str] = field(default_factory=set)
    _digests: set[str] = field(default_factory=set)

    def claim(self, path: Path, options: Options) -> bool:
        """Take note of a bundle; tell whether its name and content are new."""
        try:
            run, digest = name_and_digest(path, options.kind, options.salvage)
        except BbrscopeError:
            return True  # loading it will say why
        alone = run not in self._names and digest not in self._digests
        self._names.add(run)
        self._digests.add(digest)
        return alone


@dataclass(frozen=True)
class _Loader:
    """Loads bundles, in any thread, and tells how far that is."""

    options: Options
    progress: Callable[[int], None]
    _lock: Lock = field(default_factory=Lock)

    def load(self, store: Store, bundle: _Bundle) -> Outcome | BbrscopeError:
        """Load a bundle into a store of this thread; say what became of it."""
        told = 0

        def tell(done: int) -> None:
            nonlocal told
            with self._lock:
                self.progress(done - told)
            told = done

        store.next_run_id = bundle.run_id
        try:
            return ingest(store, bundle.path, progress=tell, **vars(self.options))
        except BbrscopeError as error:
            return error
        finally:
            store.next_run_id = None
            tell(size_of(bundle.path))


@dataclass(frozen=True)
class _Share:
    """Bundles that one thread loads in one transaction."""

    bundles: Sequence[_Bundle]
    job: Future[dict[_Bundle, Outcome | BbrscopeError]]


class _Threads(Closing):
    """Threads that load shares; at the end they stop, wherever they are."""

    def __init__(self, store: Store, loader: _Loader, count: int) -> None:
        self._loader = loader
        self._stop = Event()
        self._pool = ThreadPoolExecutor(count)
        self._jobs: set[Future[dict[_Bundle, Outcome | BbrscopeError]]] = set()
        self._store = store
        self._at_work: set[Store] = set()

    def submit(self, bundles: Sequence[_Bundle]) -> _Share:
        """Have a share loaded."""
        job = self._pool.submit(self._load, [bundle for bundle in bundles if bundle.alone])
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)  # wait() never ends for one that is cancelled
        return _Share(bundles, job)

    def close(self) -> None:
        """End all threads; what they have not committed is undone."""
        import duckdb

        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        while wait(set(self._jobs), TOLD_AGAIN_S).not_done:
            for store in set(self._at_work):
                with suppress(duckdb.ConnectionException):  # it has come to its end meanwhile
                    store.con.interrupt()
        self._pool.shutdown()

    def _load(self, bundles: Sequence[_Bundle]) -> dict[_Bundle, Outcome | BbrscopeError]:
        with self._store.beside() as own:
            self._at_work.add(own)
            try:
                loaded = all_or_each(own, bundles, lambda bundle: self._load_one(own, bundle))
            finally:
                self._at_work.discard(own)
        return dict(zip(bundles, loaded, strict=True))

    def _load_one(self, own: Store, bundle: _Bundle) -> Outcome | BbrscopeError:
        if self._stop.is_set():
            raise InterruptedError
        return self._loader.load(own, bundle)
