"""Ctrl-C in a query: DuckDB looks for a signal between its own pieces of work only.

A piece may take for ever, as in a recursion without end. A connection that is told to stop from
another thread stops within such a piece, too. Python itself runs handlers of signals in the main
thread, which waits for DuckDB; but it writes the signal's number into a pipe at once.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

_interruptible: weakref.WeakSet[duckdb.DuckDBPyConnection] = weakref.WeakSet()
_END = 0


def interruptible(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Let Ctrl-C end whatever this connection is asked inside `ctrl_c_ends_queries`."""
    _interruptible.add(con)
    return con


@contextmanager
def ctrl_c_ends_queries() -> Iterator[None]:
    """End queries of `interruptible` connections at SIGINT; in another than the main thread, not.

    The signal's own handler runs as well, as soon as the main thread goes on.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    usual = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    watcher = threading.Thread(target=_watch, args=(source,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(usual)
        os.write(sink, bytes([_END]))
        watcher.join()
        os.close(source)
        os.close(sink)


def _watch(source: int) -> None:
    while (number := os.read(source, 1)[0]) != _END:
        if number == signal.SIGINT:
            for con in tuple(_interruptible):
                con.interrupt()
