"""Refuse a file whose catalog holds what no bbrscope put there.

A store may come from a stranger, and its views and macros run as soon as they are read. They cannot
reach other files (see `store.open_store`); here they are kept from running SQL out of a string and
from taking addresses of memory, too. Its tables must have the columns that every query relies on.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import StoreError
from ...probes.bbr_versions import VERSIONS
from . import schema
from .query import first_row
from .select_only import TABLE_FUNCTIONS

if TYPE_CHECKING:
    import duckdb

_VIEWS = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND NOT temporary"
# Without a call of any function that a macro there could stand before. DuckDB takes 20 ms to list
# its functions, which every command waits for: once.
_FUNCTIONS = """
SELECT DISTINCT function_name, function_type = 'table', internal,
  CASE WHEN internal OR macro_definition IS NULL THEN '' ELSE macro_definition END
FROM duckdb_functions()
"""
# All names of functions are made of these.
_WORD = string.ascii_letters + string.digits + "_"
_TRIGGERS = "SELECT count(*) FROM duckdb_triggers()"
_TABLES = """
SELECT table_name, sql FROM duckdb_tables()
WHERE database_name = current_database() AND schema_name = current_schema()
"""
_COLUMNS = """
SELECT column_name, data_type FROM duckdb_columns()
WHERE database_name = current_database() AND schema_name = current_schema() AND table_name = ?
ORDER BY column_index
"""
_USING = re.compile(r" USING COMPRESSION \w+")
_UNNAMED = "SELECT 1 FROM runs HAVING count(*) > least(count(DISTINCT run_id), count(DISTINCT run))"
_UNKNOWN = "SELECT version FROM runs WHERE NOT list_contains(?::VARCHAR[], version)"
_WAY_OUT = "do not use it: ask for the bundles that it was made of, and ingest those"


def check_catalog(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise if a view, macro or trigger of the file does more than read the store's tables.

    Raises:
        StoreError: it does, or a view has the name of a table of the schema, or a macro that of a
            function of DuckDB's, or a table or a run is none of bbrscope's.
    """
    texts = dict(con.execute(_VIEWS).fetchall())
    tables = {table.name for table in schema.TABLES}
    for name in tables & texts.keys():
        raise foreign(path, f"{name} is a view there, not a table")
    functions = con.execute(_FUNCTIONS).fetchall()
    own = {name.casefold() for name, _, internal, _ in functions if internal}
    macros = [(name, text) for name, _, internal, text in functions if not internal]
    for name, _ in macros:
        if name.casefold() in own:
            raise foreign(path, f"its macro {name!r:.60} stands before DuckDB's own function")
    of_tables = {name for name, is_table, internal, _ in functions if internal and is_table}
    refused = of_tables - TABLE_FUNCTIONS
    for name, text in (*texts.items(), *macros):
        for called in _called(text):
            if called in refused:
                raise foreign(path, f"{name!r:.60} there calls {called}")
    if con.execute(_TRIGGERS).fetchall()[0][0]:
        raise foreign(path, "it holds triggers")
    check_tables(con, path, schema.TABLES)
    if first_row(con, _UNNAMED):
        raise foreign(path, "two runs there have one name, or one has none")
    if unknown := first_row(con, _UNKNOWN, [*VERSIONS]):
        raise foreign(path, f"a run there is of version {unknown[0]!r:.20}")


def _called(text: str) -> Iterator[str]:
    """Yield the words of a text before an opening parenthesis, in lower case.

    Names of functions are among them. DuckDB keeps a view without its comments: a name may be
    quoted, and blanks may follow it.
    """
    *before_each, _ = text.casefold().split("(")
    for before in before_each:
        words = before.rstrip().removesuffix('"')
        yield words[len(words.rstrip(_WORD)) :]


def check_tables(
    con: duckdb.DuckDBPyConnection, path: Path, tables: Iterable[schema.Table]
) -> None:
    """Raise unless the file has these tables, with these columns.

    Raises:
        StoreError: one is missing there, or its columns have other names, types or places, or are
            computed as they are read.
    """
    texts = dict(con.execute(_TABLES).fetchall())
    for table in tables:
        text = _USING.sub("", texts.get(table.name, "")).replace('"', "")
        wanted = [(column.name, column.type) for column in table.columns]
        # DuckDB's own text of a table is there at once; its list of columns binds every view.
        listed = ", ".join(f"{name} {kind}" for name, kind in wanted)
        if text == f"CREATE TABLE {table.name}({listed});":
            continue
        if not text:
            raise foreign(path, f"it has no table {table.name}")
        found = con.execute(_COLUMNS, [table.name]).fetchall()
        if found != wanted or "GENERATED ALWAYS" in text:
            raise foreign(path, f"table {table.name} there has other columns")


def foreign(path: Path, why: str) -> StoreError:
    """Return the error that refuses a store which no bbrscope made as it is."""
    return StoreError(f"{path} is not a store as bbrscope makes them: {why}", _WAY_OUT)
