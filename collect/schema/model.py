"""What a table, a view and a column of the store are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its DuckDB type as ``DESCRIBE`` prints it, its unit and its meaning.

    `compression` is DuckDB's method for it; empty lets DuckDB try them all, which takes more time
    than writing the data.
    """

    name: str
    type: str
    unit: str
    meaning: str
    compression: str = ""

    def ddl(self) -> str:
        """Return the column's part of ``CREATE TABLE``."""
        using = f" USING COMPRESSION {self.compression}" if self.compression else ""
        return f'"{self.name}" {self.type}{using}'


@dataclass(frozen=True)
class Table:
    """A table that ingest or analysis fills; the order of `columns` is the order in the store."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def ddl(self, temporary: bool = False) -> str:
        """Return the ``CREATE TABLE`` statement; a temporary table leaves the file as it is."""
        kind = "TEMPORARY TABLE" if temporary else "TABLE"
        body = ",\n  ".join(column.ddl() for column in self.columns)
        return f'CREATE {kind} "{self.name}" (\n  {body}\n)'


@dataclass(frozen=True)
class View:
    """A documented query; `columns` describe what `sql` returns, in its order.

    The rows of one that is `kept` are stored for each replayed run: see collect/kept.py.
    """

    name: str
    meaning: str
    columns: tuple[Column, ...]
    sql: str
    kept: bool = False

    def ddl(self, temporary: bool = False) -> str:
        """Return the ``CREATE VIEW`` statement; a temporary view leaves the file as it is."""
        kind = "TEMPORARY VIEW" if temporary else "VIEW"
        return f'CREATE OR REPLACE {kind} "{self.name}" AS {self.sql}'
