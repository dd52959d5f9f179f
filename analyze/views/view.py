"""What a view of the store is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...collect.store.schema.table import Column


def words_of(query: str) -> set[str]:
    """Return all words of a query: what it reads is among them, by name."""
    return set(re.findall(r"\w+", query))


@dataclass(frozen=True)
class View:
    """A documented query; `columns` describe what `sql` returns, in its order.

    The rows of one that is `materialized` are stored for each replayed run, those of one that is
    `shared` are found once while views that read it are being stored, of all columns or those in
    `shared_columns`: see materialize.py. `words` are columns that have one of a few words, each
    with all of these. Of a view that names a table in `rows_of`, rows are stored of those runs that
    have some in it: of others, finding them takes no longer than storing them.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    sql: str
    materialized: bool = False
    shared: bool = False
    shared_columns: tuple[str, ...] = ()
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rows_of: str = ""

    def ddl(self, temporary: bool = False) -> str:
        """Return the ``CREATE VIEW`` statement; a temporary view leaves the file as it is."""
        kind = "TEMPORARY VIEW" if temporary else "VIEW"
        return f'CREATE OR REPLACE {kind} "{self.name}" AS {self.sql}'
