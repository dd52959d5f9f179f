"""Queries to start from: one file each, whose first lines say what it asks and what it needs."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Return the examples' names, in alphabetical order."""
    names = (path.name for path in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(".sql") for name in names if name.endswith(".sql")))


def text(name: str) -> str:
    """Return an example with its comment.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8").rstrip()
