"""Refuse a file whose catalog holds what no bbrscope put there.

A store may come from a stranger, and its views and macros run as soon as they are read. They cannot
reach other files (see `store.open_store`); here they are kept from running SQL out of a string and
from taking addresses of memory, too.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import StoreError
from . import schema
from .select_only import TABLE_FUNCTIONS

if TYPE_CHECKING:
    import duckdb

_VIEWS = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND NOT temporary"
_FUNCTIONS = """
SELECT function_name, function_type, internal, coalesce(macro_definition, '')
FROM duckdb_functions() WHERE function_type = 'table' OR NOT internal
"""
# All names of functions are such words.
_CALLED = re.compile(r'\b(\w+)"?\s*\(')
_TRIGGERS = "SELECT count(*) FROM duckdb_triggers()"
_WAY_OUT = "do not use it: ask for the bundles that it was made of, and ingest those"


def check_catalog(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise if a view, macro or trigger of the file does more than read the store's tables.

    Raises:
        StoreError: it does, or a view has the name of a table of the schema.
    """
    texts = dict(con.execute(_VIEWS).fetchall())
    tables = {table.name for table in schema.TABLES}
    for name in tables & texts.keys():
        raise _foreign(path, f"{name} is a view there, not a table")
    functions = con.execute(_FUNCTIONS).fetchall()
    refused = {name for name, _, internal, _ in functions if internal} - TABLE_FUNCTIONS
    texts |= {name: text for name, _, internal, text in functions if not internal}
    for name, text in texts.items():
        for called in _CALLED.findall(text):
            if called.casefold() in refused:
                raise _foreign(path, f"{name!r:.60} there calls {called}")
    if con.execute(_TRIGGERS).fetchall()[0][0]:
        raise _foreign(path, "it holds triggers")


def _foreign(path: Path, why: str) -> StoreError:
    return StoreError(f"{path} is not a store as bbrscope makes them: {why}", _WAY_OUT)
