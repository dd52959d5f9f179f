"""Prove a recording complete from its own rows: sequence numbers, and tp.delivered's growth."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from ...bundle.exits import CALLS

SHOWN = 20
EVENT_ROWS = ("M", "S", "E", "H", "U", "L", "I", "T")
EXIT_OF = {call.entry: call.exit for call in CALLS}
ENTRY_OF = {call.exit: call.entry for call in CALLS}


@dataclass
class Completeness:
    """What the rows say about what is missing.

    `sequence_missing` counts the numbers that no event of a socket carries; `chain_breaks` the
    calls of main() at which tp.delivered grew by other than rs.acked_sacked (a call before it
    went unseen, or the segment size changed); `calls` counts calls of main() and init() by the tag
    of their entry row, `exits_missing` those of them whose exit row never came; `first` shows
    where, as (row's ns, sk, why).
    """

    events: int = 0
    sockets: int = 0
    sequence_missing: int = 0
    chain_breaks: int = 0
    calls: dict[str, int] = field(default_factory=dict)
    exits_missing: dict[str, int] = field(default_factory=dict)
    first: list[tuple[int, str, str]] = field(default_factory=list)

    def note(self, ns: str, sk: str, why: str) -> None:
        """Remember one of the first places where something is missing."""
        if len(self.first) < SHOWN:
            self.first.append((int(ns), sk, why))

    def as_dict(self) -> dict[str, object]:
        """The result as the manifest's `completeness`."""
        return {**vars(self), "first": [list(each) for each in self.first]}


# Bytes acked and packets delivered are comparable only while a packet stays as large.
CHAIN = ("tp.delivered", "rs.acked_sacked", "tp.mss_cache")


def check(path: Path) -> Completeness:
    """Read a recording's events once; memory is a few numbers per socket.

    Raises:
        IndexError, KeyError, ValueError: a row makes no sense.
    """
    checker = Checker()
    for line in lines(path):
        checker.read(line.rstrip("\n"))
    return checker.finish()


class Checker:
    """Goes through the rows of a recording in their order and counts what is missing."""

    def __init__(self) -> None:
        self.result = Completeness()
        self._places: dict[str, dict[str, int]] = {}
        self._next_number: dict[str, int] = {}
        self._delivered: dict[str, tuple[int, int]] = {}
        self._parts: dict[str, dict[str, int]] = {}
        self._inside: dict[str, tuple[str, str]] = {}  # socket -> entry tag and time of its call

    def read(self, line: str) -> None:
        """Take the next line: a header, a row, or talk that is skipped."""
        tag, _, rest = line.partition(",")
        if tag.startswith("#"):
            self._places[tag[1:]] = {name: i for i, name in enumerate(rest.split(","))}
            return
        place = self._places.get(tag)
        if place is None:
            return
        letters = tag.rstrip("0123456789")
        if letters in ENTRY_OF:
            self._leave(letters, rest.split(",")[place["sk"]])
        elif letters in EVENT_ROWS and "seqno" in place:
            self._event(letters, place, rest.split(","))
        elif letters == "M":
            self._check_delivered(place, rest.split(","))

    def finish(self) -> Completeness:
        """Return the result; calls that are still under way have no exit row."""
        for sk in list(self._inside):
            self._miss_exit(sk)
        self.result.sockets = len(self._next_number)
        return self.result

    def _event(self, letters: str, place: dict[str, int], values: list[str]) -> None:
        """The first row of an event."""
        ns, sk, number = (values[place[name]] for name in ("ns", "sk", "seqno"))
        self.result.events += 1
        self._check_number(ns, sk, int(number))
        if letters == "I" or int(number) == 0:
            self._delivered.pop(sk, None)
        if letters in EXIT_OF:
            self._enter(letters, ns, sk)
        if letters == "M":
            self._parts.pop(sk, None)
            self._check_delivered(place, values)

    def _check_number(self, ns: str, sk: str, number: int) -> None:
        # Numbers start again when an address is used by the next socket.
        expected = self._next_number.get(sk, number)
        if number not in (expected, 0):
            missing = (number - expected) % (1 << 32)
            self.result.sequence_missing += missing
            self.result.note(ns, sk, f"{missing} events missing before number {number}")
            self._delivered.pop(sk, None)
        self._next_number[sk] = number + 1

    def _enter(self, letters: str, ns: str, sk: str) -> None:
        self._miss_exit(sk)
        self._inside[sk] = letters, ns
        self.result.calls[letters] = self.result.calls.get(letters, 0) + 1

    def _leave(self, letters: str, sk: str) -> None:
        if self._inside.get(sk, ("", ""))[0] == ENTRY_OF[letters]:
            del self._inside[sk]

    def _miss_exit(self, sk: str) -> None:
        """The socket's call, if one is under way, never came to its exit row."""
        if sk not in self._inside:
            return
        letters, ns = self._inside.pop(sk)
        self.result.exits_missing[letters] = self.result.exits_missing.get(letters, 0) + 1
        self.result.note(ns, sk, f"{letters} has no {EXIT_OF[letters]}")

    def _check_delivered(self, place: dict[str, int], values: list[str]) -> None:
        """Check one main(): tp.delivered(n) - tp.delivered(n-1) is rs.acked_sacked(n).

        `_parts` holds what the event's earlier rows had of the three columns.
        """
        sk = values[place["sk"]]
        known = self._parts.pop(sk, {})
        known |= {name: int(values[place[name]]) for name in CHAIN if name in place}
        if len(known) < len(CHAIN):
            self._parts[sk] = known
            return
        now, acked, mss = (known[name] for name in CHAIN)
        before = self._delivered.get(sk)
        self._delivered[sk] = (now, mss)
        if before is None or before[1] != mss:
            return
        grown = (now - before[0]) % (1 << 32)
        if grown != acked:
            self.result.chain_breaks += 1
            why = f"tp.delivered grew by {grown}, rs.acked_sacked is {acked}"
            self.result.note(values[place["ns"]], sk, why)


def lines(path: Path) -> Iterator[str]:
    """Decompressed lines; a stream cut short ends at its last whole line."""
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        text = io.TextIOWrapper(reader, encoding="ascii", errors="replace")
        try:
            for line in text:
                if line.endswith("\n"):
                    yield line
        except zstandard.ZstdError:
            return
