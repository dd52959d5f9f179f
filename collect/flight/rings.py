"""The rings of one recording: they share its memory, and a dump has what all of them cover."""

from __future__ import annotations

from dataclasses import dataclass

from ...probes.base.errors import HostError
from ...probes.base.plurals import plural
from ..bundle.bundle import EVENTS, PACKETS, QUEUE, SS
from ..record.captures import samplers
from ..record.output.outputs import Output
from ..record.output.stream import STALLED_NS
from .event_ring import EventRing
from .packet_ring import PacketRing
from .text_ring import TextRing

# Parts of the memory, of 16.
SHARES = {EVENTS: 10, PACKETS: 4, SS: 1, QUEUE: 1}
LEAST_BYTES = 4_000_000
# A dump waits so long for rows of its time: where flows are silent, none says that it is over.
WAIT_NS = STALLED_NS + 2_000_000_000
# What a ring holds more than is asked for: a dump may wait, for a rotation before it, too, and
# pieces go as a whole.
MARGIN_NS = 2 * WAIT_NS + 2_000_000_000

NO_PACKETS = "packets of the window are missing: their clock was set back, or --memory is too small"


@dataclass(frozen=True)
class Covered:
    """A window that every ring covers [ns, CLOCK_MONOTONIC]; `short` names those that overran.

    `packets` tells whether packets are of it, too.
    """

    from_ns: int
    until_ns: int
    short: tuple[str, ...]
    packets: bool = True


class Rings:
    """Outputs in memory, together never more than `memory` bytes.

    `began_ns` [CLOCK_MONOTONIC] is when what fills them had all been started.

    Raises:
        HostError: `memory` is less than LEAST_BYTES.
    """

    def __init__(self, last_ns: int, memory: int) -> None:
        if memory < LEAST_BYTES:
            raise HostError(
                f"--memory {plural(memory, 'byte')} holds next to nothing",
                f"give at least {LEAST_BYTES // 10**6}M",
            )
        self.last_ns = last_ns
        self.memory = memory
        self.began_ns = 0
        self.events: EventRing | None = None
        self.packets: PacketRing | None = None
        self.texts: dict[str, TextRing] = {}

    def open(self, name: str) -> Output:
        """A new ring."""
        span, most = self.last_ns + MARGIN_NS, self.memory * SHARES[name] // 16
        if name == EVENTS:
            self.events = EventRing(span, most)
            return self.events
        if name == PACKETS:
            self.packets = PacketRing(span, most)
            return self.packets
        self.texts[name] = TextRing(span, most, samplers.QUEUE_HEADER if name == QUEUE else "")
        return self.texts[name]

    def drop(self, name: str) -> None:
        """Forget a ring."""
        if name == EVENTS:
            self.events = None
        elif name == PACKETS:
            self.packets = None
        else:
            self.texts.pop(name, None)

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        rings = [self.events, self.packets, *self.texts.values()]
        return sum(ring.written for ring in rings if ring is not None)

    def fill(self, since_ns: int, real_ahead_ns: int) -> float:
        """How full the fullest ring is with what came since: the share of its part of `memory`.

        What came before gives way to it. `real_ahead_ns` is as in `looked`.
        """
        since = dict.fromkeys((EVENTS, *self.texts), since_ns) | {PACKETS: since_ns + real_ahead_ns}
        rings = {EVENTS: self.events, PACKETS: self.packets, **self.texts}
        return max(
            (ring.written - ring.ring.size_before(since[name])) / (self.memory * SHARES[name] / 16)
            if ring
            else 0.0
            for name, ring in rings.items()
        )

    def looked(self, ns: int, real_ahead_ns: int) -> None:
        """Remember up to when triggers have looked: what a dump may ask for is not too old.

        `real_ahead_ns` is what CLOCK_REALTIME, the packets' clock, is ahead of CLOCK_MONOTONIC.
        """
        if self.events is not None:
            self.events.ring.looked_ns = ns
        if self.packets is not None:
            self.packets.ring.looked_ns = ns + real_ahead_ns
        for text in self.texts.values():
            text.ring.looked_ns = ns

    def window(self, until_ns: int, real_ahead_ns: int, from_ns: int | None = None) -> Covered:
        """The last seconds before `until_ns`, or from `from_ns` on, as far as all rings reach.

        `real_ahead_ns` is as above. Packets alone are done without where they hold nothing of it:
        after their clock was set back, what was forgotten seems newer than all that comes.

        Raises:
            HostError: not even its last moment is held any more.
        """
        wanted = until_ns - self.last_ns if from_ns is None else from_ns
        wanted = max(wanted, self.began_ns)
        reach = {
            name: ring.ring.covered_from_ns for name, ring in self.texts.items() if ring.ring.size
        }
        if self.events is not None:
            reach["events"] = self.events.ring.covered_from_ns
        packets = True
        if self.packets is not None and self.packets.ring.covered_from_ns:
            covered = self.packets.ring.covered_from_ns - real_ahead_ns
            packets = covered < until_ns
            if packets:
                reach["packets"] = covered
        short = tuple(name for name, covered in reach.items() if covered > wanted)
        begin = max([wanted, *reach.values()])
        if short and begin >= until_ns:
            raise HostError(
                f"of the time before the trigger {' and '.join(short)} hold nothing any more",
                "a larger --memory holds more",
            )
        return Covered(begin, until_ns, short, packets)
