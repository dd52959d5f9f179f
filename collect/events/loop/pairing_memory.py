"""The compiled loop's memory as Python holds it: made for a header, grown, and read back."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ...store.schema.recorded_tables import KINDS
from ..lines.header import Header
from . import rows
from .column_plan import I64
from .loop_memory import (
    BLOCK_ROWS,
    F_GENERATION,
    F_SOCKET,
    FLOW_SIZE,
    FLOWS,
    LAST_SOCKET,
    LINE,
    NO_FLOW,
    NUMBERED,
    S_KEY,
    S_SLOT,
    SIDE_HEAD,
    SIDES,
    SOCKET_SIZE,
    SOCKETS,
    STATE_SIZE,
    SUSPECT,
    Block,
    PairingTables,
)
from .socket_table import find_socket, rehash

FIRST_SOCKETS = 1 << 10
Index = TypeVar("Index", int, I64)


def number_of(index: Index) -> Index:
    """Return the number of a flow, from 1, as it is stored; the loop's tables are indexed from 0.

    >>> number_of(0)
    1
    """
    return index + 1


class PairingMemory:
    """Sockets, flows and counts of one event stream, and the block of rows on its way.

    Attributes:
        tables: sockets and flows; they grow as more come.
        block: rows that were parsed and wait for their place, and rows for Python.
        state: where the loop is, see loop_memory.py.
    """

    def __init__(self, header: Header, line: int, suspect: bool) -> None:
        self._tags = header.tags
        self.state = np.zeros(STATE_SIZE, np.int64)
        self.state[LINE] = line
        self.state[SUSPECT] = int(suspect)
        names = {column.name for tag in header.tags for column in tag.columns}
        self.state[NUMBERED] = int("seqno" in names)
        self.state[LAST_SOCKET] = -1
        self.tables = PairingTables(
            by_address=np.full(4 * FIRST_SOCKETS, -1, np.int64),
            sockets=np.zeros((FIRST_SOCKETS, SOCKET_SIZE), np.int64),
            flows=np.zeros((FIRST_SOCKETS, FLOW_SIZE), np.int64),
            rows=np.zeros(len(header.tags), np.int64),
        )
        widest = max(len(tag.columns) for tag in header.tags)
        self.block = Block(
            heads=np.zeros((BLOCK_ROWS, rows.HEAD_SIZE), np.int64),
            values=np.zeros((BLOCK_ROWS, widest), np.int64),
            side=np.zeros((2 * BLOCK_ROWS, SIDE_HEAD + widest), np.int64),
        )
        self._first_flows: dict[int, int] | None = None

    @property
    def row_counts(self) -> dict[str, int]:
        """Rows read so far, by tag."""
        return {tag.name: int(n) for tag, n in zip(self._tags, self.tables.rows, strict=True)}

    @property
    def flows(self) -> I64:
        """The flows so far, a row each, in order of first appearance."""
        return self.tables.flows[: int(self.state[FLOWS])]

    def kinds(self) -> set[str]:
        """Return the kinds of the events that rows were read of."""
        counts = self.row_counts
        return {tag.kind for tag in self._tags if tag.kind in KINDS and counts[tag.name]}

    def socket_at(self, address: int) -> int:
        """Return the index of the socket at an address, given as a signed 64-bit number."""
        tables = self.tables
        return find_socket(address, tables.by_address, tables.sockets, self.state)

    def address_of(self, socket: int) -> str:
        """Return a socket's address in hexadecimal."""
        return f"{int(self.tables.sockets[socket, S_KEY]) & (1 << 64) - 1:x}"

    def flow_of(self, recorded: int) -> int:
        """Return the number from 1 of the flow that a row with a table of its own belongs to.

        `recorded` is what the compiled loop wrote: the flow's index, or NO_FLOW minus the socket.

        A row before the first flow of its socket belongs to that; 0 if none came.
        """
        if recorded >= 0:
            return number_of(recorded)
        if self._first_flows is None:
            first = np.flatnonzero(self.flows[:, F_GENERATION] == 0)
            sockets = self.flows[first, F_SOCKET]
            self._first_flows = dict(zip(sockets.tolist(), first.tolist(), strict=True))
        return number_of(self._first_flows.get(NO_FLOW - recorded, -1))

    def open_events(self) -> int:
        """Return how many sockets have an open event."""
        sockets = self.tables.sockets[: int(self.state[SOCKETS])]
        return int(np.count_nonzero(sockets[:, S_SLOT] >= 0))

    def suspect(self) -> None:
        """Note that rows are missing: from now on, rows far apart are not of one event."""
        self.state[SUSPECT] = 1

    def take_side(self) -> I64:
        """Return the rows that the compiled loop handed over, and make room for the next ones."""
        side = self.block.side[: int(self.state[SIDES])]
        self.state[SIDES] = 0
        return side

    def grow(self) -> None:
        """Double the memory for sockets or for flows, whichever is full."""
        state = self.state
        by_address, sockets, flows, counts = self.tables
        if state[FLOWS] + BLOCK_ROWS > len(flows):
            flows = np.concatenate([flows, np.zeros_like(flows)])
        if state[SOCKETS] + BLOCK_ROWS > len(sockets):
            sockets = np.concatenate([sockets, np.zeros_like(sockets)])
            by_address = np.full(4 * len(sockets), -1, np.int64)
            rehash(by_address, sockets, int(state[SOCKETS]))
        self.tables = PairingTables(by_address, sockets, flows, counts)
