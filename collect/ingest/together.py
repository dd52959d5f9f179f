"""Load several bundles in one transaction, because a commit takes as long for one as for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from ...probes.base.errors import StoreError
from ..store.store import Store
from .worker_shares import shares

T = TypeVar("T")


def one_by_one(store: Store, paths: Sequence[Path], load: Callable[[Path], T]) -> Iterator[T]:
    """Load bundles in their order and yield what `load` says of each, once it is committed.

    Args:
        store: opened for writing.
        load: loads one into the store and says what became of it; it raises no BbrscopeError.
    """
    for some in shares(paths, 1):
        yield from all_or_each(store, some, load)


def all_or_each(store: Store, paths: Sequence[Path], load: Callable[[Path], T]) -> list[T]:
    """Load bundles in one transaction; if one fails half-way, each in a transaction of its own."""
    if len(paths) > 1:
        with suppress(StoreError):
            return _all(store, paths, load)
    return [load(path) for path in paths]


def _all(store: Store, paths: Sequence[Path], load: Callable[[Path], T]) -> list[T]:
    """Load bundles in one transaction; raise StoreError if that cannot be committed."""
    said = []
    with store.joined() as spoilt:
        for path in paths:
            said.append(load(path))
            if spoilt():
                break
    if spoilt():
        raise StoreError(f"{path} cannot be loaded with others", "load it alone")
    return said
