"""Cut a stream of rows in time without cutting an event in half."""

from __future__ import annotations

import re
from collections import Counter

# A row's tag, number among the rows of one event, time and socket.
PARTS = re.compile(rb"^([A-Z]+)([0-9]?),(\d+),([0-9a-f]+)[,\n]")
# What main() and init() left: rows of an event that began with M or I.
LEAVING = (b"X", b"IX")
# v2's parameters: part of the init that is under way, or has just left.
PARAMETERS = b"P"


class EventCut:
    """Keeps the events that began from `from_ns` on (None: all) and before `until_ns`.

    An event's rows come one after the other on its socket, and the exit rows of main() and init()
    after what they called. `cut` counts the rows left out, by tag; `sockets` holds those of which
    a row was kept.
    """

    def __init__(self, until_ns: int, from_ns: int | None = None) -> None:
        self.until_ns = until_ns
        self.from_ns = from_ns
        self.cut: Counter[str] = Counter()
        self.sockets: set[bytes] = set()
        self._inside: set[bytes] = set()
        self._keeping: dict[bytes, bool] = {}

    def keep(self, data: bytes) -> bytes:
        """The rows of `data`, whole lines, that are kept."""
        lines = []
        for line in data.splitlines(keepends=True):
            parts = PARTS.match(line)
            if parts is None or self.keeps(*parts.groups()):
                lines.append(line)
            else:
                self.cut[(parts[1] + parts[2]).decode()] += 1
        return b"".join(lines)

    def keeps(self, tag: bytes, number: bytes, ns: bytes, socket: bytes) -> bool:
        """Whether the next row is kept: its tag, its number in the event, its time and socket."""
        if number in (b"", b"0") and tag != PARAMETERS:
            self._begin(tag, int(ns), socket)
        keeping = self._keeping.get(socket, self.from_ns is None)
        if keeping:
            self.sockets.add(socket)
        return keeping

    def _begin(self, tag: bytes, ns: int, socket: bytes) -> None:
        within = ns < self.until_ns and (self.from_ns is None or ns >= self.from_ns)
        if tag in LEAVING:
            # What left a call that began before a window is not of the window.
            unseen = within and self.from_ns is None
            self._keeping[socket] = unseen or socket in self._inside
            self._inside.discard(socket)
            return
        self._keeping[socket] = within
        if within and tag in (b"M", b"I"):
            self._inside.add(socket)
