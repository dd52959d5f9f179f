"""Which runs a command means: names, patterns of names, or a condition in SQL."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..collect.errors import BbrscopeError

if TYPE_CHECKING:
    from ..collect.store import Store


def by_name(store: Store, patterns: Sequence[str]) -> list[str]:
    """Return the runs that the patterns name, in that order, each once.

    Raises:
        BbrscopeError: a pattern names none.
    """
    names = store.runs()
    chosen: list[str] = []
    for pattern in patterns:
        found = [name for name in names if name == pattern] or fnmatch.filter(names, pattern)
        if not found:
            store.run_id(pattern)  # says what is there
        chosen += [name for name in found if name not in chosen]
    return chosen


def by_condition(path: Path, condition: str) -> list[str]:
    """Return the runs of which a condition over the columns of `runs` holds.

    The condition is SQL from the command line: it can read the store, and nothing else.

    Raises:
        BbrscopeError: the condition is wrong, or holds of no run.
    """
    import duckdb

    from ..collect.store import open_store
    from .commands.sql import explain

    with open_store(path, read_only=True) as store:
        store.seal()
        try:
            query = f"SELECT run FROM runs WHERE ({condition}\n) ORDER BY run_id"
            found = store.con.execute(query).fetchall()
        except duckdb.Error as error:
            raise explain(error) from error
    if not found:
        raise BbrscopeError(f"no run fits {condition}", "`bbrscope runs` lists them")
    return [str(row[0]) for row in found]
