"""Open a store with everything that is concluded in it: tables of results, and views.

What collect makes has the recorded tables only. The rest is installed when a store is opened here,
and stays in its file, so that any DuckDB shell has the views as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path

from ...collect.lake.lake_place import is_lake
from ...collect.store import store as recorded
from ...collect.store.catalog_check import check_tables
from ...collect.store.file_errors import missing
from ...collect.store.schema.table import CACHE_PREFIX
from ...collect.store.store import Store
from ...probes.base.errors import StoreError
from . import materialize
from .registry import MACROS, RESULT_TABLES, VIEWS
from .view_check import check_views

# What such tables were called by bbrscope 0.1.0.
_OLD_CACHE_PREFIX = "kept_"


def open_store(path: Path, read_only: bool = False, output: Path | None = None) -> Store:
    """Open the store at `path` with this bbrscope's views; create it if missing and writable.

    A lake opens as a store that is only read.

    Queries may write files into the folder `output` alone.

    Raises:
        StoreError: missing, locked, not readable or writable, not a store of bbrscope, or made by
            another version of it.
    """
    if is_lake(path):
        if not read_only:
            raise StoreError(
                f"{path} is a lake, which this command cannot write to",
                "use `bbrscope lake add` and `lake remove`, or name a file: --store FILE",
            )
        from ..lake.lake_session import open_lake

        return open_lake(path, output)
    store = recorded.open_store(path, read_only, output)
    try:
        install(store)
    except BaseException:
        store.close()
        raise
    return store


def open_to_change(path: Path) -> Store:
    """Open a store that must be there, as `open_store`: a wrong name makes no file.

    Raises:
        StoreError: as `open_store`.
    """
    if not is_lake(path) and not path.exists():
        raise missing(path)
    return open_store(path)


@contextmanager
def open_for_loading(path: Path, views_at_end: bool = False) -> Iterator[Store]:
    """Open or create a store; one that was created and then got no run is removed again.

    Runs that had materialized rows, and got more data, have them stored anew at the end.

    Args:
        path: the store's file.
        views_at_end: a store that is created has views and tables of results at the end, not
            before: making them, which takes as long as loading ten bundles, goes on meanwhile.

    Raises:
        StoreError: it is a lake, or as `open_store`.
    """
    if is_lake(path):
        raise StoreError(
            f"{path} is a lake, not a store's file", "fill it with `bbrscope lake add`"
        )
    with recorded.open_for_loading(path) as store:
        if views_at_end and store.created is not None:
            with _installing(store):
                yield store
            return
        install(store)
        had_rows = materialize.runs_with_rows(store.con)
        yield store
        # Without stored rows the views say the same, only later: no reason to fail.
        with suppress(StoreError):
            materialize.materialize_replayed(store, had_rows)


@contextmanager
def _installing(store: Store) -> Iterator[None]:
    """Install over a connection of its own, in a thread of its own, until the end at the latest."""
    with ThreadPoolExecutor(1) as pool, store.beside() as own:
        installed = pool.submit(install, own)
        try:
            yield
        finally:
            wait([installed])
        installed.result()


def install(store: Store) -> None:
    """Bring tables of results and views up to this bbrscope's, and drop rows of older views.

    A store that is only read gets temporary ones, which come before those in the file. Tables that
    came with a newer bbrscope begin empty.
    """
    digest = _digest()
    installed = store.con.execute("SELECT value FROM meta WHERE key = 'views'").fetchall()
    if installed == [(digest,)]:
        check_tables(store.con, store.path, (*RESULT_TABLES, *materialize.TABLES))
        store.checks = (*store.checks, check_views)
        return
    present = {
        row[0] for row in store.con.execute("SELECT table_name FROM duckdb_tables()").fetchall()
    }
    missing = [table for table in RESULT_TABLES if table.name not in present]
    if store.read_only:
        for table in missing:
            store.con.execute(table.ddl(temporary=True))
        for macro in MACROS:
            store.con.execute(macro.ddl(temporary=True))
        for view in VIEWS:
            store.con.execute(view.ddl(temporary=True))
        return
    with store.transaction() as con:
        for name in present:
            if name.startswith((CACHE_PREFIX, _OLD_CACHE_PREFIX)):
                con.execute(f'DROP TABLE "{name}"')
        for table in (*missing, *materialize.TABLES):
            con.execute(table.ddl())
        for macro in MACROS:
            con.execute(macro.ddl())
        for view in VIEWS:
            for statement in materialize.ddl(view):
                con.execute(statement)
        con.execute("DELETE FROM meta WHERE key = 'views'")
        con.execute("INSERT INTO meta VALUES ('views', ?)", [digest])


def _digest() -> str:
    """Digest of the definitions: a store made by another bbrscope may have others, or fewer."""
    ddl = [table.ddl() for table in (*RESULT_TABLES, *materialize.TABLES)]
    ddl += [macro.ddl() for macro in MACROS]
    ddl += [statement for view in VIEWS for statement in materialize.ddl(view)]
    return hashlib.sha256("\n".join(ddl).encode()).hexdigest()
