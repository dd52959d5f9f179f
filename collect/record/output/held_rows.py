"""Rows of several CPUs in order of time: each waits until no older one is expected any more.

bpftrace prints the rows of each CPU in order, but those of several as it comes to them. How long
that takes is nobody's promise: where bpftrace stood still (a busy host, SIGSTOP), it prints all
that one CPU has to say before the first word of the next. Of rows that come later than they were
waited for it is known how late they were, at most: with that the file can be put in order later.
"""

from __future__ import annotations

import bisect


class HeldRows:
    """Rows that wait, each a line with its newline.

    `newest_ns` is the time of the newest one that came; `late_ns` is how much older a row was, at
    most, than one that had been given out before it came: 0 where all are in order.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, bytes]] = []
        self._given_ns = 0
        self.newest_ns = 0
        self.late_ns = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: list[tuple[int, bytes]]) -> None:
        """Take rows with their times [ns]."""
        self._rows += rows
        self.newest_ns = max([self.newest_ns, *(ns for ns, _row in rows)])

    def take(self, until_ns: int) -> bytes:
        """The lines up to a time, in order of time; they wait no longer."""
        self._rows.sort(key=lambda row: row[0])
        count = bisect.bisect_right(self._rows, until_ns, key=lambda row: row[0])
        if not count:
            return b""
        oldest_ns, newest_ns = self._rows[0][0], self._rows[count - 1][0]
        self.late_ns = max(self.late_ns, self._given_ns - oldest_ns)
        self._given_ns = max(self._given_ns, newest_ns)
        data = b"".join(line for _ns, line in self._rows[:count])
        del self._rows[:count]
        return data
