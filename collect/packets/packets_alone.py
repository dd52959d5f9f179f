"""A pcapng's packets without the other blocks that it may have.

Some versions of tshark take blocks that programs add of their own (FreeBSD's blackbox log, journal
entries, system calls) for packets, and number them; others do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .capture_blocks import PACKETS, heading, is_size
from .capture_file import PCAP_MAGICS
from .capture_records import INTERFACE, LARGEST_BLOCK, LEAST_BLOCK, SECTION

_NEEDED = frozenset((SECTION, INTERFACE, *PACKETS))


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
        self._order = ""
        self._as_it_is = False

    def kept(self, data: bytes) -> tuple[bytes, bytes]:
        """Return what stays of the whole blocks of `data`, and what follows them."""
        kept, begin, at = [], 0, 0
        while not self._as_it_is and at + LEAST_BLOCK <= len(data):
            if not self._order and data[:4] != PCAP_MAGICS[-1]:  # a pcap
                self._as_it_is = True
                break
            self._order, kind, size = heading(data, at, self._order)
            if not is_size(size, LARGEST_BLOCK):
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
