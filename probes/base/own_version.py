"""bbrscope's own version."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def own_version() -> str:
    """Return it; to find and parse the package's metadata takes milliseconds."""
    return version("bbrscope")
