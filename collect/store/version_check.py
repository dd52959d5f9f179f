"""Is a DuckDB file a store of bbrscope, and one that this version of it reads?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import StoreError
from . import schema

if TYPE_CHECKING:
    import duckdb

FORMAT = "bbrscope-store"
_VERSION = re.compile("[0-9]{1,9}")


def check_version(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Refuse what is no store, or one of another schema version.

    Raises:
        StoreError: it is.
    """
    import duckdb

    try:
        meta = dict(con.execute("SELECT key, value FROM meta").fetchall())
    except duckdb.Error:
        meta = {}
    other = "name another file with --store"
    if meta.get("format") != FORMAT:
        raise StoreError(f"{path} is a DuckDB file, but not a store of bbrscope", other)
    said, wanted = str(meta.get("schema_version") or "0"), schema.SCHEMA_VERSION
    if not _VERSION.fullmatch(said):
        raise StoreError(f"{path} has schema version {said!r:.30}, which is none", other)
    has = int(said)
    if has > wanted:
        raise StoreError(
            f"{path} has schema version {has}; this bbrscope reads version {wanted}",
            f"it was made by {meta.get('created_by', 'a newer bbrscope')}: upgrade, or {other}",
        )
    if has < wanted:
        raise StoreError(
            f"{path} has the old schema version {has}; this bbrscope reads {wanted}",
            f"ingest the bundles again into a new store, or {other}",
        )
