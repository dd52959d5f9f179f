"""The DuckDB file that holds the runs: create, open, check, change in one transaction."""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.closing import Closing
from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.no_file import no_file
from ...probes.base.own_version import own_version
from ...probes.base.scratch import ScratchFolder, remove_abandoned
from ..bundle.manifest_values import NAME_HOLDS, RUN_NAME
from . import schema
from .catalog_check import check_catalog
from .connect import connect
from .file_errors import explained, missing
from .free_name import move_to_free_name
from .row_check import check_rows, may_be_of_rows
from .schema.table import CACHE_PREFIX
from .version_check import FORMAT, check_version
from .waiting_rows import WaitingRows

if TYPE_CHECKING:
    import duckdb

DEFAULT_PATH = Path("bbrscope.duckdb")
# DuckDB's oldest file format that writes fast; DuckDB 1.2 and later read it.
NEW_FILE = {"storage_compatibility_version": "v1.2.0"}
# Device and inode: the name of a file may have become another's.
FileId = tuple[int, int]


class Store(Closing):
    """An open store; a context manager that closes it.

    Attributes:
        path: the file.
        con: the DuckDB connection, for reading and for tables that analysis owns.
        read_only: whether it was opened so.
        created: the file's identity on its disk if opening made it, else None.
        filed_views: names of views whose rows it has of every run.
        listed_by: the column of `runs` in whose order runs are listed: run_id is that of ingestion.
        filled_by: the command that loads a run.
        checks: what to look for in the file when a command failed over it.
        waiting: rows that the transaction under way inserts at its end.
        next_run_id: what `new_run` returns; None: the number after the last run's.
    """

    filed_views: frozenset[str] = frozenset()
    listed_by: str = "run_id"
    filled_by: str = "bbrscope ingest BUNDLE"
    checks: tuple[Callable[[duckdb.DuckDBPyConnection, Path], None], ...] = (check_rows,)

    def __init__(
        self,
        path: Path,
        con: duckdb.DuckDBPyConnection,
        read_only: bool,
        created: FileId | None = None,
    ) -> None:
        self.path = path
        self.con = con
        self.read_only = read_only
        self.created = created
        self.waiting = WaitingRows()
        self.next_run_id: int | None = None
        self._joined = self._spoilt = False

    def close(self) -> None:
        """Close the file; whatever is committed stays."""
        self.con.close()

    def __exit__(self, *failure: object) -> None:
        """Close the file; if what failed may be owed to rows or views of others, look for such.

        Raises:
            StoreError: there are some.
        """
        try:
            error = failure[1]
            if isinstance(error, Exception) and may_be_of_rows(error):
                for check in self.checks:
                    check(self.con, self.path)
        finally:
            self.close()

    @contextmanager
    def transaction(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """Commit everything done inside, or nothing at all.

        Raises:
            StoreError: the file cannot be written, for example because the disk is full.
        """
        import duckdb

        if self._joined:
            yield from self._part_of_joined()
            return
        try:
            self.con.begin()
            try:
                yield self.con
                self.insert_waiting()
                self.con.commit()
            except BaseException:
                self._rollback()
                raise
        except duckdb.Error as error:
            raise explained(self.path, error) from error

    def _part_of_joined(self) -> Iterator[duckdb.DuckDBPyConnection]:
        import duckdb

        try:
            yield self.con
        except duckdb.Error as error:
            self._spoilt = True
            raise explained(self.path, error) from error
        except BaseException:
            self._spoilt = True
            raise

    @contextmanager
    def joined(self) -> Iterator[Callable[[], bool]]:
        """Make one transaction of all that begin inside: a commit takes as long for one as for all.

        It yields a function that tells whether one of them failed. Then nothing is committed, and
        nothing else may be done inside: the caller does all of them again, one by one.

        Raises:
            StoreError: they cannot be committed, for example because the disk is full.
        """
        import duckdb

        self.con.begin()
        self._joined, self._spoilt = True, False
        try:
            yield lambda: self._spoilt
            if self._spoilt:
                self._rollback()
            else:
                self.insert_waiting()
                self.con.commit()
        except duckdb.Error as error:
            self._rollback()
            raise explained(self.path, error) from error
        except BaseException:
            self._rollback()
            raise
        finally:
            self._joined = False

    def _rollback(self) -> None:
        """Roll back as far as DuckDB still can: a failed commit has ended the transaction."""
        import duckdb

        self.waiting.forget()
        with suppress(duckdb.Error):
            self.con.rollback()

    def beside(self) -> Store:
        """Return this store over a connection of its own, for another thread to write with."""
        return Store(self.path, self.con.cursor(), read_only=False)

    def insert_waiting(self) -> None:
        """Insert rows that wait for the end of the transaction, because they are asked for now."""
        self.waiting.insert(self.con)

    def runs(self, with_events: bool = False) -> list[str]:
        """Return the names of the runs, or of those with events, in the order of `listed_by`."""
        chosen = f"events > 0 OR NOT {with_events}"
        query = f"SELECT run FROM runs WHERE {chosen} ORDER BY {self.listed_by}"
        return [row[0] for row in self.con.execute(query).fetchall()]

    def run_id(self, name: str) -> int:
        """Return the id of the run called `name`.

        Raises:
            BbrscopeError: no such run; the message lists names that look alike.
        """
        # A result must be read to its end before the connection does anything else.
        rows = self.con.execute("SELECT run_id FROM runs WHERE run = ?", [name]).fetchall()
        if rows:
            return int(rows[0][0])
        names = self.runs()
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if near:
            raise BbrscopeError(
                f"no run called {name!r} in {self.path}", f"near: {', '.join(near)}"
            )
        if names:
            way = f"it holds {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
        else:
            way = f"it holds no run yet; load one with `{self.filled_by}`"
        raise BbrscopeError(f"no run called {name!r} in {self.path}", way)

    def restrict_to(self, runs: Sequence[str]) -> None:
        """Read the rows of these runs alone from now on, if that leaves files unopened.

        Raises:
            BbrscopeError: no such run; the message lists names that look alike.
        """

    def in_parts(self, runs: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield so many of these runs as are best looked at together, with only their rows to read.

        Raises:
            BbrscopeError: no such run; the message lists names that look alike.
        """
        yield runs

    def new_run(self, run: str, shown: object, replace: bool) -> int:
        """Make room for a run that `shown` will fill, and return its run_id; inside `transaction`.

        Raises:
            StoreError: `run` cannot name a run, or names another that is not to be replaced.
        """
        if not RUN_NAME.fullmatch(run):
            raise StoreError(f"{run!r:.60} cannot name a run", f"use {NAME_HOLDS}")
        query = "SELECT max(run_id), max(run_id) FILTER (WHERE run = ?) FROM runs"
        ((last, old),) = self.con.execute(query, [run]).fetchall()
        waiting = self.waiting.of_table("runs")
        old = next((row["run_id"] for row in waiting if row["run"] == run), old)
        last = max(last or 0, *(row["run_id"] for row in waiting), 0)
        if old is not None and not replace:
            raise StoreError(
                f"the store has another run called {run!r}; {shown} was not loaded",
                "add --replace to replace it, or --as NAME to keep both",
            )
        if old is not None:
            self.delete_run(old)
            return self.new_run(run, shown, replace)
        return self.next_run_id or int(last) + 1

    def delete_run(self, run_id: int) -> None:
        """Delete every row of a run, whoever made the table; call it inside `transaction`."""
        self.insert_waiting()
        for name in self._tables_of_runs():
            self.con.execute(f'DELETE FROM "{name}" WHERE run_id = ?', [run_id])

    def drop_cached_rows(self, run_id: int) -> None:
        """Delete what is stored of a run to be read faster, whose recorded rows have changed.

        Call it inside `transaction`.
        """
        for name in self._tables_of_runs():
            if name.startswith(CACHE_PREFIX):
                self.con.execute(f'DELETE FROM "{name}" WHERE run_id = ?', [run_id])

    def _tables_of_runs(self) -> list[str]:
        """Return the names of the file's tables whose rows belong to runs."""
        query = (
            "SELECT table_name FROM duckdb_tables() JOIN duckdb_columns()"
            " USING (database_name, schema_name, table_name)"
            " WHERE column_name = 'run_id' AND database_name = current_database()"
        )
        return [row[0].replace('"', '""') for row in self.con.execute(query).fetchall()]


def open_store(path: Path, read_only: bool = False, output: Path | None = None) -> Store:
    """Open the store at `path`; create it if it is missing and `read_only` is false.

    It has what was recorded. Views and tables of results come with analyze's function of this name.
    The connection is sealed: it reaches no file but the store's own and the folder `output`; no
    network; and it loads no extensions.

    Raises:
        StoreError: missing, locked, not readable or writable, not a store of bbrscope, or made by
            another version of it.
    """
    path = Path(path)
    exists = path.exists()
    if not exists and read_only:
        raise missing(path)
    if path.is_symlink() and not exists:
        path = Path(os.path.realpath(path))  # where no store is yet
    _check_path(path, exists)
    created = None if exists else _create(path)
    store = Store(path, connect(path, read_only), read_only, created)
    try:
        _seal(store, output)
        check_version(store.con, path)
        check_catalog(store.con, path)
    except BaseException:
        store.close()
        raise
    return store


def _seal(store: Store, output: Path | None) -> None:
    """Keep a connection from all files but its own, for good: DuckDB cannot take this back.

    Connections of one process to one file share their settings: the first seals for all.
    """
    query = "SELECT current_setting('enable_external_access')"
    if not store.con.execute(query).fetchall()[0][0]:
        if output is not None:
            raise StoreError(f"{store.path} is open already", "close it first, then export")
        return
    if not store.read_only:
        _clear_abandoned(store)
    allowed = "" if output is None else quoted(str(output.absolute()))
    store.con.execute(f"SET allowed_directories = [{allowed}]")
    store.con.execute("SET enable_external_access = false")


def _clear_abandoned(store: Store) -> None:
    """Remove what a process that was killed while it wrote has left; nobody else has the store."""
    shutil.rmtree(store.path.with_name(f"{store.path.name}.tmp"), ignore_errors=True)
    remove_abandoned(store.path.absolute().parent)


def quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def open_for_loading(path: Path) -> Iterator[Store]:
    """Open or create a store; one that was created and then got no run is removed again."""
    import duckdb

    created = None
    try:
        with open_store(path) as store:
            created = store.created
            yield store
            with suppress(duckdb.ConnectionException):  # who loaded may have closed it
                created = None if store.runs() else created
    finally:
        if created is not None:
            _remove_if_empty(path, created)


def _remove_if_empty(path: Path, created: FileId) -> None:
    """Remove the store that this process created, unless it has a run or another process uses it.

    While it is open here no other process can put a run into it.
    """
    with suppress(StoreError, OSError), open_store(path) as store:
        if _file_id(path) == created and not store.runs():
            store.con.execute("CHECKPOINT")
            Path(os.path.realpath(path)).unlink()


def _file_id(path: Path) -> FileId:
    status = path.stat()
    return status.st_dev, status.st_ino


def _check_path(path: Path, exists: bool) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder, not a store", "name a file: --store FILE")
    if not path.parent.is_dir():
        raise StoreError(f"there is no folder {path.parent}", f"make it: mkdir -p {path.parent}")
    if path.is_symlink() and not exists:
        raise StoreError(f"{path} is a link that leads nowhere", "name another with --store")
    if exists and (why := no_file(path)):
        raise StoreError(why, "name another with --store")
    if exists and path.stat().st_size == 0:
        raise StoreError(f"{path} is empty, not a store", "delete it, or name another with --store")
    if exists and not os.access(path, os.R_OK):
        raise StoreError(f"you may not read {path}", "ask its owner, or name another with --store")


def _create(path: Path) -> FileId | None:
    """Make an empty store, wholly or not at all; None: another process was faster.

    It is made aside: a process that is killed meanwhile leaves no file that is half a store.
    """
    try:
        with ScratchFolder(path.parent) as scratch:
            aside = scratch.path / "new.duckdb"
            with Store(aside, connect(aside, False, NEW_FILE), False) as store:
                fill(store)
            return _file_id(aside) if move_to_free_name(aside, path) else None
    except OSError as error:
        raise explained(path, error) from error


def fill(store: Store) -> None:
    """Make the tables of a new store."""
    with store.transaction() as con:
        for table in schema.TABLES:
            con.execute(table.ddl())
        con.executemany(
            "INSERT INTO meta VALUES (?, ?)",
            [
                ["format", FORMAT],
                ["schema_version", str(schema.SCHEMA_VERSION)],
                ["created_by", f"bbrscope {own_version()}"],
            ],
        )
