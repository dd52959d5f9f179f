"""From rows as they come to events of flows, by the columns of the table events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...collect.events.addresses import endpoints, flow_name
from ...collect.events.lines import header
from ...collect.events.lines.header import (
    ADDRESSES,
    IDENTITY,
    MAX_HEADER,
    PARAMETERS,
    SINGLE,
    HeaderColumn,
    Tag,
)

# Text, or of no event: the identity of the socket.
ENDS = (*ADDRESSES, "sport", "dport", "netns")
# A socket that was silent for this long is forgotten.
SILENT_NS = 600_000_000_000


@dataclass
class LiveFlow:
    """A flow: its number from 1 in order of appearance, socket, addresses and parameters.

    `begins` is true until its first event: a flow that is introduced by a row of its own may run
    callbacks on a zeroed struct bbr before init.
    """

    number: int
    sk: str
    ends: dict[str, str | int] = field(default_factory=dict)
    params: dict[str, int] = field(default_factory=dict)
    max_header: int = 0
    has_init: bool = False
    has_delivered: bool = False
    last_ns: int = 0

    @property
    def name(self) -> str:
        """Local and remote address, as far as they are known."""
        return flow_name(self.ends, self.sk)


@dataclass
class LiveEvent:
    """An event: its kind, time [ns, CLOCK_MONOTONIC], number on its socket (-1: not numbered).

    `values` are by column of the table events; what was not recorded is not there. `parts` are the
    bits of the rows seen.
    """

    flow: LiveFlow
    kind: str
    ns: int
    seqno: int
    values: dict[str, int]
    parts: int = 0


class EventAssembler:
    """Puts rows together; an event is given out when it is whole, or when the next one begins.

    `version` is the BBR that the columns show.
    """

    def __init__(self, headers: Iterable[bytes]) -> None:
        lines = [line.decode().strip().removeprefix("#") for line in headers]
        self.header = header.parse(list(enumerate(lines, 1)), "the recorder's rows")
        self.columns = self.header.columns()
        self._tags = {tag.name.encode(): tag for tag in self.header.tags if tag.role != SINGLE}
        self._printed = {name: tag.printed for name, tag in self._tags.items()}
        self._words = {
            name: [i for i, c in enumerate(columns) if c.packed]
            for name, columns in self._printed.items()
        }
        self._stored = {
            name: [(i, c, c.target) for i, c in enumerate(tag.columns) if c.target]
            for name, tag in self._tags.items()
        }
        self._skipped = {name.encode(): names for name, names in self.header.skipped.items()}
        self._all = {
            tag.kind: self.header.parts(tag.kind, ("entry", "exit", PARAMETERS))
            for tag in self.header.tags
        }
        self._flows: dict[str, LiveFlow] = {}
        self._open: dict[str, LiveEvent] = {}
        self._count = 0

    def take(self, rows: Iterable[bytes]) -> Iterator[LiveEvent]:
        """Take rows in order of time; yield the events that they complete."""
        for line in rows:
            name, *values = line.rstrip(b"\n").split(b",")
            tag = self._tags.get(name)
            if tag is not None:
                yield from (one for one in self._row(tag, name, values) if not _is_cleared(one))
            elif name.startswith(IDENTITY.encode()) and name in self._skipped:
                self._identify(dict(zip(self._skipped[name], values, strict=False)))

    def _identify(self, row: dict[str, bytes]) -> None:
        """A row that introduces a socket's next flow."""
        sk = row.get("sk", b"").decode()
        self._open.pop(sk, None)
        self._take_ends(self._begin(sk), row)

    def _begin(self, sk: str) -> LiveFlow:
        self._count += 1
        self._flows[sk] = LiveFlow(self._count, sk)
        return self._flows[sk]

    def _take_ends(self, flow: LiveFlow, row: dict[str, bytes]) -> None:
        texts = {k: v.decode() for k, v in row.items() if k in ENDS and v}
        try:
            flow.ends |= endpoints(texts)
        except ValueError:
            return
        if (text := row.get(MAX_HEADER, b"")).isdigit():
            flow.max_header = int(text)

    def _row(self, tag: Tag, name: bytes, values: list[bytes]) -> Iterator[LiveEvent]:
        columns = self._printed[name]
        if len(values) != len(columns):
            return
        row = dict(zip((c.name for c in columns), values, strict=True)) if tag.order == 0 else {}
        sk = (row["sk"] if row else values[_place(tag, "sk")]).decode()
        if tag.role == "entry" and tag.order == 0:
            if (before := self._open.pop(sk, None)) is not None:
                yield before
            self._open[sk] = self._event(tag, sk, row)
        event = self._open.get(sk)
        if event is None or event.kind != tag.kind or event.parts & tag.part:
            return
        event.parts |= tag.part
        words = {i: int(values[i], 16) for i in self._words[name]}
        for i, column, target in self._stored[name]:
            event.values[target] = _value(i, column, values, words)
        event.flow.has_delivered |= event.values.get("tp_delivered", 0) > 0
        if tag.role == PARAMETERS:
            self._take_params(event.flow, tag, values)
        if tag.kind == "init" and row:
            self._take_ends(event.flow, row)
        if tag.role == "exit":
            event.values.setdefault("exit_ns", int(values[_place(tag, "ns")]))
        if event.parts == self._all[tag.kind]:
            yield self._open.pop(sk)

    def _event(self, tag: Tag, sk: str, row: dict[str, bytes]) -> LiveEvent:
        seqno = int(row.get("seqno", b"-1"))
        flow = self._flows.get(sk)
        again = flow is not None and flow.has_init and tag.kind == "init"
        if flow is None or again:
            flow = self._begin(sk)
        flow.has_init |= tag.kind == "init"
        flow.last_ns = int(row["ns"])
        return LiveEvent(flow, tag.kind, flow.last_ns, seqno, {})

    def _take_params(self, flow: LiveFlow, tag: Tag, values: list[bytes]) -> None:
        pairs = zip((c.name for c in tag.printed), values, strict=True)
        flow.params |= {k: int(v) for k, v in pairs if k.startswith("params.")}

    def waiting(self, before_ns: int) -> Iterator[LiveEvent]:
        """Yield the open events that began before a time: nothing more of them will come."""
        for sk in [sk for sk, event in self._open.items() if event.ns < before_ns]:
            yield self._open.pop(sk)
        for sk in [sk for sk, flow in self._flows.items() if flow.last_ns < before_ns - SILENT_NS]:
            del self._flows[sk]


def _is_cleared(event: LiveEvent) -> bool:
    """Whether it found a socket that tcp_disconnect() had cleared: collect/events/cleared.py."""
    values = event.values
    if event.kind != "set_state" or not (event.flow.has_init or event.flow.has_delivered):
        return False
    found = (values.get("new_state"), values.get("tp_delivered"))
    return found == (0, 0) and not any(v for k, v in values.items() if k.startswith("bbr_"))


def _value(index: int, column: HeaderColumn, values: list[bytes], words: dict[int, int]) -> int:
    """A stored value, by its place among the columns of its row, or of one of its words."""
    if column.part is None:
        return int(values[index])
    return column.part.of(words[column.word])


def _place(tag: Tag, name: str) -> int:
    return next(i for i, column in enumerate(tag.columns) if column.name == name)
