"""What DuckDB says of a file that it cannot use, as fact, cause and way out."""

from __future__ import annotations

from pathlib import Path

from ...probes.base.errors import StoreError

# What DuckDB says, in lower case, when a block of a file is not what was written into it.
_DAMAGE = ("corrupt", "checksum", "database has been invalidated", "failed to load metadata")
_FULL = ("no space left", "not enough space", "disk full")


def is_of_file(error: Exception) -> bool:
    """Tell whether an error of DuckDB's, in whatever query, is the file's or the disk's."""
    return type(error).__module__.endswith("duckdb") and _says(error, *_DAMAGE, *_FULL)


def _says(error: Exception, *words: str) -> bool:
    text = str(error).lower()
    return any(word in text for word in words)


def missing(path: Path) -> StoreError:
    """Return the error that says that there is no store at `path`."""
    return StoreError(f"there is no store at {path}", "make one with `bbrscope ingest BUNDLE`")


def explained(path: Path | str, error: Exception) -> StoreError:
    """Turn DuckDB's message about a file into fact, cause and way out."""
    text = " ".join(str(error).split())
    lower = text.lower()
    if "lock on file" in lower:
        holder = text.partition("held in ")[2].partition(" by ")[0].strip(" .")
        return StoreError(
            f"{path} is in use by another process" + (f": {holder}" if holder else ""),
            "wait until it has ended, or name another store with --store",
        )
    if _says(error, *_FULL):
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
    if _says(error, *_DAMAGE):
        return StoreError(
            f"{path} is damaged: {text[:300]}",
            "take a copy of it that is whole, or ingest the bundles again into a new store",
        )
    return StoreError(f"DuckDB on {path}: {text}", "")
