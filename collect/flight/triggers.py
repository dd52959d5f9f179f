"""What a flight recorder waits for, of what the rows tell by themselves.

A timeout, a rate that stays low, a burst of losses; a signal always counts. What only the estimator
or SQL can tell is in analyze/live/.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...probes.base.errors import BbrscopeError, HostError
from ...probes.base.plurals import plural
from ...probes.packed_columns import Numbers, numbers
from ..bundle.rungs import named_rung
from ..events.addresses import endpoints, flow_name
from ..lab import units
from .beginnings import Columns

LOSS_STATE = 4  # enum tcp_ca_state: TCP_CA_Loss, which a timeout enters
U32 = (1 << 32) - 1
RATE = re.compile(r"rate<([^/]+)/([^/]+)")
LOSSES = re.compile(r"losses>=?(\d{1,9})/([^/]+)")
# A flow that was silent for this long may be gone; nothing says so but its silence.
SILENT_NS = 60_000_000_000
# Rungs with a row at every ACK, with rows at all, and with decisions.
OF_EVERY_ACK = ("fentry", "kprobe", "tcp_probe")
OF_EVENTS = (*OF_EVERY_ACK, "phases")
OF_DECISIONS = ("fentry", "kprobe")
# What is looked at in a row.
WANTED = frozenset(
    "ns tp.packets_out new_state icsk_ca_state tp.snd_una tp.snd_nxt tp.lost".split()
)
LOOKED_AT = (b"M", b"S", b"T", b"I", b"N", b"R")
# What an ACK has sent again comes within this; what comes later, a timer has.
BY_ACK_NS = 10_000_000
# The rows that introduce a flow.
BEGINNINGS = (b"I", b"I0", b"N", b"N0")
# Marks of a flow's progress are kept this far apart, as part of what is asked for.
MARKS = 50


@dataclass(frozen=True)
class LiveBatch:
    """Rows in order of time, and the columns of their tags.

    `now_ns` [CLOCK_MONOTONIC] is the present of these rows: the clock itself is ORDER_NS ahead.
    """

    columns: Columns
    rows: list[bytes]
    now_ns: int


@dataclass(frozen=True)
class Happened:
    """What fires a trigger, in words, and when it was [ns, CLOCK_MONOTONIC].

    That is the time of its row, however late somebody looks at it.
    """

    why: str
    ns: int


class Watcher(Protocol):
    """Looks at the rows as they come."""

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Learn what the recording is, from its manifest at the start.

        Raises:
            HostError: it never has what would fire the trigger.
        """

    def check(self, batch: LiveBatch) -> Happened | None:
        """Return what has happened, the first of several; None while nothing has."""


@dataclass
class Seen:
    """What the last rows of a flow said, and what follows from them.

    `name` says who the flow is, `ns` is the time of the last row, `acked` tp.snd_una, `sent`
    tp.snd_nxt, `lost` tp.lost and `state` enum tcp_ca_state (-1: not seen yet). `is_idle` tells
    that nothing is in flight, or was since the row before, `is_waiting` that since the last ACK a
    timer has sent something again. `total` counts the bytes acknowledged, `losses` the packets
    marked lost since the row before. `marks` are times [ns] with `total` (LowRate) or with `losses`
    (LossBurst).
    """

    name: str
    ns: int = 0
    is_idle: bool = True
    is_waiting: bool = False
    acked: int = -1
    sent: int = -1
    lost: int = -1
    state: int = -1
    total: int = 0
    losses: int = 0
    marks: deque[tuple[int, int]] = field(default_factory=deque)


