"""A pcapng's packets without the other blocks that it may have.

Some versions of tshark take blocks that programs add of their own (FreeBSD's blackbox log, journal
entries, system calls) for packets, and number them; others do not.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from .capture_file import PCAP_MAGICS
from .capture_records import (
    ENHANCED_PACKET,
    INTERFACE,
    MOST_BYTES,
    OLD_PACKET,
    ORDER_MAGIC,
    SECTION,
    SIMPLE_PACKET,
)

_NEEDED = frozenset((SECTION, INTERFACE, OLD_PACKET, SIMPLE_PACKET, ENHANCED_PACKET))
_LEAST_BLOCK, _MOST_BLOCK = 12, 64 * MOST_BYTES


def packets_alone(source: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Leave out of a pcapng what is no packet, interface or section; all else stays as it is.

    Args:
        source: how much of the file was read, and the capture's bytes since then.

    From the first block on that makes no sense everything is passed on: tshark says what is wrong.
    """
    blocks, rest, done = _Blocks(), b"", 0
    for done, piece in source:
        kept, rest = blocks.kept(rest + piece)
        yield done, kept
    if rest:
        yield done, rest


class _Blocks:
    """Which blocks of a pcapng stay, piece by piece."""

    def __init__(self) -> None:
        self._order: str | None = None
        self._as_it_is = False

    def kept(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what stays of the whole blocks of `data`, and what follows them."""
        kept, begin, at = [], 0, 0
        while not self._as_it_is and at + _LEAST_BLOCK <= len(data):
            if data[at : at + 4] == PCAP_MAGICS[-1]:
                big = data[at + 8 : at + 12] == ORDER_MAGIC.to_bytes(4, "big")
                self._order = ">" if big else "<"
            if self._order is None:  # a pcap
                self._as_it_is = True
                break
            kind, size = struct.unpack_from(f"{self._order}II", data, at)
            if size % 4 or not _LEAST_BLOCK <= size <= _MOST_BLOCK:
                self._as_it_is = True
                break
            if at + size > len(data):
                break
            if kind not in _NEEDED:
                kept.append(data[begin:at])
                begin = at + size
            at += size
        end = len(data) if self._as_it_is else at
        return b"".join([*kept, data[begin:end]]), data[end:]
