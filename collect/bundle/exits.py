"""As many exits as entries: the two calls of BBR that a recording sees at both ends.

What main() and init() left behind is known only from their exit rows. Probes of entries and exits
attach separately, so one kind can be missing altogether while nothing else looks wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """A callback that is recorded at entry and at exit, with the tags of both rows."""

    name: str
    entry: str
    exit: str


CALLS = (Call("main", "M", "X"), Call("init", "I", "IX"))


@dataclass(frozen=True)
class MissingExits:
    """Calls of `name`: recorded at entry `entries` times, at exit only `exits` times."""

    name: str
    entries: int
    exits: int

    @property
    def sentence(self) -> str:
        """What is printed to the user."""
        return (
            f"{self.name}() was recorded at entry {self.entries} times and at exit {self.exits}"
            " times: what the other calls left behind is not known"
        )


def count_of(counts: Mapping[str, int], tag: str) -> int:
    """How many events of a tag were counted; long rows are split, and M0 is the first of them."""
    return counts.get(tag, counts.get(f"{tag}0", 0))


def missing_exits(counts: Mapping[str, int]) -> list[MissingExits]:
    """The calls that have fewer exits than entries, by counts of rows or probe runs per tag."""
    both_ends = (
        MissingExits(call.name, count_of(counts, call.entry), count_of(counts, call.exit))
        for call in CALLS
    )
    return [each for each in both_ends if each.exits < each.entries]