class FlowWatcher:
    """Follows every flow's progress; a subclass says what is worth a dump."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.flows: dict[bytes, Seen] = {}

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Refuse rungs without a row at every ACK: progress cannot be judged there.

        Raises:
            HostError: the recording is by such a rung.
        """
        needs_rung(self.text, manifest, OF_EVERY_ACK)

    def check(self, batch: LiveBatch) -> Happened | None:
        """Follow the rows, then judge."""
        first = None
        for line in batch.rows:
            tag, *values = line.rstrip(b"\n").split(b",")
            names = batch.columns.get(tag)
            if names is None or len(names) != len(values) or not tag.startswith(LOOKED_AT):
                continue
            try:
                row = numbers(names, values, WANTED)
            except ValueError:  # another row was printed over it
                continue
            sk = values[names.index("sk")]
            if tag in BEGINNINGS:  # another flow may have this address now
                self._begin_flow(tag, sk, Seen(_name(names, values, sk), row["ns"]))
            elif tag[:1] not in b"IN" or tag[:2] == b"IX":
                why = self._row(tag[:1], sk, row)
                first = first or (Happened(why, row["ns"]) if why else None)
        return first or self.judge(batch.now_ns)

    def _begin_flow(self, tag: bytes, sk: bytes, flow: Seen) -> None:
        flow.state = 0 if tag.startswith(b"I") else -1
        # A sample introduces the flow, too: what was sent again may have come before it.
        known = self.flows.get(sk)
        flow.is_waiting = known is not None and known.acked < 0 and known.is_waiting
        self.flows[sk] = flow

    def _row(self, letter: bytes, sk: bytes, row: Numbers) -> str:
        flow = self.flows.setdefault(sk, Seen(flow_name({}, sk.decode())))
        was_waiting = flow.is_waiting
        if letter in b"RS":
            flow.is_waiting |= row["ns"] - flow.ns > BY_ACK_NS
        elif "tp.packets_out" in row:
            flow.is_waiting = False
        flow.ns = row["ns"]
        # S rows have the state before it, too. The first sample of a flow has none: what it shows
        # is new if a timer has sent something again since the recording began.
        before = row.get("icsk_ca_state", flow.state) if "new_state" in row else flow.state
        before = 0 if before < 0 and letter == b"T" and was_waiting else before
        flow.state = row.get("new_state", row.get("icsk_ca_state", flow.state))
        if (out := row.get("tp.packets_out")) is not None:
            flow.is_idle = out == 0
        if (now := row.get("tp.snd_una")) is not None:
            # main() comes after its ACK was taken in, a sample before: the next one shows that.
            flow.is_idle |= letter == b"T" and now == flow.sent
            flow.total += ((now - flow.acked) & U32) if flow.acked >= 0 else 0
            flow.acked = now
        flow.sent = row.get("tp.snd_nxt", flow.sent)
        if (now := row.get("tp.lost")) is not None:
            flow.losses = ((now - flow.lost) & U32) if flow.lost >= 0 else 0
            flow.lost = now
        return self.event(flow, before)

    def event(self, flow: Seen, before: int) -> str:
        """Judge one row of a flow, whose state (enum tcp_ca_state) was `before`."""
        return ""

    def judge(self, now_ns: int) -> Happened | None:
        """Judge all flows at a time; those silent for long are forgotten."""
        gone = [sk for sk, flow in self.flows.items() if flow.ns < now_ns - SILENT_NS]
        for sk in gone:
            del self.flows[sk]
        return next((Happened(why, now_ns) for why in self.judged(now_ns)), None)

    def judged(self, now_ns: int) -> Iterator[str]:
        """Yield what is worth a dump now."""
        yield from ()


class Timeouts(FlowWatcher):
    """`rto`: a flow's retransmission timer expired, TCP entered the state Loss."""

    def event(self, flow: Seen, before: int) -> str:
        """Whether Loss was just entered; of an old flow's first row nothing says when."""
        if flow.state == LOSS_STATE != before >= 0:
            return f"a retransmission timeout of {flow.name}"
        return ""


