"""What was recorded, as tables: what ingest fills and a new store is made of.

A module of this package exports `TABLES` and is listed in `MODULES`, in the order in which they are
created. What is concluded from them (tables of results, views) is in analyze/views.
"""

from __future__ import annotations

from . import lab_tables, packets, recorded_tables, samples
from .table import Column, Table

# Stores carry this number; a store with another one is not opened. Raise it with any change that
# makes existing stores unreadable.
SCHEMA_VERSION = 5

MODULES = (recorded_tables, samples, packets, lab_tables)

TABLES: tuple[Table, ...] = tuple(table for module in MODULES for table in module.TABLES)

__all__ = ["MODULES", "SCHEMA_VERSION", "TABLES", "Column", "Table", "recorded_table"]


def recorded_table(name: str) -> Table:
    """Return the table called `name`.

    Raises:
        KeyError: none of those that ingest fills is called so.
    """
    return {table.name: table for table in TABLES}[name]
