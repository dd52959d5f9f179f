"""Stores in memory, in which one group of bundles after another is worked on.

Making one, with its views, costs a second; emptying one costs milliseconds. Nothing of it is
written to a disk, except what does not fit into `MEMORY`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.ingest.ingest import LOADED_BY
from ...collect.store import schema
from ...collect.store.connect import connect_in_memory
from ...collect.store.limits import ALL_MEMORY
from ...collect.store.schema import recorded_table
from ...collect.store.store import Store, fill, quoted
from ..bbr.codes import CODES
from ..bbr.records import Array
from ..diagnosis.needs import NEEDS
from ..diagnosis.rule import rules
from ..diagnosis.tables import TABLES as PREPARED
from ..replay.decision_codes import keep_codes
from ..views.registry import MACROS, RESULT_TABLES, VIEWS, has_runs
from ..views.view import words_of
from .lake_tables import FILED_VIEW_TABLES, OWN

if TYPE_CHECKING:
    import pyarrow as pa

# What a store may hold in memory for bundles of at most so many bytes each; the rest waits on the
# disk. A larger one may have all the memory that DuckDB takes: not every query can do with less.
MEMORY = "176MB"
BYTES = 4 << 20
# What queries of the replay ask of events, which it reads from elsewhere.
_REPLAYED_BY = frozenset(("exit_ns", "rs_tx_in_flight"))


@cache
def event_columns() -> frozenset[str]:
    """Columns of events that anything but the replay reads: two of five bytes.

    They are those whose names occur in a query. A query that asks for another fails.
    """
    queries = [view.sql for view in VIEWS] + [need.sql for need in NEEDS.values()]
    queries += [*PREPARED.values(), *(rule.sql for rule in rules())]
    words = words_of(" ".join(queries))
    names = {column.name for column in recorded_table("events").columns}
    return frozenset(names & (words | LOADED_BY | _REPLAYED_BY))


# Tables of which a scratch store has not all: nobody asks for the rest once it is in a file.
PARTLY_STORED = ("events", "decisions")


@cache
def _is_asked() -> Array:
    """By their numbers: decisions that rules name, and changes of what queries of decisions name.

    Such a query names what its decisions are about, as `c.about IN ('mode', 'phase')`.
    """
    import numpy as np

    queries = [*(view.sql for view in VIEWS), *PREPARED.values()]
    about = " ".join(query for query in queries if "decisions" in words_of(query))
    named = {name for rule in rules() for name in rule.codes}
    asked = np.zeros(1 + max(one.number for one in CODES.values()), bool)
    for one in CODES.values():
        asked[one.number] = one.name in named or (one.change and f"'{one.about}'" in about)
    return asked


def asked_decisions(decisions: pa.Table) -> pa.Table:
    """Return the rows of a run's decisions that are asked for, one in a hundred, and the first.

    That first one says that there are decisions, see `needs.NEEDS`.
    """
    import numpy as np

    asked = _is_asked()[np.asarray(decisions["code"])]
    asked[:1] = True
    return decisions.filter(asked)


@cache
def _tables() -> tuple[schema.Table, ...]:
    """The tables of a scratch store: as in any store, but for columns of events that nobody reads.

    All columns of a run's events are in a file by then, see `run_files.EventsFile`.
    """
    events = recorded_table("events")
    chosen = event_columns()
    fewer = replace(events, columns=tuple(c for c in events.columns if c.name in chosen))
    tables = (*schema.TABLES, *RESULT_TABLES, *OWN, *FILED_VIEW_TABLES)
    return tuple(fewer if table is events else table for table in tables)


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
        memory = MEMORY if largest <= BYTES else ALL_MEMORY
        store.con.execute(f"SET memory_limit = '{memory}'")
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
        store.con.execute('DROP TABLE "events"')
        store.con.execute(next(table for table in _tables() if table.name == "events").ddl())
        for table in (*RESULT_TABLES, *OWN, *FILED_VIEW_TABLES):
            store.con.execute(table.ddl())
        for macro in MACROS:
            store.con.execute(macro.ddl())
        for view in VIEWS:
            store.con.execute(view.ddl())
        keep_codes(store)
        store.con.execute("SET threads = 1")
        # Memory once taken stays with the store: asking the system for it again, page by page for
        # each query, took a twentieth of the time.
        store.con.execute(f"SET block_allocator_memory = '{MEMORY}'")
        store.con.execute(f"SET allowed_directories = [{quoted(str(output.absolute()))}]")
        store.con.execute("SET enable_external_access = false")
    except BaseException:
        store.close()
        raise
    return store


def _empty(store: Store) -> None:
    """Take all runs out: new tables in place of the old ones give their memory back at once."""
    tables = _tables()
    counts = " UNION ALL ".join(
        f'SELECT {number} WHERE EXISTS (FROM "{table.name}")'
        for number, table in enumerate(tables)
        if has_runs(table)
    )
    for (number,) in store.con.execute(counts).fetchall():
        store.con.execute(f'DROP TABLE "{tables[number].name}"')
        store.con.execute(tables[number].ddl())
