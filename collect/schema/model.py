"""What a table, a view and a column of the store are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column: its DuckDB type as ``DESCRIBE`` prints it, its unit and its meaning."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Table:
    """A table that ingest or analysis fills; the order of `columns` is the order in the store."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def ddl(self) -> str:
        """Return the ``CREATE TABLE`` statement."""
        body = ",\n  ".join(f'"{column.name}" {column.type}' for column in self.columns)
        return f'CREATE TABLE "{self.name}" (\n  {body}\n)'


@dataclass(frozen=True)
class View:
    """A documented query; `columns` describe what `sql` returns, in its order."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    sql: str

    def ddl(self) -> str:
        """Return the ``CREATE VIEW`` statement."""
        return f'CREATE OR REPLACE VIEW "{self.name}" AS {self.sql}'
