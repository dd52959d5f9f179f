"""What must be remembered of a flow's beginning when the beginning itself is forgotten."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable

from ...probes.printed_rows import IDENTITY, MAX_HEADER

# Rows that tell it: who the socket is, and v2's parameters.
TELLING = re.compile(rb"^(?:I|N|P)[0-9]?,.*\n", re.MULTILINE)
SOCKETS = re.compile(rb"^[A-Z]+[0-9]?,[0-9]+,([0-9a-f]+)", re.MULTILINE)
NAMES = frozenset({*IDENTITY, *MAX_HEADER})
PARAMS = "params."
# Tag of the row that hands it on: an N row with more columns.
TAG = "N1"
# A flow's addresses and parameters, with what Python needs around them.
BYTES_EACH = 4096

Columns = dict[bytes, list[str]]
Beginning = dict[str, bytes]


def columns_of(headers: Iterable[bytes]) -> Columns:
    """The names of the columns of each tag, from the stream's header lines; first are ns and sk."""
    beginnings = {}
    for line in headers:
        tag, *names = line.decode().strip().lstrip("#").split(",")
        beginnings[tag.encode()] = names
    return beginnings


class Beginnings:
    """What is known of flows' beginnings, by socket address; at most `most` are remembered.

    `forgotten` counts those that gave way, the sockets without rows for longest first.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.forgotten = 0
        self._by_socket: OrderedDict[bytes, Beginning] = OrderedDict()

    def copy(self) -> Beginnings:
        """The same, to go on from here."""
        other = Beginnings(self.most)
        other.forgotten = self.forgotten
        other._by_socket = OrderedDict((sk, dict(one)) for sk, one in self._by_socket.items())
        return other

    def note(self, line: bytes, columns: Columns) -> None:
        """Take a row that tells of a beginning: I and N rows begin anew, others add to it."""
        tag, *values = line.rstrip(b"\n").split(b",")
        row = dict(zip(columns.get(tag, ()), values, strict=False))
        socket = row.get("sk", b"")
        wanted = {k: v for k, v in row.items() if k in NAMES or k.startswith(PARAMS)}
        if tag in (b"I", b"I0", b"N", b"N0"):
            self._by_socket[socket] = wanted
        else:
            self._by_socket.setdefault(socket, {}).update(wanted)
        self._by_socket.move_to_end(socket)
        if len(self._by_socket) > self.most:
            self._by_socket.popitem(last=False)
            self.forgotten += 1

    def note_all(self, notes: bytes, columns: Columns) -> None:
        """Take rows that tell of beginnings."""
        for line in notes.splitlines(keepends=True):
            self.note(line, columns)

    def note_alive(self, data: bytes) -> None:
        """Note that the sockets of these rows are alive: their beginnings are forgotten last.

        Below half of `most` nothing is near to being forgotten, and the rows are not looked at.
        """
        if len(self._by_socket) > self.most // 2:
            for socket in set(SOCKETS.findall(data)):
                if socket in self._by_socket:
                    self._by_socket.move_to_end(socket)

    def of(self, socket: bytes) -> Beginning:
        """What is known of a socket."""
        return self._by_socket.get(socket, {})


def header(columns: Columns) -> bytes:
    """The header line of the rows that hand beginnings on, for a stream with these columns."""
    names: dict[str, None] = {}
    for tag, of_tag in columns.items():
        if tag.rstrip(b"0123456789") in (b"I", b"N", b"P"):
            names |= {k: None for k in of_tag if k in NAMES or k.startswith(PARAMS)}
    return ",".join([f"#{TAG}", "ns", "sk", "seqno", *names]).encode() + b"\n"


def row(header_line: bytes, ns: bytes, socket: bytes, seqno: bytes, known: Beginning) -> bytes:
    """The row of one socket: empty where a value is not known."""
    names = header_line.decode().strip().split(",")[4:]
    values = [known.get(name, b"") for name in names]
    return b",".join([TAG.encode(), ns, socket, seqno, *values]) + b"\n"
