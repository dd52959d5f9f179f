"""Look inside Linux BBR: what it decided, when and why, as frames, charts and findings.

    import bbrscope

    lab = bbrscope.ingest("fixtures/v2_x_spur", store="lab.duckdb")
    lab.transitions("v2_x_spur")
    lab.chart("volumes", "v2_x_spur")

`bbrscope.open` opens a store that is there. Both give a `Recordings`. Nothing is imported before it
is used, so that the import costs next to nothing.
"""

from __future__ import annotations

import importlib

# As typing's, which takes longer to import than all else that a program needs to begin.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .probes.base.errors import BbrscopeError as BbrscopeError
    from .reports.api.opening import ingest as ingest
    from .reports.api.opening import open as open
    from .reports.api.recordings import Recordings as Recordings

__all__ = ["BbrscopeError", "Recordings", "ingest", "open"]

_HOMES = {
    "BbrscopeError": ".probes.base.errors",
    "Recordings": ".reports.api.recordings",
    "ingest": ".reports.api.opening",
    "open": ".reports.api.opening",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'bbrscope' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__
