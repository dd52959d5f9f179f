"""Worker processes on this machine, which do not outlive the process that made them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from threading import Thread


def worker_pool(count: int, end_at_ctrl_c: bool = False) -> ProcessPoolExecutor:
    """Return a pool of `count` processes.

    A worker whose maker was killed would wait for work for ever: it ends, whatever it is doing.

    Args:
        count: how many processes at most.
        end_at_ctrl_c: whether Ctrl-C, which reaches every process, ends workers without a word.
    """
    # fork would share the threads of DuckDB and polars with the children.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(count, context, initializer=_begin, initargs=(end_at_ctrl_c,))


def _begin(end_at_ctrl_c: bool) -> None:
    if end_at_ctrl_c:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with_maker, daemon=True).start()


def _end_with_maker() -> None:
    maker = multiprocessing.parent_process()
    assert maker is not None
    maker.join()
    os._exit(1)
