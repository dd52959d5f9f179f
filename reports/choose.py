"""Which runs a command means: names, patterns of names, or a condition in SQL."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..probes.base.errors import BbrscopeError

if TYPE_CHECKING:
    from ..collect.store.store import Store


def by_name(store: Store, patterns: Sequence[str]) -> list[str]:
    """Return the names of the runs that match the patterns, in that order, each once.

    Raises:
        BbrscopeError: no run matches one of them.
    """
    names = store.runs()
    chosen: list[str] = []
    for pattern in patterns:
        matches = [name for name in names if name == pattern] or fnmatch.filter(names, pattern)
        if not matches:
            store.run_id(pattern)  # says what is there
        chosen += [name for name in matches if name not in chosen]
    return chosen


def by_condition(path: Path, condition: str) -> list[str]:
    """Return the names of the runs of which a condition over the columns of `runs` holds.

    The condition is SQL from the command line: it can read the store, and nothing else.

    Raises:
        BbrscopeError: the condition is wrong, or holds of no run.
    """
    import duckdb

    from ..analyze.views.store_with_views import open_store
    from ..collect.store.select_only import select_where
    from .api.queries import query_error

    with open_store(path, read_only=True) as store:
        try:
            names = select_where(store.con, "run", "runs", condition, store.listed_by)
        except duckdb.Error as error:
            raise query_error(error) from error
    if not names:
        raise BbrscopeError(f"no run fits {condition}", "`bbrscope runs` lists them")
    return names
