"""The errors a user can meet: fact, cause and way out, printed by the command line only."""

from __future__ import annotations


class BbrscopeError(Exception):
    """Something a user can understand and act on; the command exits with status 1.

    Args:
        fact: what happened, with file, line and values where they help.
        way_out: what to do about it, often a command to type next.
    """

    def __init__(self, fact: str, way_out: str = "") -> None:
        super().__init__(fact)
        self.fact = fact
        self.way_out = way_out

    def __reduce__(self) -> tuple[type[BbrscopeError], tuple[str, str]]:
        # Without it, a way out gets lost between processes.
        return type(self), (self.fact, self.way_out)


class BundleError(BbrscopeError):
    """A run bundle is missing, damaged, foreign or says something impossible."""


class StoreError(BbrscopeError):
    """The DuckDB store cannot be opened, read or written."""


class HostError(BbrscopeError):
    """This host lacks something that the command needs."""


class ScenarioError(BbrscopeError):
    """A scenario of the lab is unknown, or says something impossible."""
