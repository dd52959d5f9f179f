"""What a table and a column of the store are made of."""

from __future__ import annotations

from dataclasses import dataclass

# Tables whose names begin so hold rows that can be found anew from what was recorded.
CACHE_PREFIX = "materialized_"


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
    """A table of the store; the order of `columns` is the order in the store."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def ddl(self, temporary: bool = False) -> str:
        """Return the ``CREATE TABLE`` statement; a temporary table leaves the file as it is."""
        kind = "TEMPORARY TABLE" if temporary else "TABLE"
        body = ",\n  ".join(column.ddl() for column in self.columns)
        return f'CREATE {kind} "{self.name}" (\n  {body}\n)'
