"""Write the store's tables and views as Parquet, one folder each, partitioned by run as Hive does.

``DIR/events/run=NAME/data_0.parquet``: DuckDB, Spark and polars read ``DIR/events/**`` as one
table with a column run. Everything is written aside and then renamed, so that a reader finds the
whole data set or none.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from ...probes.base.errors import BbrscopeError
from .registry import TABLES, VIEWS, relation

if TYPE_CHECKING:
    import duckdb

# What describes the store itself is no data of a run.
_OWN = ("meta",)


def exported() -> tuple[list[str], list[str]]:
    """Return the names of tables and of views that can be exported."""
    return [t.name for t in TABLES if t.name not in _OWN], [v.name for v in VIEWS]


def export(
    con: duckdb.DuckDBPyConnection,
    target: Path,
    run_ids: Sequence[int],
    names: Sequence[str],
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, int]:
    """Write tables and views of runs under `target`; return the rows written of each.

    Args:
        con: a store's connection, opened with `partial` of `target` as its output.
        target: a folder that is not there yet, or an earlier export.
        run_ids: whose rows.
        names: of tables and views, see `exported`.
        force: replace what is at `target`.
        progress: called with 1 after each of `names`.

    Raises:
        BbrscopeError: `target` exists, is not what an export wrote, or cannot be written.
    """
    import duckdb

    aside = partial(target)
    counts = {}
    _check_names(con, run_ids)
    try:
        _recover(target)
        _check(target, force)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        for name in names:
            counts[name] = _write(con, aside / name, name, run_ids)
            if progress is not None:
                progress(1)
        (aside / _MARK).touch()
        _put_in_place(target)
    except (OSError, duckdb.IOException) as error:
        raise BbrscopeError(f"cannot write {target}: {error}", "name another folder") from error
    finally:
        # Whole, and the only one: the next export gives it its name.
        if target.exists() or not (aside / _MARK).is_file():
            shutil.rmtree(aside, ignore_errors=True)
    return counts


_MARK = "_SUCCESS"
# Of a file's name, in bytes.
_LONGEST = 255


def partial(target: Path) -> Path:
    """Return the folder in which an export to `target` is written, until it is whole.

    Raises:
        BbrscopeError: `target` does not end in a name, which it could be given at the end.
    """
    if target.name in ("", ".."):
        raise BbrscopeError(f"{target} does not end in a folder's name", "name the folder itself")
    return target.with_name(f".{target.name}.partial")


def _replaced(target: Path) -> Path:
    """Return where an earlier export is until the one that replaces it is in its place."""
    return target.with_name(f".{target.name}.replaced")


def _put_in_place(target: Path) -> None:
    """Give a whole export its name; at every moment one of the two is whole under some name."""
    old = _replaced(target)
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
    partial(target).rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _recover(target: Path) -> None:
    """Finish what an export that was killed between its two renames has begun."""
    if target.exists():
        if (target / _MARK).is_file():
            shutil.rmtree(_replaced(target), ignore_errors=True)
        return
    for whole in (partial(target), _replaced(target)):
        if (whole / _MARK).is_file():
            whole.rename(target)
            return


def _check_names(con: duckdb.DuckDBPyConnection, run_ids: Sequence[int]) -> None:
    """Refuse runs whose names, escaped as Hive does, are too long for a folder."""
    query = "SELECT run FROM runs WHERE list_contains(?, run_id)"
    for (run,) in con.execute(query, [list(run_ids)]).fetchall():
        if len(f"run={quote(run, safe='')}") > _LONGEST:
            raise BbrscopeError(
                f"run {run} has a name too long for a folder when its letters are escaped",
                "ingest it under another name: bbrscope ingest BUNDLE --as NAME",
            )


def _check(target: Path, force: bool) -> None:
    """Refuse to overwrite, and ever to delete what is no export."""
    for outer in target.absolute().parents:
        if (outer / _MARK).is_file():
            raise BbrscopeError(
                f"{target} lies inside the export {outer}", "name a folder outside of it"
            )
    if not target.parent.is_dir():
        raise BbrscopeError(
            f"there is no folder {target.parent}", f"make it: mkdir -p {target.parent}"
        )
    if not target.exists():
        return
    if not force:
        raise BbrscopeError(f"{target} exists", "add --force to replace it, or name another folder")
    if not (target / _MARK).is_file():
        raise BbrscopeError(
            f"{target} exists, and no earlier export made it", "name another folder"
        )


def _write(con: duckdb.DuckDBPyConnection, folder: Path, name: str, run_ids: Sequence[int]) -> int:
    """Write one table or view; return how many rows."""
    item = relation(name)
    if item is None:
        raise BbrscopeError(f"no table or view {name!r}", "`bbrscope schema` lists them")
    columns = [column.name for column in item.columns]
    folder.mkdir()
    chosen = ", ".join(str(int(run_id)) for run_id in run_ids) or "NULL"
    place = str(folder).replace("'", "''")
    if "run_id" not in columns:
        query, options = f'FROM "{name}"', ""
        place += "/data_0.parquet"
    else:
        run = "" if "run" in columns else "r.run, "
        query = (
            f'SELECT {run}x.* FROM "{name}" x JOIN runs r USING (run_id)'
            f" WHERE x.run_id IN ({chosen})"
        )
        options = ", PARTITION_BY (run), WRITE_PARTITION_COLUMNS false"
    how = "FORMAT parquet, COMPRESSION zstd"
    written = con.execute(f"COPY ({query}) TO '{place}' ({how}{options})").fetchall()[0][0]
    if not any(folder.iterdir()):
        # No run has a row: readers want one file that tells the columns.
        con.execute(f"COPY ({query} LIMIT 0) TO '{place}/data_0.parquet' ({how})")
    return int(written)
