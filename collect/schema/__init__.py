"""The store's schema as data: what `bbrscope schema` prints and what a new store is made of.

A module of this package that has tables or views exports `TABLES` and `VIEWS` and is listed in
`MODULES`, in the order in which they must be created.
"""

from __future__ import annotations

from . import analysis, lab, metrics, packets, recording, rungs, sampled, samples, views
from .model import Column, Table, View

# Stores carry this number; a store with another one is not opened. Raise it with any change that
# makes existing stores unreadable.
SCHEMA_VERSION = 4

MODULES = (recording, samples, rungs, packets, analysis, lab, views, metrics, sampled)

TABLES: tuple[Table, ...] = tuple(table for module in MODULES for table in module.TABLES)
VIEWS: tuple[View, ...] = tuple(view for module in MODULES for view in module.VIEWS)

__all__ = ["MODULES", "SCHEMA_VERSION", "TABLES", "VIEWS", "Column", "Table", "View", "relation"]


def relation(name: str) -> Table | View | None:
    """Return the table or view called `name`, or None."""
    known: tuple[Table | View, ...] = (*TABLES, *VIEWS)
    return next((item for item in known if item.name == name), None)
