"""Prove a recording complete from its own rows: sequence numbers, and tp.delivered's growth."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

SHOWN = 20
EVENT_ROWS = "MSEHULIT"


@dataclass
class Completeness:
    """What the rows say about what is missing.

    `sequence_missing` counts the numbers that no event of a socket carries; `chain_breaks` the
    calls of main() at which tp.delivered grew by other than rs.acked_sacked (a call before it
    went unseen, or the segment size changed); `first` shows where, as (row's ns, sk, why).
    """

    events: int = 0
    sockets: int = 0
    sequence_missing: int = 0
    chain_breaks: int = 0
    first: list[tuple[int, str, str]] = field(default_factory=list)

    def note(self, ns: str, sk: str, why: str) -> None:
        if len(self.first) < SHOWN:
            self.first.append((int(ns), sk, why))

    def as_dict(self) -> dict[str, object]:
        return {**vars(self), "first": [list(each) for each in self.first]}


# Bytes acked and packets delivered are comparable only while a packet stays as large.
CHAIN = ("tp.delivered", "rs.acked_sacked", "tp.mss_cache")


def check(path: Path) -> Completeness:
    """Read a recording's events once; memory is a few numbers per socket."""
    found = Completeness()
    places: dict[str, dict[str, int]] = {}
    expected: dict[str, int] = {}
    delivered: dict[str, tuple[int, int]] = {}
    parts: dict[str, dict[str, int]] = {}
    for line in lines(path):
        tag, _, rest = line.rstrip("\n").partition(",")
        if tag.startswith("#"):
            names = rest.split(",")
            places[tag[1:]] = {name: i for i, name in enumerate(names)}
            continue
        place = places.get(tag)
        if place is None or tag[0] not in EVENT_ROWS:
            continue
        values = rest.split(",")
        if "seqno" not in place:
            if tag[0] == "M":
                chain(found, delivered, parts, place, values)
            continue
        ns, sk, number = values[0], values[1], int(values[place["seqno"]])
        found.events += 1
        # Numbers start again when an address is used by the next socket.
        if number != expected.get(sk, number) and number != 0:
            missing = (number - expected[sk]) % (1 << 32)
            found.sequence_missing += missing
            found.note(ns, sk, f"{missing} events missing before number {number}")
            delivered.pop(sk, None)
        expected[sk] = number + 1
        if tag[0] == "I" or number == 0:
            delivered.pop(sk, None)
        if tag[0] == "M":
            parts.pop(sk, None)
            chain(found, delivered, parts, place, values)
    found.sockets = len(expected)
    return found


def chain(
    found: Completeness,
    delivered: dict[str, tuple[int, int]],
    parts: dict[str, dict[str, int]],
    place: dict[str, int],
    values: list[str],
) -> None:
    """Check one main(): tp.delivered(n) - tp.delivered(n-1) is rs.acked_sacked(n).

    `parts` holds what the event's earlier rows had of the three columns.
    """
    sk = values[1]
    known = parts.pop(sk, {})
    known |= {name: int(values[place[name]]) for name in CHAIN if name in place}
    if len(known) < len(CHAIN):
        parts[sk] = known
        return
    now, acked, mss = (known[name] for name in CHAIN)
    before = delivered.get(sk)
    delivered[sk] = (now, mss)
    if before is None or before[1] != mss:
        return
    grown = (now - before[0]) % (1 << 32)
    if grown != acked:
        found.chain_breaks += 1
        found.note(values[0], sk, f"tp.delivered grew by {grown}, rs.acked_sacked is {acked}")


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
