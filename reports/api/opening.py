"""The two ways to a store's runs: `bbrscope.open` and `bbrscope.ingest`."""

from __future__ import annotations

from pathlib import Path

from ...collect.store.store import DEFAULT_PATH
from .recordings import Recordings


def open(path: str | Path = DEFAULT_PATH) -> Recordings:
    """Open a store to read its runs.

    Raises:
        BbrscopeError: there is none, or it is no store of bbrscope's.
    """
    return Recordings(Path(path))


def ingest(
    *bundles: str | Path,
    store: str | Path = DEFAULT_PATH,
    packets: bool = True,
    salvage: bool = False,
) -> Recordings:
    """Load run bundles (or captures, or logs) into a store, and open it.

    The store is made if it is missing; what it holds stays, so that a notebook may run this again.

    Args:
        bundles: folders or ``.tar.zst``; packet captures and logs of ``ss -tin`` become runs, too.
        store: the DuckDB file.
        packets: dissect packet captures, if tshark is there.
        salvage: keep the whole events of a damaged recording.

    Raises:
        BbrscopeError: one of them cannot be loaded; those before it are in the store.
    """
    from ...analyze.views.store_with_views import open_for_loading
    from ...collect.ingest.ingest import ingest as load

    with open_for_loading(Path(store), views_at_end=True) as opened:
        for bundle in bundles:
            load(opened, Path(bundle), salvage=salvage, packets=packets)
    return Recordings(Path(store))
