"""Spread bundles over workers: processes here, or a Dask cluster's; any Executor will do.

A worker that dies takes with it only what it had not filed: its bundles are given to another, one
by one, so that a bundle that kills whoever loads it is found and named. So is one whose loading
fails for a reason that nobody foresaw: that error is told as it was raised.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from ...collect.ingest.worker_shares import even_shares, size_of
from ...probes.base.errors import BbrscopeError, HostError
from ...probes.base.worker_pool import worker_pool
from .load_runs import AddOptions, Filed, file_bundles

if TYPE_CHECKING:
    from distributed import Client

TRIES = 3
# What is worth a process: it costs three seconds before its first bundle (imports, compiled code,
# a store with views), and shares get smaller. A bundle takes as long as so many bytes more than it
# has.
BYTES_PER_PROCESS = 12 << 20
BYTES_PER_BUNDLE = 200 << 10

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    """Something that runs work: `make` starts it anew, after a worker's death, too.

    Attributes:
        count: jobs that it runs at once.
        deaths: errors that say that a worker died; any other one was raised by the work itself.
    """

    make: Callable[[], AbstractContextManager[Executor]]
    count: int
    deaths: tuple[type[Exception], ...] = (BrokenExecutor,)


@dataclass(frozen=True)
class _Job:
    paths: tuple[Path, ...]
    tries: int = 0


def file_all(
    lake: str, paths: Sequence[Path], options: AddOptions, workers: Workers
) -> Iterator[Filed]:
    """File bundles into a lake with several workers; yield what became of each, as it is known.

    Raises:
        BbrscopeError: the lake cannot be written.
    """
    jobs = deque(_Job(share) for share in even_shares(paths, workers.count))
    while jobs:
        with workers.make() as executor:
            yield from _run_until_death(executor, jobs, lake, options, workers)


def _run_until_death(
    executor: Executor, jobs: deque[_Job], lake: str, options: AddOptions, workers: Workers
) -> Iterator[Filed]:
    """Run jobs until none is left, or the executor is broken: what was not done is put back.

    No more jobs than workers are handed out, so that a death can only be that of one of these.
    """
    running: dict[Future[list[Filed]], _Job] = {}
    while jobs or running:
        while jobs and len(running) < workers.count:
            job = jobs.popleft()
            running[executor.submit(file_bundles, lake, job.paths, options)] = job
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        dead = False
        for future in done:
            job = running.pop(future)
            try:
                yield from future.result()
            except BbrscopeError:
                raise
            except Exception as error:
                died = isinstance(error, workers.deaths)
                dead |= died
                yield from _again(job, jobs, error, died)
        if dead and isinstance(executor, ProcessPoolExecutor):
            # Python gives up the whole pool when a process of it dies.
            for job in running.values():
                jobs.append(_Job(job.paths, job.tries))
            return


def _again(job: _Job, jobs: deque[_Job], error: Exception, died: bool) -> Iterator[Filed]:
    """Put back what was not done, in smaller pieces; give up what cannot be done alone either.

    A death may have been another bundle's doing, or the machine's; an error comes again.
    """
    said = f"{type(error).__name__}: {error}"
    if len(job.paths) > 1:
        jobs.extend(_Job((path,), int(died)) for path in job.paths)
    elif not died:
        fact = f"{job.paths[0]} cannot be filed: {said}"
        way = "this is a fault in bbrscope: report it with these words and the bundle"
        if isinstance(error, MemoryError) or "OutOfMemory" in said:
            way = "load it where there is more memory"
        yield Filed(job.paths[0], refused=BbrscopeError(fact, way))
    elif job.tries + 1 < TRIES:
        jobs.append(_Job(job.paths, job.tries + 1))
    else:
        fact = f"{job.paths[0]}: the process that loads it died {TRIES} times"
        yield Filed(
            job.paths[0], refused=BbrscopeError(fact, f"{said}; load it alone, with more memory")
        )


def worthwhile(paths: Sequence[Path]) -> int:
    """Return how many processes file these bundles fastest.

    One per CPU and per bundle at most, and each with enough to do to make up for its start.
    """
    work = sum(BYTES_PER_BUNDLE + size_of(path) for path in paths)
    most = min(len(paths), len(os.sched_getaffinity(0)))
    return max(1, min(most, work // BYTES_PER_PROCESS))


class _Here(Executor):
    """Does the work at once, in this process."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call a function, and return its result as a future that is done."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def here() -> Workers:
    """Return one worker: this process."""
    return Workers(_Here, 1)


def processes(count: int | None = None) -> Workers:
    """Return worker processes on this machine: by default one per CPU."""
    number = count or len(os.sched_getaffinity(0))

    def make() -> AbstractContextManager[Executor]:
        return worker_pool(number)

    return Workers(make, number)


@contextmanager
def dask_cluster(cluster: str) -> Iterator[Workers]:
    """Yield the workers of a Dask cluster: ``tcp://HOST:PORT`` of its scheduler, or ``local:4``.

    They must see the bundles and the lake under the same names as this process.

    Raises:
        HostError: Dask is not installed, or the scheduler does not answer.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise HostError(
            "--cluster needs Dask", "install it: pip install 'bbrscope[fleet]'"
        ) from None
    try:
        if cluster.startswith("local:"):
            number = int(cluster.removeprefix("local:"))
            # Dask's own warnings say nothing that is not said here: a worker that ends is replaced.
            quiet = logging.ERROR
            with (
                LocalCluster(
                    number, threads_per_worker=1, dashboard_address=None, silence_logs=quiet
                ) as local,
                Client(local) as client,
            ):
                yield _dask_workers(client)
        else:
            with Client(cluster, timeout="10s") as client:
                yield _dask_workers(client)
    except (OSError, ValueError) as error:
        raise HostError(
            f"no Dask cluster at {cluster}: {error}",
            "give the scheduler's address, tcp://HOST:8786, or local:N for N processes here",
        ) from error


def _dask_workers(client: Client) -> Workers:
    from distributed import KilledWorker

    executor = client.get_executor(pure=False, retries=TRIES)

    @contextmanager
    def make() -> Iterator[Executor]:
        yield executor

    return Workers(make, max(1, sum(client.ncores().values())), (KilledWorker, CancelledError))
