"""Load several bundles in one transaction, because a commit takes as long for one as for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ...probes.base.errors import StoreError
from ..store.store import Store

B = TypeVar("B")
T = TypeVar("T")


def all_or_each(store: Store, bundles: Sequence[B], load: Callable[[B], T]) -> list[T]:
    """Load bundles in one transaction; if one fails half-way, each in a transaction of its own.

    Args:
        store: opened for writing.
        bundles: what `load` takes, in this order.
        load: loads one into the store and says what became of it; it raises no BbrscopeError.
    """
    if len(bundles) > 1:
        with suppress(StoreError):
            return _all(store, bundles, load)
    return [load(bundle) for bundle in bundles]


def _all(store: Store, bundles: Sequence[B], load: Callable[[B], T]) -> list[T]:
    """Load bundles in one transaction; raise StoreError if that cannot be committed."""
    said = []
    with store.joined() as spoilt:
        for bundle in bundles:
            said.append(load(bundle))
            if spoilt():
                break
    if spoilt():
        raise StoreError(f"{bundle} cannot be loaded with others", "load it alone")
    return said
