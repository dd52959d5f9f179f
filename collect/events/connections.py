"""What rows say of connections: addresses, v2's parameters, and the kernel's constants.

An init row names the connection of its own flow. An N row comes before the first event of a socket
whose init was not recorded, and of a flow whose beginning was not kept it says what else the
beginning said.
"""

from __future__ import annotations

from collections.abc import Callable

from .addresses import endpoints
from .lines.header import ADDRESSES, MAX_HEADER, PARAMETERS, Tag
from .loop.column_plan import I64
from .loop.loop_memory import (
    F_BEFORE,
    F_IDENTITY,
    F_LEFT,
    LEFT_BY_ROW,
    S_FLOW,
    S_FROM,
    S_IDENTITY,
    S_LEFT,
    S_NEXT,
    SIDE_HEAD,
    UNKNOWN,
)
from .loop.pairing_memory import PairingMemory, number_of
from .loop.rows import Text
from .loop.socket_table import as_signed

# Of a number of bytes in front of a packet.
MOST_DIGITS = 5

Endpoints = dict[str, str | int]


class Connections:
    """The connections of one event stream.

    Attributes:
        params: rows of v2's parameters, by recorded name, with flow and ns.
    """

    def __init__(self, memory: PairingMemory, refuse: Callable[[str, int], None]) -> None:
        self.params: list[dict[str, int]] = []
        self._memory = memory
        self._refuse = refuse
        self._unfinished: dict[int, dict[str, int]] = {}
        self._addresses: dict[int, Endpoints] = {}
        self._identities: list[Endpoints] = []
        self._begun: dict[int, dict[str, int]] = {}  # v2's parameters by identity
        self._max_headers: set[int] = set()

    def of_flow(self, index: int) -> Endpoints:
        """Return the addresses of a flow: from its init row, or from the N row before it.

        A socket that left BBR and came back has those of the flow that it was before.
        """
        known, before = self._own(index), int(self._memory.tables.flows[index, F_BEFORE])
        return self.of_flow(before - 1) if before and not known else known

    def before(self, index: int) -> int:
        """Return the flow that a socket had before it left BBR and came back; -1: none.

        Where numbers go on, and the ends are others, the kernel has skipped the probe that tells of
        the socket's end: its memory was given to another connection.
        """
        before = int(self._memory.tables.flows[index, F_BEFORE]) - 1
        if before >= 0 and _contradict(self.of_flow(before), self._own(index)):
            return -1
        return before

    def _own(self, index: int) -> Endpoints:
        """Return what rows of this flow say of its addresses."""
        identity = int(self._memory.tables.flows[index, F_IDENTITY])
        return self._addresses.get(index) or (self._identities[identity - 1] if identity else {})

    def constants(self) -> dict[str, int]:
        """Return the build constants that rows hold, by their name in the manifest."""
        if len(self._max_headers) != 1:
            return {}
        return {"MAX_TCP_HEADER": next(iter(self._max_headers))}

    def take_row(self, tag: Tag, row: I64, text: Text) -> None:
        """Take a row as the compiled loop hands it over; `text` is what it was read from."""
        index, ns, line = (int(number) for number in row[1:SIDE_HEAD])
        values = row[SIDE_HEAD:].tolist()
        if tag.role == PARAMETERS:
            names = [c.name if c.known else "" for c in tag.columns]
            numbers = dict(zip(names, values, strict=False))
            self._take_params(
                index, ns, {k: n for k, n in numbers.items() if k.startswith("params.")}
            )
            return
        texts = _texts(tag, values, text)
        self._take_constant(texts)
        try:
            addresses = endpoints(texts)
        except ValueError as error:
            self._refuse(f"{tag.name} has no address but {str(error)[:60]!r}", line)
        else:
            self._addresses.setdefault(index, {}).update(addresses)

    def identify(self, row: dict[str, str], number: int) -> None:
        """Note what an N row says of a socket.

        A new flow begins if the flow before it at this address is known to be another connection.
        """
        self._take_constant(row)
        try:
            identity = endpoints(row)
            socket = self._socket_of(row)
        except (ValueError, KeyError):
            self._refuse("no identity of a socket", number)
            return
        sockets = self._memory.tables.sockets
        index = int(sockets[socket, S_FLOW])
        known = self.of_flow(index) if index >= 0 else {}
        # The recorder names a socket before its first event, so a nameless flow is another's.
        numbered = sockets[socket, S_NEXT] != UNKNOWN
        begins = index < 0 or sockets[socket, S_IDENTITY] > 0
        if begins or _contradict(known, identity) or (numbered and not known):
            sockets[socket, S_LEFT] &= not _contradict(known, identity)
            self._identities.append(identity)
            sockets[socket, S_IDENTITY] = len(self._identities)
            self._take_beginning(row, socket)
        elif not known:
            self._addresses[index] = identity

    def leave(self, row: dict[str, str], number: int, for_good: bool) -> None:
        """Note that a socket has another congestion control: its next event begins a flow.

        A socket that is destroyed with it never comes back.
        """
        try:
            socket = self._socket_of(row)
        except (ValueError, KeyError):
            self._refuse("no socket that left BBR", number)
            return
        sockets = self._memory.tables.sockets
        index = int(sockets[socket, S_FLOW])
        if index < 0:
            return
        self._memory.tables.flows[index, F_LEFT] |= LEFT_BY_ROW
        self._identities.append({})
        sockets[socket, S_IDENTITY] = len(self._identities)
        sockets[socket, S_FROM] = 0
        sockets[socket, S_LEFT] = not for_good

    def _socket_of(self, row: dict[str, str]) -> int:
        """Return the socket that a row names, which may be new; KeyError, ValueError: none."""
        return self._memory.socket_at(as_signed(int(row["sk"], 16)))

    def _take_beginning(self, row: dict[str, str], socket: int) -> None:
        """Take what an N row says of a flow whose beginning was not kept."""
        numbers = {
            k: int(v) for k, v in row.items() if v.isascii() and v.isdecimal() and len(v) < 19
        }
        first = numbers.get("seqno", 0)
        self._memory.tables.sockets[socket, S_FROM] = first if first < 1 << 32 else 0
        if params := {k: n for k, n in numbers.items() if k.startswith("params.")}:
            self._begun[len(self._identities)] = params | {"ns": numbers.get("ns", 0)}

    def params_of_beginnings(self) -> list[dict[str, int]]:
        """Return v2's parameters of flows whose beginning was not kept, like `params`."""
        identities = self._memory.flows[:, F_IDENTITY].tolist()
        return [
            {"flow": number_of(index), **self._begun[identity]}
            for index, identity in enumerate(identities)
            if identity in self._begun
        ]

    def _take_params(self, index: int, ns: int, params: dict[str, int]) -> None:
        """Take a row of parameters, or the rest of the one that the flow's last row began."""
        merged = self._unfinished.get(index)
        if merged is None or merged.keys() & params.keys():
            merged = self._unfinished[index] = {"flow": number_of(index), "ns": ns}
            self.params.append(merged)
        merged.update(params)

    def _take_constant(self, row: dict[str, str]) -> None:
        """Note the kernel's MAX_TCP_HEADER, which the row of a socket holds."""
        text = row.get(MAX_HEADER, "")
        if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS:
            self._max_headers.add(int(text))


def _texts(tag: Tag, values: list[int], text: Text) -> dict[str, str]:
    """Return the addresses and ports of an init row as they were recorded."""
    texts = {}
    for column, value in zip(tag.columns, values, strict=False):
        if column.name in (*ADDRESSES, MAX_HEADER):
            at, size = value >> 16, value & 0xFFFF
            raw = text[at : at + size].tobytes()
            texts[column.name] = raw.decode("ascii", "replace")
        elif column.name in ("sport", "dport", "netns"):
            texts[column.name] = str(value)
    return texts


def _contradict(known: Endpoints, identity: Endpoints) -> bool:
    """Tell whether two descriptions of a connection name different ports or another peer."""
    names = ("sport", "dport", "daddr")
    return any(known[n] != identity[n] for n in names if n in known and n in identity)
