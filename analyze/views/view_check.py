"""Find a view in a store's file that is none of bbrscope's.

A file that says that it has this bbrscope's views is believed, for installing them takes time. A
stranger's may have others of the same names: once a query has failed, they are looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...collect.store.catalog_check import foreign
from .registry import VIEWS

if TYPE_CHECKING:
    import duckdb


def check_views(con: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Raise if a view of the store cannot be read, or has other columns than bbrscope's.

    Raises:
        StoreError: there is one.
    """
    import duckdb

    for view in VIEWS:
        try:
            found = con.execute(f'FROM "{view.name}" LIMIT 0').description
        except duckdb.ProgrammingError as error:
            raise foreign(path, f"its view {view.name} cannot be read") from error
        except duckdb.Error:  # the file is damaged, or in use: what failed before says so
            return
        if [column[0] for column in found] != [column.name for column in view.columns]:
            raise foreign(path, f"its view {view.name} has other columns")
