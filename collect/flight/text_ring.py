"""The last polls of a sampler in memory: what `ss` and `tc` said."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..record.captures.samplers import rows_in
from .pieces import PieceRing


@dataclass(frozen=True)
class Polled:
    """How many times a sampler looked, and how many rows it saw."""

    polls: int
    rows: int


class TextRing:
    """Takes one poll at a time, and dates it by when it came (CLOCK_MONOTONIC, ns).

    A first piece that begins with `header` is the file's head, and is kept for good.
    """

    def __init__(self, span_ns: int, most_bytes: int, header: str = "") -> None:
        self.ring = PieceRing(span_ns, most_bytes)
        self._expected = header.encode()
        self._header = b""
        self._lock = threading.Lock()

    @property
    def written(self) -> int:
        """Bytes that are kept."""
        return self.ring.size

    def write(self, data: bytes) -> None:
        """Take what one poll printed."""
        with self._lock:
            if self._expected and not self._header and data.startswith(self._expected):
                self._header = data
                return
            now = time.monotonic_ns()
            self.ring.add(now, now, data)

    def flush(self) -> None:
        """Do nothing: what was written can be read at once."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def write_window(self, from_ns: int, until_ns: int, write: Callable[[bytes], None]) -> Polled:
        """Write the polls of a window; return how many, and how many rows."""
        with self._lock:
            pieces = [one for one in self.ring.since(from_ns) if one.last_ns < until_ns]
        if self._header:
            write(self._header)
        rows = 0
        for piece in pieces:
            data = piece.data()
            rows += rows_in(data.decode())
            write(data)
        return Polled(len(pieces), rows)
