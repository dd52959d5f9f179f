"""The rows of a recording under way, in order of time, for whoever looks on."""

from __future__ import annotations

import threading
import time

# Rows of several CPUs are sorted among this much of the newest: a look-on is this far behind.
ORDER_NS = 200_000_000
# Where no newer rows come, those that wait are as old as this at most.
STALLED_NS = 2 * ORDER_NS
MOST_ROWS = 50_000
# Rows that say who a flow is: they come only once.
ABOUT = (b"I", b"N", b"P")


class LiveRows:
    """Collects rows in the thread that reads them and hands them out in another.

    `dropped` counts rows that nobody took in time: memory is bounded, and who looks on may be
    slower than the recording, which is not disturbed by it.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._rows: list[tuple[int, bytes]] = []
        self._newest_ns = 0
        self._lock = threading.Lock()

    def add(self, rows: list[tuple[int, bytes]]) -> None:
        """Take rows with their times [ns]."""
        if not rows:
            return
        with self._lock:
            self._rows += rows
            self._newest_ns = max(self._newest_ns, max(ns for ns, _ in rows))
            if len(self._rows) > MOST_ROWS:
                self._drop_oldest(len(self._rows) - MOST_ROWS)

    def _drop_oldest(self, over: int) -> None:
        """Drop rows, but for those that say who a flow is, as long as there are others."""
        self._rows.sort(key=lambda row: row[0])
        about, at = list[tuple[int, bytes]](), 0
        while at < len(self._rows) and at < over + len(about):
            if self._rows[at][1].startswith(ABOUT):
                about.append(self._rows[at])
            at += 1
        self._rows = (about + self._rows[at:])[-MOST_ROWS:]
        self.dropped += over

    def take(self, now_ns: int | None = None) -> list[bytes]:
        """The rows that are in order by now, those handed out before left out.

        `now_ns` is CLOCK_MONOTONIC's. Rows wait until others come that are ORDER_NS newer, but
        until they are STALLED_NS old at most.
        """
        now = time.monotonic_ns() if now_ns is None else now_ns
        with self._lock:
            until = max(self._newest_ns - ORDER_NS, now - STALLED_NS)
            self._rows.sort(key=lambda row: row[0])
            taken = [line for ns, line in self._rows if ns <= until]
            del self._rows[: len(taken)]
        return taken

    def take_all(self) -> list[bytes]:
        """The rows not handed out yet, in order, where no others will come."""
        return self.take(self._newest_ns + STALLED_NS)
