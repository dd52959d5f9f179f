"""The last seconds of events in memory, and what their flows' beginnings said."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..record.output.event_cut import PARTS, EventCut
from . import beginnings
from .beginnings import TELLING, Beginnings
from .pieces import Piece, PieceRing

PIECE_BYTES = 1 << 20
PIECE_NS = 1_000_000_000
# Of the ring's memory, for what must be remembered of flows that began before it.
BEGINNINGS_SHARE = 8


class EventRing:
    """Takes a recording's rows in order of time and keeps the last ones.

    `written` counts the bytes that are kept; all but the newest rows are compressed.
    """

    def __init__(self, span_ns: int, most_bytes: int) -> None:
        remembered = most_bytes // BEGINNINGS_SHARE
        self.headers: list[bytes] = []
        self.columns: beginnings.Columns = {}
        self.beginnings = Beginnings(max(remembered // beginnings.BYTES_EACH, 64))
        self.ring = PieceRing(span_ns, most_bytes - remembered, self._forget)
        self.newest_ns = 0
        self._waiting: list[bytes] = []
        self._first_ns = 0
        self._size = 0
        self._lock = threading.Lock()

    @property
    def written(self) -> int:
        """Bytes that are kept."""
        return self.ring.size + self._size

    def write(self, data: bytes) -> None:
        """Take header lines or whole rows."""
        with self._lock:
            if data.startswith(b"#"):
                self.headers += data.splitlines(keepends=True)
                self.columns = beginnings.columns_of(self.headers)
            elif data:
                self._take(data)

    def flush(self) -> None:
        """Do nothing: what was written can be read at once."""

    def close(self) -> None:
        """Do nothing: no file is open."""

    def _take(self, data: bytes) -> None:
        first = PARTS.match(data)
        last = PARTS.match(data[data.rfind(b"\n", 0, -1) + 1 :])
        if first is None or last is None:
            return
        if not self._waiting:
            self._first_ns = int(first[3])
        self.newest_ns = max(self.newest_ns, int(last[3]))
        self._waiting.append(data)
        self._size += len(data)
        if self._size > PIECE_BYTES or self.newest_ns - self._first_ns > PIECE_NS:
            self._seal()

    def _seal(self) -> None:
        """Make a piece of what waits."""
        data = b"".join(self._waiting)
        self._waiting, self._size = [], 0
        self.beginnings.note_alive(data)
        notes = b"".join(TELLING.findall(data))
        self.ring.add(self._first_ns, self.newest_ns, data, notes)

    def _forget(self, piece: Piece) -> None:
        self.beginnings.note_all(piece.notes, self.columns)

    def covered_from(self, from_ns: int) -> int:
        """The time [ns] from which no row is missing: `from_ns`, or later if some were dropped."""
        return max(from_ns, self.ring.covered_from_ns)

    def write_window(
        self, from_ns: int, until_ns: int, write: Callable[[bytes], None]
    ) -> dict[str, int]:
        """Write the whole events that began in a window; return the number of rows by tag.

        A flow that began earlier is introduced by an N1 row before its first event.
        """
        with self._lock:
            if self._waiting:
                self._seal()
            pieces, known = list(self.ring.pieces), self.beginnings.copy()
        window = EventWindow(from_ns, until_ns, known, self.columns)
        write(b"".join([*self.headers, window.header]))
        for piece in pieces:
            if piece.last_ns < from_ns:
                known.note_all(piece.notes, self.columns)
            else:
                write(window.keep(piece.data()))
        return dict(window.rows)


class EventWindow(EventCut):
    """Events of a window of time, flows introduced; `rows` counts the rows by tag."""

    def __init__(
        self, from_ns: int, until_ns: int, known: Beginnings, columns: beginnings.Columns
    ) -> None:
        super().__init__(until_ns, from_ns)
        self.known = known
        self.columns = columns
        self.header = beginnings.header(columns)
        self.rows: dict[str, int] = {}
        self._introduced: set[bytes] = set()
        self._number_at = {
            tag: names.index("seqno") + 1 for tag, names in columns.items() if "seqno" in names
        }

    def keep(self, data: bytes) -> bytes:
        """The rows of `data`, whole lines, that are kept."""
        lines: list[bytes] = []
        for line in data.splitlines(keepends=True):
            parts = PARTS.match(line)
            if parts is None:
                continue
            tag, number, ns, socket = parts.groups()
            if self.keeps(tag, number, ns, socket):
                if socket not in self._introduced:
                    self._introduce(tag, number, ns, socket, line, lines)
                lines.append(line)
                self._count((tag + number).decode())
            elif tag in (b"I", b"N", b"P"):
                self.known.note(line, self.columns)
        return b"".join(lines)

    def _count(self, tag: str) -> None:
        self.rows[tag] = self.rows.get(tag, 0) + 1

    def _introduce(
        self, tag: bytes, number: bytes, ns: bytes, socket: bytes, line: bytes, lines: list[bytes]
    ) -> None:
        """Before a flow's first event in the window, say who it is; N and I rows do it themselves.

        Rows of a packet (K, R) and of a socket that left BBR (O, OX) are no events, and wait for
        one.
        """
        if tag in (b"K", b"R", b"O", b"OX"):
            return
        self._introduced.add(socket)
        if tag in (b"N", b"I"):
            return
        known = self.known.of(socket)
        at = self._number_at.get(tag + number)
        values = line.rstrip(b"\n").split(b",")
        seqno = values[at] if at is not None and at < len(values) else b""
        if known and seqno != b"0":
            lines.append(beginnings.row(self.header, ns, socket, seqno, known))
            self._count(beginnings.TAG)
