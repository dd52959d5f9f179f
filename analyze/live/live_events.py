"""From rows as they come to events of flows, by the columns of the table events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ...collect.events.addresses import endpoints, flow_name
from ...collect.events.lines import header
from ...collect.events.lines.header import (
    ADDRESSES,
    ENTRY,
    EXIT,
    IDENTITY,
    MAX_HEADER,
    PARAMETERS,
    Tag,
)
from ...collect.events.loop.open_events import PART_SPAN_NS
from ...collect.events.seqno import went_back
from ...probes.fields import FIELDS
from ...probes.leaving import SET_BY_INIT
from ...probes.packed_columns import Part

U32 = (1 << 32) - 1
U64 = (1 << 64) - 1
GAIN = FIELDS[SET_BY_INIT].column
# Text, or of no event: the identity of the socket.
ENDS = (*ADDRESSES, "sport", "dport", "netns")
# A socket that was silent for this long is forgotten.
SILENT_NS = 600_000_000_000


@dataclass
class LiveFlow:
    """A flow: its number from 1 in order of appearance, socket, addresses and parameters.

    `has_init` says that init() was called, seen or not: before it callbacks run on a zeroed struct
    bbr. `next_seqno` is the number of the flow's next event, -1 before its first.
    """

    number: int
    sk: str
    ends: dict[str, str | int] = field(default_factory=dict)
    params: dict[str, int] = field(default_factory=dict)
    max_header: int = 0
    has_init: bool = False
    has_delivered: bool = False
    next_seqno: int = -1
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


class _Form:
    """How the rows of a tag are read: where each value is, and its column of the table events."""

    def __init__(self, tag: Tag) -> None:
        self.tag = tag
        self.names = [column.name for column in tag.printed]
        self.ns, self.sk = self.names.index("ns"), self.names.index("sk")
        self.seqno = self.names.index("seqno") if "seqno" in self.names else None
        whole = [(i, c.target) for i, c in enumerate(tag.printed) if c.target]
        self._targets = [target for _, target in whole]
        self._places = [place for place, _ in whole]
        words: dict[int, list[tuple[str, Part]]] = {}
        for column in tag.columns:
            if column.part is not None and column.target:
                words.setdefault(column.word, []).append((column.target, column.part))
        self._words = list(words.items())

    def fill(self, stored: dict[str, int], values: list[bytes]) -> None:
        """Add what a row tells to an event's values.

        Raises:
            ValueError: they are no numbers, or none that the kernel has.
        """
        numbers = [int(values[i]) for i in self._places]
        if max(numbers, default=0) > U64:
            raise ValueError("more than 64 bits")
        stored.update(zip(self._targets, numbers, strict=True))
        for place, parts in self._words:
            word = int(values[place], 16)
            for target, part in parts:
                stored[target] = part.of(word)


class EventAssembler:
    """Puts rows together; an event is given out when it is whole, or when the next one begins.

    `version` is the BBR that the columns show.
    """

    def __init__(self, headers: Iterable[bytes]) -> None:
        lines = [line.decode().strip().removeprefix("#") for line in headers]
        self.header = header.parse(list(enumerate(lines, 1)), "the recorder's rows")
        self.columns = self.header.columns()
        self._forms = {tag.name.encode(): _Form(tag) for tag in self.header.tags if tag.part}
        self._is_numbered = any(form.seqno is not None for form in self._forms.values())
        self._skipped = {name.encode(): names for name, names in self.header.skipped.items()}
        self._all = {
            tag.kind: self.header.parts(tag.kind, (ENTRY, EXIT, PARAMETERS))
            for tag in self.header.tags
        }
        self._entry = {kind: self.header.parts(kind, (ENTRY,)) for kind in self._all}
        # Half of what a callback left says nothing of the other half.
        self._before = {
            tag.name: self.header.parts(tag.kind, (ENTRY, EXIT) if tag.role == EXIT else (ENTRY,))
            & (tag.part - 1)
            for tag in self.header.tags
        }
        # Once some were lost, those that follow need not be of one event.
        self._lacks_rows = False
        self._flows: dict[str, LiveFlow] = {}
        self._open: dict[str, LiveEvent] = {}
        self._count = 0

    def take(self, rows: Iterable[bytes]) -> Iterator[LiveEvent]:
        """Take rows in order of time; yield the events that they complete.

        An event of which a row of its entry was lost is dropped, as it is where it is read, and so
        is a row that another was printed over.
        """
        for line in rows:
            name, *values = line.rstrip(b"\n").split(b",")
            form = self._forms.get(name)
            if form is not None:
                try:
                    yield from filter(self._is_whole, self._row(form, values))
                except ValueError:
                    self._lacks_rows = True
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

    def _row(self, form: _Form, values: list[bytes]) -> Iterator[LiveEvent]:
        if len(values) != len(form.names):
            return
        tag = form.tag
        sk = values[form.sk].decode()
        if tag.role == ENTRY and tag.order == 0:
            if (last := self._open.pop(sk, None)) is not None:
                yield last
            self._open[sk] = self._event(form, sk, values)
        event, ns = self._open.get(sk), int(values[form.ns])
        if event is None or not self._continues(event, tag, ns):
            # An exit alone is of a call that was not seen: its number will be missing.
            self._lacks_rows |= tag.role != EXIT or not self._is_numbered
            # Callbacks on a socket never overlap: a row of another says that the open one is over.
            if event is not None:
                yield self._open.pop(sk)
            return
        form.fill(event.values, values)
        event.parts |= tag.part
        event.flow.last_ns = ns
        event.flow.has_delivered |= event.values.get("tp_delivered", 0) > 0
        event.flow.has_init |= event.values.get(GAIN, 0) > 0
        if tag.role == PARAMETERS:
            self._take_params(event.flow, form, values)
        if tag.kind == "init" and tag.order == 0:
            self._take_ends(event.flow, dict(zip(form.names, values, strict=True)))
        if tag.role == EXIT:
            event.values.setdefault("exit_ns", ns)
        if event.parts == self._all[tag.kind]:
            yield self._open.pop(sk)

    def _continues(self, event: LiveEvent, tag: Tag, ns: int) -> bool:
        """Whether a row is the next one of an event: collect/events/loop/open_events.py."""
        before = self._before[tag.name]
        if event.kind != tag.kind or event.parts & (tag.part | before) != before:
            return False
        return not self._lacks_rows or ns - event.flow.last_ns <= PART_SPAN_NS

    def _is_whole(self, event: LiveEvent) -> bool:
        """Whether it is an event of its flow, and every row of its entry has come."""
        entry = self._entry[event.kind]
        self._lacks_rows |= event.parts & entry != entry
        return event.parts & entry == entry and not _is_cleared(event)

    def _event(self, form: _Form, sk: str, values: list[bytes]) -> LiveEvent:
        kind = form.tag.kind
        seqno = -1 if form.seqno is None else int(values[form.seqno])
        flow = self._flows.get(sk)
        if flow is None or _begins_another(flow, kind, seqno):
            flow = self._begin(sk)
        self._lacks_rows |= min(seqno, flow.next_seqno) >= 0 and seqno != flow.next_seqno
        flow.has_init |= kind == "init"
        flow.next_seqno = (seqno + 1) & U32 if seqno >= 0 else -1
        flow.last_ns = int(values[form.ns])
        return LiveEvent(flow, kind, flow.last_ns, seqno, {})

    def _take_params(self, flow: LiveFlow, form: _Form, values: list[bytes]) -> None:
        pairs = zip(form.names, values, strict=True)
        flow.params |= {k: int(v) for k, v in pairs if k.startswith("params.")}

    def waiting(self, before_ns: int) -> Iterator[LiveEvent]:
        """Yield the open events that began before a time: nothing more of them will come."""
        for sk in [sk for sk, event in self._open.items() if event.ns < before_ns]:
            event = self._open.pop(sk)
            if self._is_whole(event):
                yield event
        for sk in [sk for sk, flow in self._flows.items() if flow.last_ns < before_ns - SILENT_NS]:
            del self._flows[sk]


def _begins_another(flow: LiveFlow, kind: str, seqno: int) -> bool:
    """Whether this event is of the socket's next flow: collect/events/loop/generations.py."""
    is_init, expected = kind == "init", flow.next_seqno
    if is_init and flow.has_init:
        return True
    return min(seqno, expected) >= 0 and went_back(seqno, expected, is_init)


def _is_cleared(event: LiveEvent) -> bool:
    """Whether it found a socket that tcp_disconnect() had cleared: collect/events/cleared.py."""
    values = event.values
    if event.kind != "set_state" or not (event.flow.has_init or event.flow.has_delivered):
        return False
    found = (values.get("new_state"), values.get("tp_delivered"))
    return found == (0, 0) and not any(v for k, v in values.items() if k.startswith("bbr_"))
