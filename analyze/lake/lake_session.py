"""Open a lake as a store that is only read: the same tables and views over its Parquet files.

The tables are views over the files that the manifest names, in a database in memory. A run's number
is part of its files' paths, so that a condition on it, or a join with the runs of a name, leaves
the files of all other runs unopened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.lake import remote_files
from ...collect.lake.lake_damage import owed_to_files
from ...collect.lake.lake_manifest import lake_columns, manifest_schema, read_rows
from ...collect.lake.lake_place import LakePlace, open_place
from ...collect.store import schema
from ...collect.store.arrow import registered
from ...collect.store.connect import connect_in_memory
from ...collect.store.ending_queries import interruptible
from ...collect.store.query import Row
from ...collect.store.schema import Table
from ...collect.store.schema.recorded_tables import RUNS
from ...collect.store.store import Store, quoted
from ...probes.base.errors import StoreError
from ...probes.base.plurals import plural
from ..replay.decision_codes import keep_codes
from ..views.materialize import materialized_name
from ..views.registry import MACROS, TABLES, VIEWS
from ..views.view import View
from .lake_tables import FILED, FILED_VIEWS, SESSION_TABLES, views_digest

if TYPE_CHECKING:
    import duckdb

# Of so many runs the files are looked at together: two groups of a diagnosis.
RUNS_AT_ONCE = 96
_HIVE = "hive_types = {'day': VARCHAR, 'host': VARCHAR, 'run': VARCHAR, 'run_id': BIGINT}"


class LakeStore(Store):
    """A lake that is read as a store; `place` is where it lies, `rows` is its manifest.

    Its runs are listed by name: a run_id is the beginning of a digest, which is no order to a
    reader.
    """

    listed_by = "run"
    filled_by = "bbrscope lake add DIR BUNDLE"

    def __init__(
        self, path: Path, con: duckdb.DuckDBPyConnection, place: LakePlace, rows: Sequence[Row]
    ) -> None:
        super().__init__(path, con, read_only=True)
        self.place = place
        self.rows = rows
        self._read = rows
        self._open = True

    def restrict_to(self, runs: Sequence[str]) -> None:
        """Leave the files of other runs unopened, whatever a view asks for.

        Views that compare runs then have these alone; `runs` still lists all.
        """
        wanted = {self.run_id(run) for run in runs}
        self._read_only([row for row in self.rows if row["run_id"] in wanted])

    def in_parts(self, runs: Sequence[str]) -> Iterator[Sequence[str]]:
        """As for any store; to choose among the files of all runs takes most of a query's time."""
        before = self._read
        try:
            for first in range(0, len(runs), RUNS_AT_ONCE):
                some = runs[first : first + RUNS_AT_ONCE]
                self.restrict_to(some)
                yield some
        finally:
            if self._open:  # not after what was done with them has failed
                self._read_only(before)

    def _read_only(self, rows: Sequence[Row]) -> None:
        try:
            _read_files(self, rows)
        except Exception as error:
            _tell_of_files(self.place, error)
            raise
        self._read = rows

    def __exit__(self, *failure: object) -> None:
        """Close it; if what failed is owed to a file of the lake, say so.

        Raises:
            StoreError: it is; or as for any store.
        """
        try:
            _tell_of_files(self.place, failure[1])
        except BaseException:
            self.close()
            raise
        super().__exit__(*failure)

    def close(self) -> None:
        """Close the database in memory, and take back what DuckDB was given to read with."""
        self._open = False
        if not self.place.local and remote_files.SCHEME in self.con.list_filesystems():
            self.con.unregister_filesystem(remote_files.SCHEME)
        self.con.close()


def open_lake(path: Path | str, output: Path | None = None) -> LakeStore:
    """Open a lake to read it; queries may write into the folder `output` alone.

    Raises:
        StoreError: there is no lake, its manifest is damaged, or it was made by another version.
    """
    place = open_place(path)
    rows = read_rows(place)
    others = [row for row in rows if row["schema_version"] != schema.SCHEMA_VERSION]
    if others:
        versions = ", ".join(map(str, sorted({row["schema_version"] for row in others})))
        raise StoreError(
            f"{place.shown} holds {plural(len(others), 'run')} with schema version {versions}, such"
            f" as {others[0]['run']}; this bbrscope reads {schema.SCHEMA_VERSION}",
            f"bbrscope lake check {place.shown} names them: remove them and add their bundles"
            " again, or use the bbrscope that made them",
        )
    con = interruptible(connect_in_memory())
    store = LakeStore(Path(str(path)), con, place, rows)
    try:
        _fill(store)
        _seal(con, place, output)
    except BaseException as error:
        store.close()
        _tell_of_files(place, error)
        raise
    return store


def _tell_of_files(place: LakePlace, error: object) -> None:
    """Raise StoreError if an error is owed to a file of the lake."""
    told = owed_to_files(place, error) if isinstance(error, Exception) else None
    if told is not None:
        raise told from None


