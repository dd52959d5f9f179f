"""As many exits as entries, and main() among them: whether whole kinds of rows are missing.

What main() and init() left behind is known only from their exit rows. Probes of entries and exits
attach separately, so one kind can be missing altogether while nothing else looks wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...probes.base.plurals import plural


@dataclass(frozen=True)
class Call:
    """A callback that is recorded at entry and at exit, with the tags of both rows."""

    name: str
    entry: str
    exit: str


CALLS = (Call("main", "M", "X"), Call("init", "I", "IX"))


# Tags of the callbacks that the kernel calls on the way of an ACK, or of one that does not come.
BESIDE_MAIN = ("S", "E", "H", "U", "L")


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
            f"{self.name}() was recorded at entry {plural(self.entries, 'time')} and at exit"
            f" {plural(self.exits, 'time')}: what the other calls left behind is not known"
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


def calls_without_main(counts: Mapping[str, int]) -> int:
    """How many other calls were recorded where main() never was; 0 where it was.

    `counts` are rows or events per tag. init() alone is no sign: no ACK may have come.
    """
    return 0 if count_of(counts, "M") else sum(count_of(counts, tag) for tag in BESIDE_MAIN)


def without_main(calls: int) -> str:
    """What is printed to the user of a recording with so many calls and no main()."""
    return (
        f"main() was never recorded, {plural(calls, 'other call was', 'other calls were')}:"
        " what ACKs brought and did is not known"
    )
