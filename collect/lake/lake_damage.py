"""Tell which file of a lake made something fail: it is missing, or not what was written."""

from __future__ import annotations

from ...probes.base.errors import BbrscopeError, StoreError
from ...probes.base.plurals import plural
from .lake_manifest import read_rows
from .lake_place import LakePlace

# Errors of DuckDB's that mean a file, whatever they say. Sizes of a million files are not asked for
# because a query has a slip of the pen.
_OF_FILES = ("IOException", "InvalidInputException", "SerializationException", "HTTPException")


def damaged(place: LakePlace, path: str, run: str, why: str) -> StoreError:
    """Return what to say of a file that cannot be read."""
    return StoreError(
        f"{path} of run {run} in the lake {place.shown} {why}",
        f"bbrscope lake check {place.shown} --read names all such files; remove their runs, and add"
        " the bundles again",
    )


def owed_to_files(place: LakePlace, error: Exception) -> StoreError | None:
    """Return what to say of an error that a file of the lake is to blame for; None: none is.

    Args:
        place: the lake.
        error: raised while its files were read.
    """
    cause = error.__cause__ if isinstance(error, BbrscopeError) else error
    if cause is None or not _of_files(cause):
        return None
    said = " ".join(str(cause).split())
    try:
        rows, sizes = read_rows(place), place.sizes()
    except (OSError, StoreError):
        return None  # what failed before says more
    for row in rows:
        for path, size in zip(row["paths"], row["sizes"], strict=True):
            if path not in sizes:
                return damaged(place, path, row["run"], "is missing")
            if sizes[path] != size:
                why = f"has {plural(sizes[path], 'byte')}, not the {size:,} written"
                return damaged(place, path, row["run"], why)
            if path in said:
                return damaged(place, path, row["run"], f"cannot be read: {said:.300}")
    if "/day=" in said and ".parquet" in said:
        fact = f"{place.shown} was compacted, or runs removed, while it was read"
        return StoreError(fact, "run it again")
    if type(cause).__name__ == "Error":  # what DuckDB's reader of Parquet finds in a file's frame
        way_out = f"bbrscope lake check {place.shown} --read names it, and what to do"
        return StoreError(f"a file of the lake {place.shown} is damaged: {said:.200}", way_out)
    return None


def _of_files(error: BaseException) -> bool:
    """Tell whether DuckDB or pyarrow may mean a file of the lake."""
    module, name = type(error).__module__.split(".")[0].lstrip("_"), type(error).__name__
    if module == "duckdb":
        return name in (*_OF_FILES, "Error") or ".parquet" in str(error)
    return module == "pyarrow" or (isinstance(error, OSError) and ".parquet" in str(error))
