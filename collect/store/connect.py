"""Connections to DuckDB: the settings that all have, whether to a file or in memory."""

from __future__ import annotations

import atexit
import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.scratch import ScratchFolder
from .ending_queries import interruptible
from .file_errors import explained
from .limits import MEMORY

if TYPE_CHECKING:
    import duckdb

# Nothing is fetched at run time, and no variable of Python's becomes a table. What is divided by 0
# is unknown: NULL, neither infinite nor an error of the whole query.
_SETTINGS = {
    "ieee_floating_point_ops": "false",
    "error_on_division_by_zero": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
# What a database's file has behind its first checksum.
_MAGIC, _MAGIC_AT = b"DUCK", 8
# So much may wait in the log until the file is brought up to date, which writes each table's last
# rows anew: with DuckDB's 16 MB, many runs take a tenth more time.
UNCHECKED = "128MB"
# Row groups that fit into fewer stay as they are: each share of bundles ends with one that is not
# full, and to compress its neighbours anew for that took a fifth of loading, and left a larger
# file. What a run written again leaves of itself is dropped with the last row of its row groups.
MERGED_AT_ONCE = 0
# Row groups that wait in memory, each table's, until they are written together. One: with DuckDB's
# five, so much else had to make room on the disk that storing views' rows took a tenth more time.
UNWRITTEN = 1


def is_database(path: Path) -> bool:
    """Tell whether there is a file of DuckDB's, by its beginning; False: it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC) + _MAGIC_AT)[_MAGIC_AT:] == _MAGIC
    except OSError:
        return False


def connect(
    path: Path, read_only: bool, config: Mapping[str, str] | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a connection to the file of a store; it must be there unless it may be written.

    Raises:
        StoreError: it is locked, damaged, or not DuckDB's.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {**_SETTINGS, **(config or {})}
    if read_only:
        # The folder of a store that is only read may not be writable.
        settings["temp_directory"] = spill_folder()
    else:
        settings["checkpoint_threshold"] = UNCHECKED
        settings["max_vacuum_tasks"] = MERGED_AT_ONCE
        settings["write_buffer_row_group_count"] = UNWRITTEN
        settings["memory_limit"] = f"{MEMORY}B"
    try:
        # An absolute path is a file: DuckDB gives names like :memory: or md:x another meaning.
        con = duckdb.connect(str(path.absolute()), read_only=read_only, config=settings)
    except duckdb.Error as error:
        raise explained(path, error) from error
    return _without_progress_bar(interruptible(con) if read_only else con)


def connect_in_memory() -> duckdb.DuckDBPyConnection:
    """Return a connection to an empty database in memory, which loads no extensions."""
    import duckdb

    con = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": spill_folder()})
    return _without_progress_bar(con)


def _without_progress_bar(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Keep DuckDB's bar, drawn on standard output, out of the JSON or CSV that is written there."""
    import duckdb

    # Where another connection of this process has locked the settings of the same file, they stay:
    # two are open only in a notebook or the like, where a bar stands among no JSON or CSV.
    with contextlib.suppress(duckdb.InvalidInputException):
        con.execute("SET enable_progress_bar = false")
    return con


@functools.cache
def spill_folder() -> str:
    """Return where queries of this process may spill: connections to one file must agree on it."""
    scratch = ScratchFolder()
    atexit.register(scratch.close)
    return str(scratch.path / "spill")