class LowRate(FlowWatcher):
    """`rate<5mbit/3s`: snd_una of a flow with data in flight advanced less than that for so long.

    Data that was only SACKed does not count. A flow from which nothing comes may have been closed,
    or have nothing more to send, which a sample of its last ACK does not show: it is judged up to
    its last row, unless a timer has sent something again since.
    """

    def __init__(self, text: str, bits: int, span_ns: int) -> None:
        super().__init__(text)
        self.bits = bits
        self.span_ns = span_ns

    def event(self, flow: Seen, before: int) -> str:
        """Mark the progress; when nothing is in flight, the span begins anew."""
        if flow.is_idle:
            flow.marks.clear()
        elif not flow.marks or flow.ns - flow.marks[-1][0] > self.span_ns // MARKS:
            flow.marks.append((flow.ns, flow.total))
        return ""

    def judged(self, now_ns: int) -> Iterator[str]:
        """Flows that were below the rate for the whole span."""
        for flow in self.flows.values():
            until_ns = now_ns if flow.is_waiting else flow.ns
            from_ns, marks = until_ns - self.span_ns, flow.marks
            while len(marks) > 1 and marks[1][0] <= from_ns:
                marks.popleft()
            if marks and marks[0][0] <= from_ns:
                seconds = (until_ns - marks[0][0]) / 1e9
                bits = 8 * (flow.total - marks[0][1]) / seconds
                if bits < self.bits:
                    marks.clear()  # the next dump needs as long again
                    yield (
                        f"{flow.name} delivered {_mbit(bits)} Mbit/s for"
                        f" {seconds:.1f} s, less than {_mbit(self.bits)}"
                    )


class LossBurst(FlowWatcher):
    """`losses>=100/1s`: a flow lost so many packets within that time."""

    def __init__(self, text: str, packets: int, span_ns: int) -> None:
        super().__init__(text)
        self.packets = packets
        self.span_ns = span_ns

    def event(self, flow: Seen, before: int) -> str:
        """Count the losses of the span."""
        if not flow.losses:
            return ""
        flow.marks.append((flow.ns, flow.losses))
        flow.losses = 0
        while flow.marks and flow.marks[0][0] <= flow.ns - self.span_ns:
            flow.marks.popleft()
        lost = sum(count for _, count in flow.marks)
        if lost < self.packets:
            return ""
        flow.marks.clear()
        return f"{flow.name} lost {plural(lost, 'packet')} within {self.span_ns / 1e9:g} s"


class SignalOnly(FlowWatcher):
    """`signal`: SIGUSR1, which writes a dump whatever else is waited for."""

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Every rung will do."""

    def check(self, batch: LiveBatch) -> None:
        """Rows say nothing."""


def _mbit(bits: float) -> str:
    """Bits as Mbit, with three digits or all that stand before the point.

    >>> _mbit(1_384_000), _mbit(2e9)
    ('1.38', '2000')
    """
    mbit = bits / 1e6
    return f"{mbit:.3g}" if mbit < 999.5 else f"{mbit:.0f}"


def _name(columns: Sequence[str], values: Sequence[bytes], sk: bytes) -> str:
    """Who a flow is by the row that introduces it."""
    row = {name: text.decode() for name, text in zip(columns, values, strict=False) if text}
    try:
        return flow_name(endpoints(row), sk.decode())
    except ValueError:
        return flow_name({}, sk.decode())


def needs_rung(trigger: str, manifest: Mapping[str, Any], rungs: Sequence[str]) -> None:
    """Refuse a trigger that would never fire, rather than wait for it for weeks.

    Raises:
        HostError: the recording is by another rung than these.
    """
    if (rung := named_rung(manifest)) not in rungs:
        raise HostError(
            f"--until {trigger} never fires by {rung}: it needs {' or '.join(rungs)}",
            "bbrscope doctor says what this host lacks; --until signal works on every rung",
        )


def of_rows(text: str) -> Watcher | None:
    """The watcher of a trigger that the rows tell by themselves; None: it is of another kind.

    Raises:
        BbrscopeError: its numbers are not understood.
    """
    if text == "signal":
        return SignalOnly(text)
    if text == "rto":
        return Timeouts(text)
    if match := RATE.fullmatch(text):
        return LowRate(text, units.rate(match[1]), _span(match[2]))
    if match := LOSSES.fullmatch(text):
        return LossBurst(text, int(match[1]), _span(match[2]))
    return None


def _span(text: str) -> int:
    """A positive time in ns."""
    span = units.time_us(text) * 1000
    if span <= 0:
        raise BbrscopeError(f"time {text!r} is not positive", "write 3s or 500ms")
    return span
