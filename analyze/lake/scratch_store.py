"""Stores in memory, in which one group of bundles after another is worked on.

Making one, with its views, costs a second; emptying one costs milliseconds. Nothing of it is
written to a disk, except what does not fit into `MEMORY`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...collect.store import schema
from ...collect.store.store import Store, connect_in_memory, fill, quoted
from ..replay.decision_codes import keep_codes
from ..views.registry import MACROS, RESULT_TABLES, VIEWS, has_runs
from .lake_tables import FILED_VIEW_TABLES, OWN

# What a store may hold in memory for bundles of at most so many bytes each; the rest waits on the
# disk. A larger one may have all the memory that DuckDB takes: not every query can do with less.
MEMORY = "256MB"
BYTES = 4 << 20
_ALL_MEMORY = "RESET memory_limit"
_TABLES = tuple(table for table in (*schema.TABLES, *RESULT_TABLES, *OWN, *FILED_VIEW_TABLES))
# Stores that nobody uses now, each after the folder that its queries may write to.
_idle: list[tuple[Path, Store]] = []


@contextmanager
def scratch_store(output: Path, largest: int = 0) -> Iterator[Store]:
    """Lend an empty store with this bbrscope's tables and views, and a lake's own tables.

    Its queries may write files into the folder `output` alone, use one CPU, and are no other
    thread's: each borrower has a store of its own. `largest` are the bytes of the largest bundle.
    """
    store = _borrow(output)
    try:
        store.con.execute(f"SET memory_limit = '{MEMORY}'" if largest <= BYTES else _ALL_MEMORY)
        yield store
        _empty(store)
    except BaseException:
        store.close()
        raise
    _idle.append((output, store))


def _borrow(output: Path) -> Store:
    """Take an idle store of this folder, or make one; those of other folders are given up."""
    with suppress(IndexError):
        # Taking one out is one step: threads of a worker may borrow at the same time.
        while True:
            folder, store = _idle.pop()
            if folder == output:
                return store
            store.close()
    return _make(output)


def _make(output: Path) -> Store:
    store = Store(output / "in memory", connect_in_memory(), read_only=False)
    try:
        fill(store)
        for table in (*RESULT_TABLES, *OWN, *FILED_VIEW_TABLES):
            store.con.execute(table.ddl())
        for macro in MACROS:
            store.con.execute(macro.ddl())
        for view in VIEWS:
            store.con.execute(view.ddl())
        keep_codes(store)
        store.con.execute("SET threads = 1")
        store.con.execute(f"SET allowed_directories = [{quoted(str(output.absolute()))}]")
        store.con.execute("SET enable_external_access = false")
    except BaseException:
        store.close()
        raise
    return store


def _empty(store: Store) -> None:
    """Take all runs out: new tables in place of the old ones give their memory back at once."""
    counts = " UNION ALL ".join(
        f'SELECT {number} WHERE EXISTS (FROM "{table.name}")'
        for number, table in enumerate(_TABLES)
        if has_runs(table)
    )
    for (number,) in store.con.execute(counts).fetchall():
        store.con.execute(f'DROP TABLE "{_TABLES[number].name}"')
        store.con.execute(_TABLES[number].ddl())
