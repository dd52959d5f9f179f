"""Answer a user's query from the rows of the runs that it asks for, wherever it says so.

DuckDB carries a condition on a run through most of a view, but not through ASOF joins, nor to rows
that several parts of a query read. So a query that names the runs of every table and view that it
reads is given these narrowed to those runs: the same rows, found without the other runs' events,
and of a lake without opening the other runs' files. What a view says of a run depends on the rows
of that run alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...collect.store.schema import Table
from ...collect.store.select_only import EXPLAIN, nodes_of, parsed
from ...probes.base.errors import BbrscopeError
from .materialize import materialized_tables, narrowing
from .registry import relation

if TYPE_CHECKING:
    import duckdb

    from ...collect.store.store import Store

_Node = dict[str, Any]
# A condition on one of these columns chooses runs; equal in two tables, it does for both.
_KEYS = ("run_id", "run")
# They read tables whose names are no part of the syntax.
_BY_NAME = ("query_table", "summary")
# Joins of which rows of other runs change nothing, if runs must be equal.
_JOINS = ("REGULAR", "CROSS", "ASOF")
_WITH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(WITH\b)?", re.IGNORECASE | re.DOTALL)


def for_asked_runs(store: Store, query: str, values: Mapping[str, object]) -> str:
    """Return a query that says the same as `query`, and reads the rows of the runs it asks for.

    It is `query` itself if that does not say of all it reads which runs it wants.

    Args:
        store: a store or a lake.
        query: one SELECT, or EXPLAIN of one, that `select_only.require_select` lets pass.
        values: of its named parameters.
    """
    explained = EXPLAIN.match(query)
    start = explained.end() if explained else 0
    text = query[start:]
    asked = _asked(parsed(text), values)
    if asked is None:
        return query
    run_ids = _numbers(store.con, asked)
    chosen = ", ".join(map(str, run_ids)) or "NULL"
    stored = {name: name for name in store.filed_views}
    stored |= materialized_tables(store.con, run_ids)
    tables = narrowing(text, f"({chosen})", stored)
    begins = _WITH.match(text)
    assert begins is not None  # it matches nothing, too
    rest = f", {text[begins.end() :]}" if begins.group(1) else f" {text}"
    narrowed = f"WITH {', '.join(tables)}{rest}"
    try:
        parsed(narrowed)
    except BbrscopeError:
        return query
    return query[:start] + narrowed


def _numbers(con: duckdb.DuckDBPyConnection, asked: _Asked) -> list[int]:
    """Return the numbers of the runs: in a lake, runs of several hosts may have one name."""
    rows = con.execute(
        "SELECT run_id FROM runs WHERE run_id IN (SELECT unnest($1::BIGINT[]))"
        " OR run IN (SELECT unnest($2::VARCHAR[])) ORDER BY run_id",
        [sorted(asked.run_ids), sorted(asked.names)],
    ).fetchall()
    return [run_id for (run_id,) in rows]


@dataclass
class _Asked:
    """Runs by number and by name."""

    run_ids: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def add(self, other: _Asked) -> None:
        self.run_ids |= other.run_ids
        self.names |= other.names


def _asked(tree: _Node, values: Mapping[str, object]) -> _Asked | None:
    """Return the runs that a query asks for; None if it may read those of others, or reads none."""
    nodes = list(nodes_of(tree))
    own = {one["key"].lower() for node in nodes for one in _entries(node.get("cte_map"))}
    kinds = {str(node.get("type", "")) for node in nodes}
    calls = {
        str(node["function"]["function_name"]).lower()
        for node in nodes
        if node.get("type") == "TABLE_FUNCTION"
    }
    if (
        any(relation(name) for name in own)
        or calls.intersection(_BY_NAME)
        or kinds.intersection(("SHOW_REF", "RECURSIVE_CTE_NODE"))
    ):
        return None
    asked = _Asked()
    for node in nodes:
        if node.get("type") == "SELECT_NODE" and not _ask(_Select(node, own), values, asked):
            return None
    return asked if asked.run_ids or asked.names else None


def _entries(ctes: object) -> list[_Node]:
    return list(ctes.get("map", ())) if isinstance(ctes, dict) else []


class _Select:
    """One SELECT of a query: the tables that it reads, and the conditions that all its rows meet.

    Attributes:
        tables: those with runs, by the name that the query calls them, with their keys.
        joined: names of tables whose rows meet by equal runs, in sets.
        using: keys by which USING joins.
        clear: whether everything it reads is known.
    """

    def __init__(self, node: _Node, own: set[str]) -> None:
        self.tables: dict[str, tuple[str, ...]] = {}
        self.using: set[str] = set()
        self.clear = True
        self.conditions: list[_Node] = list(_conjuncts(node.get("where_clause")))
        self._joins: list[_Node] = []
        self._equal: list[tuple[str, str]] = []
        self._read(node.get("from_table") or {}, own)
        self.joined = self._groups()

    def _read(self, source: _Node, own: set[str]) -> list[str]:
        """Take in what FROM names; return the tables among it."""
        self.clear = self.clear and source.get("sample") is None
        if source.get("type") == "JOIN":
            both = self._read(source["left"], own) + self._read(source["right"], own)
            for key in _KEYS:
                if key in map(str.lower, source["using_columns"]):
                    self.using.add(key)
                    self._equal += list(pairwise(one for one in both if key in self.tables[one]))
            self._joins += _conjuncts(source["condition"])
            self.clear = self.clear and source["ref_type"] in _JOINS
            return both
        return self._read_table(source, own) if source.get("type") == "BASE_TABLE" else []

    def _read_table(self, source: _Node, own: set[str]) -> list[str]:
        name = str(source["table_name"]).lower()
        plain = not source["schema_name"] and not source["catalog_name"]
        if plain and name in own:
            return []
        item = relation(name)
        keys = tuple(c.name for c in item.columns if c.name in _KEYS) if item else ()
        called = str(source["alias"]).lower() or name
        if not plain or called in self.tables or source["column_name_alias"]:
            self.clear = False
        elif not keys:
            # A view of all runs, or a table that is not known here, which may have runs.
            self.clear = self.clear and isinstance(item, Table)
            return []
        self.tables[called] = keys
        return [called]

    def place_of(self, column: _Node) -> tuple[str, str] | None:
        """Return the table, by its name in the query, and the key that a column is, if it is one.

        Of tables that USING joins, it is the first.
        """
        if column.get("class") != "COLUMN_REF":
            return None
        names = [name.lower() for name in column["column_names"]]
        if names[-1] not in _KEYS or len(names) > 2:
            return None
        if len(names) == 2:
            return (names[0], names[1]) if names[1] in self.tables.get(names[0], ()) else None
        having = [name for name, keys in self.tables.items() if names[0] in keys]
        if len(having) == 1:
            return having[0], names[0]
        return (having[0], names[0]) if having and names[0] in self.using else None

    def _groups(self) -> list[set[str]]:
        """Divide the tables into those whose rows are joined by equal runs."""
        groups = [{name} for name in self.tables]
        pairs = list(self._equal)
        for one in (*self.conditions, *self._joins):
            if one.get("type") == "COMPARE_EQUAL":
                left, right = self.place_of(one["left"]), self.place_of(one["right"])
                if left and right and left[1] == right[1]:
                    pairs.append((left[0], right[0]))
        for pair in pairs:
            met = [group for group in groups if group.intersection(pair)]
            groups = [group for group in groups if group not in met] + [set().union(*met)]
        return groups


def _conjuncts(condition: object) -> Iterator[_Node]:
    """Yield the conditions that all hold where `condition` does."""
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _conjuncts(child)
    else:
        yield condition


def _ask(select: _Select, values: Mapping[str, object], asked: _Asked) -> bool:
    """Add the runs that a SELECT asks for; return False if it reads others, too."""
    chosen: set[str] = set()
    for one in select.conditions:
        left, others = _compared(one)
        place = select.place_of(left)
        runs = _runs(place[1], [_value(other, values) for other in others]) if place else None
        if place and runs:
            asked.add(runs)
            chosen.add(place[0])
    return select.clear and all(group & chosen for group in select.joined)


def _compared(condition: _Node) -> tuple[_Node, Sequence[_Node]]:
    """Return what equals one of several other things by a condition, and those."""
    if condition.get("type") == "COMPARE_EQUAL":
        left, right = condition["left"], condition["right"]
        return (left, [right]) if left.get("class") == "COLUMN_REF" else (right, [left])
    if condition.get("type") == "COMPARE_IN":
        first, *others = condition["children"]
        return first, others
    return {}, ()


def _runs(key: str, values: Sequence[object]) -> _Asked | None:
    """Return the runs with these values of a key; None if one is not known."""
    if key == "run_id":
        numbers = [value for value in values if isinstance(value, int)]
        return _Asked(run_ids=set(numbers)) if len(numbers) == len(values) else None
    names = [value for value in values if isinstance(value, str)]
    return _Asked(names=set(names)) if len(names) == len(values) else None


def _value(node: _Node, values: Mapping[str, object]) -> object:
    """Return what a constant or a named parameter says, as int or str; else None."""
    if node.get("class") == "PARAMETER":
        return values.get(str(node.get("identifier")))
    literal = node.get("literal") if node.get("class") == "CONSTANT" else None
    if not isinstance(literal, dict):
        return None
    text = str(literal.get("text"))
    if literal.get("kind") == "INTEGER":
        return int(text) if text.isdigit() else None
    return text if literal.get("kind") == "STRING" else None
