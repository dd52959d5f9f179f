"""Where the rows of a recording have the values that prove it complete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....probes.packed_columns import Part, places
from ...events.idle_growth import grew_idle

# Bytes acked and packets delivered are comparable only while a packet stays as large.
DELIVERED, ACKED, MSS = CHAIN = ("tp.delivered", "rs.acked_sacked", "tp.mss_cache")
# What shows that it grew while nothing was in flight.
IDLE = ("tp.packets_out", "rs.prior_delivered")
# Which connection a socket is, as a row of init() and an N row say.
ENDS = ("sport", "dport", "daddr")
# Where a row has a field, the tag itself being 0, and which part of a packed word it is.
Place = tuple[int, Part | None]


@dataclass(frozen=True)
class RowPlan:
    """Where the rows of a tag have the values that are checked: indices, the tag itself being 0.

    `chain` are the places of those columns of CHAIN that the row has, `whole` the same where it has
    all of them; `growing` are those of SET_BACK_BY_INIT, where a sample has the first of them;
    `gain` is where a row of main() has SET_BY_INIT, if it does; of what is behind `last` only that
    counts; `ends` is where a row that names a socket has ENDS, `cookie` where a sample has the
    socket's (0: nowhere); `idle` is where a row of main() has IDLE, where it has `whole`.
    """

    letters: str
    ns: int
    sk: int
    number: int
    chain: dict[str, int]
    whole: tuple[int, int, int] | None
    growing: tuple[Place, ...]
    gain: Place | None
    ends: tuple[int, ...]
    cookie: int
    idle: tuple[Place, ...]
    last: int

    def how_far(self, values: list[bytes]) -> int:
        """How far a sample says that BBR has come; -1: it does not say.

        A pipe that was found full counts for more than all rounds (of 32 bits).
        """
        come = -1 if not self.growing else 0
        for shift, place in zip((32, 0), self.growing, strict=False):
            come += value_at(values, place) << shift
        return come

    def cookie_in(self, values: list[bytes]) -> bytes:
        """The socket's cookie as a sample says it; 0 where a row does not, or it has none yet."""
        return values[self.cookie] if self.cookie else b"0"

    def ends_of(self, values: list[bytes]) -> tuple[bytes, ...]:
        """ENDS as a row says them."""
        return tuple(values[place] for place in self.ends)

    def flight_in(self, values: list[bytes]) -> bytes:
        """The word with tp.packets_out, as printed; empty where the row has not all of IDLE."""
        return values[self.idle[0][0]] if self.idle else b""

    def grew_idle(
        self, before: bytes, events: int, values: list[bytes], delivered: int, acked: int
    ) -> bool:
        """See `grew_idle`; `before` is what `flight_in` said of the call before."""
        if not self.idle or not before:
            return False
        (_, part), prior = self.idle
        in_flight = field_in(before, part)
        return grew_idle(in_flight, events, value_at(values, prior), delivered, acked)

    def found_state(self, values: list[bytes]) -> bool:
        """Whether a row of main() says that init() had been called before it."""
        if self.gain is None:
            return False
        return value_at([*values[:-1], *values[-1].split(b",")], self.gain) != 0


def value_at(values: Sequence[bytes], place: Place) -> int:
    """The field at that place."""
    at, part = place
    return field_in(values[at], part)


def field_in(printed: bytes, part: Part | None) -> int:
    """The field that is this part of a packed word, or that is printed by itself."""
    return part.of(int(printed, 16)) if part else int(printed)


def places_of(names: list[str], wanted: Sequence[str]) -> tuple[Place, ...]:
    """Where the wanted fields are, in their order; () if the row lacks the first."""
    found = {name: (at + 1, part) for at, name, part in places(tuple(names), frozenset(wanted))}
    return tuple(found[name] for name in wanted if name in found) if wanted[0] in found else ()
