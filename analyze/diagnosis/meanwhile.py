"""Diagnose a run while something else is asked of its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from .engine import Diagnosis, diagnose, has_own_views

if TYPE_CHECKING:
    import duckdb

_MOMENT_S = 0.05


@contextmanager
def diagnosed_meanwhile(
    con: duckdb.DuckDBPyConnection, run_id: int
) -> Iterator[Callable[[], Diagnosis]]:
    """Begin to diagnose a run; yield what waits for the diagnosis and returns it.

    A connection answers one query at a time: the rules are asked over another one to the same
    store. Where that lacks views which `con` has, they are asked over `con`, when they are waited
    for.
    """
    if has_own_views(con):
        yield partial(diagnose, con, run_id)
        return
    with con.cursor() as cursor, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(diagnose, cursor, run_id)
        try:
            yield answer.result
        finally:
            # Whoever failed, or was told to stop, is not kept waiting. Between two queries there is
            # nothing to interrupt: the next one is.
            while not answer.done():
                cursor.interrupt()
                wait([answer], _MOMENT_S)