def _fill(store: LakeStore) -> None:
    """Make tables, views, and then in the tables' place views over the files.

    Were the files there from the beginning, they would be opened anew for every view.
    """
    con, rows = store.con, store.rows
    tables = {table.name: table for table in (*TABLES, *SESSION_TABLES, *FILED)}
    for table in tables.values():
        con.execute(Table(table.name, "", lake_columns(table)).ddl())
    keep_codes(store)
    _load_manifest(con, rows)
    for macro in MACROS:
        con.execute(macro.ddl())
    if all(row["views"] == views_digest() for row in rows):
        store.filed_views = frozenset(view.name for view in FILED_VIEWS)
    for view in VIEWS:
        con.execute(_filed_ddl(view) if view.name in store.filed_views else view.ddl())
    if not store.place.local:
        sizes = dict(pair for row in rows for pair in zip(row["paths"], row["sizes"], strict=True))
        remote_files.register(con, store.place, sizes)
    for table in FILED:
        con.execute(f'DROP TABLE "{table.name}"')
    _read_files(store, rows)


def _read_files(store: LakeStore, rows: Sequence[Row]) -> None:
    """Have the tables that lie in files read those of these rows of the manifest."""
    prefix = f"{store.place.root}/" if store.place.local else f"{remote_files.SCHEME}://"
    files = _files_by_table(rows)
    for table in FILED:
        _view_over(store.con, table, prefix, files.get(table.name, []))


def _view_over(
    con: duckdb.DuckDBPyConnection, table: Table, prefix: str, paths: Sequence[str]
) -> None:
    """Make a table a view over files, of which DuckDB opens the first now, for its columns.

    If that one is damaged, another takes its place: who asks for other runs must get an answer.
    """
    import duckdb

    ddl = f'CREATE OR REPLACE VIEW "{table.name}" AS'
    try:
        con.execute(f"{ddl} {_relation(table, prefix, paths)}")
    except (duckdb.Error, OSError):
        single, merged = (
            [path for path in paths if ("/run_id=" in path) is alone] for alone in (True, False)
        )
        sound = [*_sound_first(con, prefix, single), *_sound_first(con, prefix, merged)]
        con.execute(f"{ddl} {_relation(table, prefix, sound)}")


def _sound_first(
    con: duckdb.DuckDBPyConnection, prefix: str, paths: Sequence[str]
) -> Sequence[str]:
    """Return the paths with the first one in front that DuckDB can open, if there is any."""
    import duckdb

    for place, path in enumerate(paths):
        try:
            con.execute(f"SELECT 1 FROM read_parquet({quoted(prefix + path)}) LIMIT 0")
        except (duckdb.Error, OSError):
            continue
        return [path, *paths[:place], *paths[place + 1 :]]
    return paths


def _load_manifest(con: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    import pyarrow as pa

    keys = manifest_schema().names
    manifest = pa.Table.from_pylist([{k: row[k] for k in keys} for row in rows], manifest_schema())
    with registered(con, "incoming_rows", manifest):
        for table in (RUNS, SESSION_TABLES[0]):
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            con.execute(f'INSERT INTO "{table.name}" BY NAME SELECT {names} FROM incoming_rows')


def _filed_ddl(view: View) -> str:
    """Return a view over materialized rows, with the run's name as this lake has it now."""
    chosen = ", ".join(
        'r."run"' if column.name == "run" else f'k."{column.name}"' for column in view.columns
    )
    table = materialized_name(view)
    return (
        f'CREATE VIEW "{view.name}" AS SELECT {chosen} FROM "{table}" k JOIN runs r USING (run_id)'
    )


def _files_by_table(rows: Sequence[Row]) -> dict[str, list[str]]:
    files: dict[str, dict[str, None]] = {}
    for row in rows:
        for table, path in zip(row["tables"], row["paths"], strict=True):
            files.setdefault(table, {})[path] = None
    return {table: list(paths) for table, paths in files.items()}


def _relation(table: Table, prefix: str, paths: Sequence[str]) -> str:
    """Return the query that reads a table: of files of one run, the path tells the run_id."""
    if not paths:
        nothing = (f'NULL::{column.type} AS "{column.name}"' for column in lake_columns(table))
        return f"SELECT {', '.join(nothing)} WHERE false"
    names = ", ".join(
        f'"{column.name}"::{column.type} AS "{column.name}"' for column in lake_columns(table)
    )
    single = [path for path in paths if "/run_id=" in path]
    merged = [path for path in paths if "/run_id=" not in path]
    parts = []
    for some, how in (
        (single, f"hive_partitioning = true, {_HIVE}"),
        (merged, "hive_partitioning = false"),
    ):
        if some:
            listed = ", ".join(quoted(prefix + path) for path in some)
            parts.append(f"SELECT {names} FROM read_parquet([{listed}], {how})")
    return " UNION ALL ".join(parts)


def _seal(con: duckdb.DuckDBPyConnection, place: LakePlace, output: Path | None) -> None:
    """Let the connection read the lake's files, write to `output`, and nothing else, for good."""
    folders = [f"{place.root}/" if place.local else f"{remote_files.SCHEME}://"]
    if output is not None:
        folders.append(str(output.absolute()))
    con.execute(f"SET allowed_directories = [{', '.join(map(quoted, folders))}]")
    con.execute("SET enable_external_access = false")
