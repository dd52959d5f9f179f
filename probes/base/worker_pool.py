"""Worker processes on this machine, which do not outlive the process that made them."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from threading import Thread


def worker_pool(count: int) -> ProcessPoolExecutor:
    """Return a pool of at most `count` processes.

    A worker whose maker was killed would wait for work for ever: it ends, whatever it is doing.
    """
    # fork would share the threads of DuckDB and polars with the children.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, context, initializer=_begin)


def _begin() -> None:
    Thread(target=_end_with_maker, daemon=True).start()


def _end_with_maker() -> None:
    maker = multiprocessing.parent_process()
    assert maker is not None
    maker.join()
    os._exit(1)
