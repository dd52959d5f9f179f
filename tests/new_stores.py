"""New stores of tests begin as copies of one: to bind all views takes most of a second for each.

The one is made as all are; so is that of every other process, and that of a test which asks for the
fixture `stores_from_scratch`.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from bbrscope.analyze.views.store_with_views import open_store
from bbrscope.collect.store import store
from bbrscope.collect.store.free_name import move_to_free_name
from bbrscope.probes.base.scratch import ScratchFolder

create = store._create


@cache
def _first() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "first.duckdb"
        store._create = create
        try:
            open_store(path).close()
        finally:
            store._create = copy
        return path.read_bytes()


def copy(path: Path) -> store.FileId | None:
    """Stand in for the store's own function: a store with views, and without runs."""
    content = _first()
    try:
        with ScratchFolder(path.parent) as scratch:
            aside = scratch.path / "new.duckdb"
            aside.write_bytes(content)
            return store._file_id(aside) if move_to_free_name(aside, path) else None
    except OSError as error:
        raise store.explained(path, error) from error
