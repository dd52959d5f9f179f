"""The DuckDB file that holds the runs: create, open, check, change in one transaction."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from . import kept, schema
from .bundle import RUN_NAME
from .closing import Closing
from .errors import BbrscopeError, StoreError

if TYPE_CHECKING:
    import duckdb

FORMAT = "bbrscope-store"
DEFAULT_PATH = Path("bbrscope.duckdb")
# DuckDB's oldest file format that writes fast; DuckDB 1.2 and later read it.
NEW_FILE = {"storage_compatibility_version": "v1.2.0"}


class Store(Closing):
    """An open store; a context manager that closes it.

    Attributes:
        path: the file.
        con: the DuckDB connection, for reading and for tables that analysis owns.
        read_only: whether it was opened so.
    """

    def __init__(self, path: Path, con: duckdb.DuckDBPyConnection, read_only: bool) -> None:
        self.path = path
        self.con = con
        self.read_only = read_only

    def close(self) -> None:
        """Close the file; whatever is committed stays."""
        self.con.close()

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Commit everything done inside, or nothing at all.

        Raises:
            StoreError: the file cannot be written, for example because the disk is full.
        """
        import duckdb

        try:
            self.con.begin()
            try:
                yield self.con
                self.con.commit()
            except BaseException:
                self._rollback()
                raise
        except duckdb.Error as error:
            raise _explain(self.path, error) from error

    def _rollback(self) -> None:
        """Roll back as far as DuckDB still can: a failed commit has ended the transaction."""
        import duckdb

        with suppress(duckdb.Error):
            self.con.rollback()

    def seal(self) -> None:
        """Keep the connection from files, the network and its own settings, for good.

        What is left to a query is to read this store.
        """
        for statement in (
            "SET autoinstall_known_extensions = false",
            "SET autoload_known_extensions = false",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self.con.execute(statement)

    def runs(self, with_events: bool = False) -> list[str]:
        """Return the names of the runs, or of those with events, in the order of ingestion."""
        query = f"SELECT run FROM runs WHERE events > 0 OR NOT {with_events} ORDER BY run_id"
        return [row[0] for row in self.con.execute(query).fetchall()]

    def run_id(self, name: str) -> int:
        """Return the id of the run called `name`.

        Raises:
            BbrscopeError: no such run; the message lists names that look alike.
        """
        # A result must be read to its end before the connection does anything else.
        found = self.con.execute("SELECT run_id FROM runs WHERE run = ?", [name]).fetchall()
        if found:
            return int(found[0][0])
        names = self.runs()
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            raise BbrscopeError(
                f"no run called {name!r} in {self.path}", f"near: {', '.join(near)}"
            )
        if names:
            way = f"it holds {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
        else:
            way = "it holds no run yet; load one with `bbrscope ingest BUNDLE`"
        raise BbrscopeError(f"no run called {name!r} in {self.path}", way)

    def new_run(self, run: str, shown: object, replace: bool) -> int:
        """Make room for a run that `shown` will fill, and return its run_id; inside `transaction`.

        Raises:
            StoreError: `run` cannot name a run, or names another that is not to be replaced.
        """
        if not RUN_NAME.fullmatch(run):
            raise StoreError(
                f"{run!r:.60} cannot name a run", "use 1 to 100 letters, digits or ._+@=-"
            )
        old = self.con.execute("SELECT run_id FROM runs WHERE run = ?", [run]).fetchone()
        if old and not replace:
            raise StoreError(
                f"the store has another run called {run!r}; {shown} was not loaded",
                "add --replace to replace it, or --as NAME to keep both",
            )
        if old:
            self.delete_run(old[0])
        last = self.con.execute("SELECT coalesce(max(run_id), 0) FROM runs").fetchall()
        return int(last[0][0]) + 1

    def delete_run(self, run_id: int) -> None:
        """Delete every row of a run; call it inside `transaction`."""
        kept.forget(self.con, [run_id])
        for table in schema.TABLES:
            if any(column.name == "run_id" for column in table.columns):
                self.con.execute(f'DELETE FROM "{table.name}" WHERE run_id = ?', [run_id])


def open_store(path: Path, read_only: bool = False) -> Store:
    """Open the store at `path`; create it if it is missing and `read_only` is false.

    Raises:
        StoreError: missing, locked, not readable or writable, not a store of bbrscope, or made by
            another version of it.
    """

    path = Path(path)
    exists = path.exists()
    if not exists and read_only:
        raise StoreError(f"there is no store at {path}", "make one with `bbrscope ingest BUNDLE`")
    _check_path(path, exists)
    if not exists:
        _create(path)
    store = Store(path, _connect(path, read_only), read_only)
    try:
        _check_version(store)
        _refresh_views(store)
    except BaseException:
        store.close()
        raise
    return store


def _connect(
    path: Path, read_only: bool, config: Mapping[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    import duckdb

    try:
        # An absolute path is a file: DuckDB gives names like :memory: or md:x another meaning.
        return duckdb.connect(str(path.absolute()), read_only=read_only, config=dict(config or {}))
    except duckdb.Error as error:
        raise _explain(path, error) from error


@contextmanager
def open_for_loading(path: Path) -> Iterator[Store]:
    """Open or create a store; one that was created and then got no run is removed again."""
    created = not path.exists()
    try:
        with open_store(path) as store:
            yield store
    finally:
        if created and path.exists() and _is_empty(path):
            path.unlink()
            path.with_name(path.name + ".wal").unlink(missing_ok=True)


def _is_empty(path: Path) -> bool:
    """Tell whether a store has no run; one that cannot be read is not known to be empty."""
    try:
        with open_store(path, read_only=True) as store:
            return not store.runs()
    except StoreError:
        return False


def _check_path(path: Path, exists: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a store", "name a file: --store FILE")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}", f"make it: mkdir -p {path.parent}")
    if exists and path.stat().st_size == 0:
        raise StoreError(f"{path} is empty, not a store", "delete it, or name another with --store")
    if exists and not os.access(path, os.R_OK):
        raise StoreError(f"you may not read {path}", "ask its owner, or name another with --store")


def _create(path: Path) -> None:
    """Make an empty store, or leave nothing behind."""
    try:
        with Store(path, _connect(path, False, NEW_FILE), False) as store:
            _fill(store)
    except BaseException:
        # A disk that cannot be written to refuses this, too.
        with suppress(OSError):
            path.unlink()
        raise


def _fill(store: Store) -> None:
    """Make the tables and views of a new store."""
    with store.transaction() as con:
        for table in (*schema.TABLES, *kept.TABLES):
            con.execute(table.ddl())
        for view in schema.VIEWS:
            con.execute(kept.ddl(view))
        con.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [
                ["format", FORMAT],
                ["schema_version", str(schema.SCHEMA_VERSION)],
                ["created_by", f"bbrscope {version('bbrscope')}"],
                ["views", _views_digest()],
            ],
        )


def _check_version(store: Store) -> None:
    import duckdb

    try:
        meta = dict(store.con.execute("SELECT key, value FROM meta").fetchall())
    except duckdb.Error:
        meta = {}
    other = "name another file with --store"
    if meta.get("format") != FORMAT:
        raise StoreError(f"{store.path} is a DuckDB file, but not a store of bbrscope", other)
    found, wanted = int(meta.get("schema_version", "0")), schema.SCHEMA_VERSION
    if found > wanted:
        raise StoreError(
            f"{store.path} has schema version {found}; this bbrscope reads version {wanted}",
            f"it was made by {meta.get('created_by', 'a newer bbrscope')}: upgrade, or {other}",
        )
    if found < wanted:
        raise StoreError(
            f"{store.path} has the old schema version {found}; this bbrscope reads {wanted}",
            f"ingest the bundles again into a new store, or {other}",
        )


def _views_digest() -> str:
    """Digest of the definitions: a store made by another bbrscope may have others, or fewer."""
    tables = (*schema.TABLES, *kept.TABLES)
    ddl = [table.ddl() for table in tables] + [kept.ddl(view) for view in schema.VIEWS]
    return hashlib.sha256("\n".join(ddl).encode()).hexdigest()


def _refresh_views(store: Store) -> None:
    """Bring the views up to this bbrscope's definitions, and drop the rows kept under others.

    A store that is only read gets temporary ones, which come before those in the file. Tables that
    came with a newer bbrscope begin empty.
    """
    digest = _views_digest()
    held = store.con.execute("SELECT value FROM meta WHERE key = 'views'").fetchall()
    if held == [(digest,)]:
        return
    present = {
        row[0] for row in store.con.execute("SELECT table_name FROM duckdb_tables").fetchall()
    }
    missing = [table for table in schema.TABLES if table.name not in present]
    if store.read_only:
        for table in missing:
            store.con.execute(table.ddl(temporary=True))
        for view in schema.VIEWS:
            store.con.execute(view.ddl(temporary=True))
        return
    with store.transaction() as con:
        for name in present:
            if name.startswith("kept_"):
                con.execute(f'DROP TABLE "{name}"')
        for table in (*missing, *kept.TABLES):
            con.execute(table.ddl())
        for view in schema.VIEWS:
            con.execute(kept.ddl(view))
        con.execute("DELETE FROM meta WHERE key = 'views'")
        con.execute("INSERT INTO meta VALUES ('views', ?)", [digest])


def _explain(path: Path, error: Exception) -> StoreError:
    """Turn DuckDB's message about a file into fact, cause and way out."""
    text = " ".join(str(error).split())
    lower = text.lower()
    if "lock on file" in lower:
        holder = text.partition("held in ")[2].partition(" by ")[0].strip(" .")
        return StoreError(
            f"{path} is in use by another process" + (f": {holder}" if holder else ""),
            "wait until it has ended, or name another store with --store",
        )
    if "no space left" in lower or "not enough space" in lower or "disk full" in lower:
        return StoreError(
            f"the disk that holds {path} is full; nothing was added",
            "free some space, or put the store elsewhere with --store",
        )
    if "permission denied" in lower or "read-only" in lower:
        return StoreError(
            f"{path} cannot be written: {text}", "make it writable, or name another with --store"
        )
    if "not a valid duckdb" in lower or "serializ" in lower or "storage version" in lower:
        return StoreError(
            f"{path} is not a DuckDB file that this bbrscope can read: {text}",
            "name another file with --store",
        )
    return StoreError(f"DuckDB on {path}: {text}", "")
