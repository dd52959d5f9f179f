"""Run SQL that a user typed or a file brought: one SELECT, and nothing else.

DuckDB lets a connection without access to files still write to the files of its own database, and
since 2.0 a ``WITH`` clause may hold COPY, INSERT, UPDATE or DELETE: a statement's type alone does
not say that it only reads. So the parsed statement is searched here: every part of it must be a
query, and every table function one that reads the database only.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import BbrscopeError
from ...probes.base.plurals import plural

if TYPE_CHECKING:
    import duckdb

# Parts of a statement that only read, as DuckDB's parser calls them.
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})

# Table functions that read no more than this database and the names in its catalog. All others are
# refused: they open files, take addresses of memory, change settings, or run SQL out of a string.
TABLE_FUNCTIONS = frozenset(
    "duckdb_columns duckdb_constraints duckdb_databases duckdb_functions duckdb_indexes"
    " duckdb_keywords duckdb_memory duckdb_schemas duckdb_settings duckdb_tables duckdb_types"
    " duckdb_views generate_series json_each json_tree pragma_database_size pragma_show"
    " pragma_storage_info pragma_table_info pragma_version query_table range repeat repeat_row"
    " summary unnest".split()
)

EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?", re.IGNORECASE)
_WAY_OUT = "give one query that begins with SELECT, FROM or WITH; a query can only read the store"


def select(
    con: duckdb.DuckDBPyConnection, query: str, values: Mapping[str, object] | None = None
) -> duckdb.DuckDBPyRelation:
    """Return the result of one SELECT, or of EXPLAIN of one; it runs when its rows are taken.

    Afterwards the connection's settings are locked: nothing that runs on it can change them.

    Args:
        con: a connection of `store.open_store`, which keeps it from other files.
        query: DuckDB's dialect.
        values: of the query's named parameters.

    Raises:
        BbrscopeError: the query is no single SELECT, or calls what may do more than read the store.
        duckdb.Error: it is wrong in another way, or fails.
    """
    require_select(query)
    lock_settings(con)
    return con.sql(query, params=dict(values or {}))


def select_where(
    con: duckdb.DuckDBPyConnection, column: str, table: str, condition: str, order: str
) -> list[Any]:
    """Return a column's values of those rows of a table of which a condition in SQL holds.

    The condition is parsed by itself, so that no bracket in it can end the place where it stands.

    Raises:
        BbrscopeError, duckdb.Error: as `select`.
    """
    import duckdb

    duckdb.SQLExpression(condition)  # raises unless it is one expression
    query = f'SELECT "{column}" FROM "{table}" WHERE ({condition}\n) ORDER BY "{order}"'
    return [row[0] for row in select(con, query).fetchall()]


def lock_settings(con: duckdb.DuckDBPyConnection) -> None:
    """Let nothing change the connection's settings any more."""
    (locked,) = con.execute("SELECT current_setting('lock_configuration')").fetchall()[0]
    if not locked:
        con.execute("SET lock_configuration = true")


def require_select(query: str) -> None:
    """Raise unless a text is one SELECT, or EXPLAIN of one, that reads nothing but the database.

    Raises:
        BbrscopeError: it is something else, or does something else besides.
        duckdb.ParserException: it is no SQL.
    """
    explained = EXPLAIN.match(query)
    text = query[explained.end() :] if explained else query
    for node in nodes_of(parsed(text)):
        kind = str(node.get("type", ""))
        if kind.endswith("_NODE") and kind not in _QUERIES:
            words = kind.removesuffix("_NODE").removesuffix("_QUERY")
            raise BbrscopeError(f"a query that only reads cannot hold {words}", _WAY_OUT)
        if kind == "TABLE_FUNCTION":
            name = str(node["function"]["function_name"])
            if name.lower() not in TABLE_FUNCTIONS:
                raise BbrscopeError(
                    f"a query here cannot call {name!r:.60}, which may do more than read the store",
                    _WAY_OUT,
                )


@functools.cache
def _parser(process: int) -> duckdb.DuckDBPyConnection:
    """Return the database in memory that parses for this process: making one takes 20 ms.

    A child that was forked lacks the threads that its parent's database had.
    """
    import duckdb

    return duckdb.connect()


def parsed(text: str) -> dict[str, Any]:
    """Return the syntax tree of a text that is one SELECT, as DuckDB's ``json_serialize_sql``.

    Raises:
        BbrscopeError: it is something else.
        duckdb.ParserException: it is no SQL.
    """
    with _parser(os.getpid()).cursor() as parser:
        statements = parser.extract_statements(text)
        if len(statements) != 1:
            count = plural(len(statements), "statement") if statements else "no statements"
            raise BbrscopeError(f"{count} where one is wanted", _WAY_OUT)
        name = _kind(statements[0])
        if name == "MULTI":
            way = "after ON, say which values become columns: PIVOT t ON x IN (1, 2)"
            raise BbrscopeError("PIVOT without a list of values is more than one query", way)
        if name != "SELECT":
            raise BbrscopeError(f"{name} is not a query", _WAY_OUT)
        (tree,) = parser.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0]
    try:
        document: dict[str, Any] = json.loads(tree)
    except RecursionError:
        raise BbrscopeError("the query is nested too deeply", "split it with WITH") from None
    if document["error"]:
        raise BbrscopeError(f"not a query that only reads: {document['error_message']}", _WAY_OUT)
    return document


def _kind(statement: duckdb.Statement) -> str:
    """Return the name of a statement's kind; of some, DuckDB for Python has none."""
    try:
        return statement.type.name
    except ValueError:
        return "this statement"


def nodes_of(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every object of a syntax tree."""
    waiting: list[Any] = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
