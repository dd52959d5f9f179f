"""Which triggers have fired whose bundle is due, and which had theirs just now."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from .triggers import Happened


@dataclass(frozen=True)
class Fired:
    """A trigger that fired: its text, what happened and when, and up to when to write.

    Times are CLOCK_MONOTONIC's, in ns.
    """

    trigger: str
    why: str
    ns: int
    until_ns: int


class DueDumps:
    """Dumps that are due, in order, one of a trigger at most: rows of their time may be on the way.

    A dump reaches `after_ns` beyond what fired its trigger, which then has no other for `quiet_ns`.
    `unwritten` counts what had no dump of its own: it is in the one that was due, or its trigger's
    was due or written just now.
    """

    def __init__(self, after_ns: int, quiet_ns: int) -> None:
        self.after_ns = after_ns
        self.quiet_ns = quiet_ns
        self.unwritten: Counter[str] = Counter()
        self._due: deque[Fired] = deque()
        self._quiet_until_ns: dict[str, int] = {}

    @property
    def first(self) -> Fired | None:
        """The next to be written, if any."""
        return self._due[0] if self._due else None

    def fire(self, trigger: str, happened: Happened) -> bool:
        """Take what fired a trigger; False if it has no dump of its own.

        What comes after the end of a dump that is due is not in it, though it was not written yet.
        """
        ns = happened.ns
        is_held = any(ns < due.until_ns or due.trigger == trigger for due in self._due)
        if is_held or ns < self._quiet_until_ns.get(trigger, 0):
            self.unwritten[trigger] += 1
            return False
        self._due.append(Fired(trigger, happened.why, ns, ns + self.after_ns))
        return True

    def add(self, fired: Fired) -> None:
        """Have this written, whatever was written just now."""
        self._due.append(fired)

    def take(self) -> None:
        """Let go of the first: it is being written."""
        self._due.popleft()

    def written(self, trigger: str, until_ns: int) -> None:
        """Note that a trigger's dump was written up to a time."""
        self._quiet_until_ns[trigger] = until_ns + self.quiet_ns

    def forget(self, trigger: str) -> None:
        """Let a trigger have its dump, however shortly after the last one."""
        self._quiet_until_ns.pop(trigger, None)
