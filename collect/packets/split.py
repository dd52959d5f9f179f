"""Sort a capture's packets by connection, so that tshark need not see all of them at once.

What tshark says of a packet depends on earlier packets of its connection, and on nothing else, but
it keeps some 0.5 kB of every packet as long as it runs. So each connection goes, whole and in
order, to one of a few files, and tshark takes some of these at a time: its memory is divided, and
several can work at once. Headers are read only to tell connections apart, and payload, which
tshark is told not to dissect, is left behind; what is not plainly TCP over IP stays whole and
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from ..bundle.zstd import DamagedError
from .capture_file import pieces
from .capture_records import (
    BIG,
    CAPTURED,
    FORMAT,
    GROUPS,
    LINK,
    MOST_INTERFACES,
    PCAPNG,
    SECTION,
    STRANGE,
    gather,
    sort_records,
)

Groups = npt.NDArray[np.int8]
Lengths = npt.NDArray[np.uint32]


class CannotSplitError(Exception):
    """Not a capture whose records are understood here; tshark may know better, or say why."""


class Sorted:
    """A capture's packets in files by group.

    Attributes:
        groups: of each frame, in the order of the capture.
        captured: bytes of each frame that were captured; the files have less.
        damage: why the capture ends early, or None.
        bytes: size of all files together.
        header: length in bytes of the header that each file begins with (24 for pcap, 0 for
            pcapng): leave it out of all but the first when several are joined.

    Raises:
        CannotSplitError: not a capture whose records are understood here.
        OSError: cannot be read, or there is no room in `folder`.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self._folder = folder
        self._state = np.zeros(4, np.int64)
        self._links = np.zeros(MOST_INTERFACES, np.int64)
        self.header = self.bytes = 0
        self.damage: str | None = None
        parts: list[tuple[Groups, Lengths]] = []
        rest = b""
        with ExitStack() as files:
            outs = [files.enter_context(open(self.file(g), "wb")) for g in range(GROUPS)]
            try:
                for _, piece in pieces(path):
                    rest = self._sort(rest + piece, outs, parts)
            except DamagedError as error:
                self.damage = str(error)
        if rest and self.damage is None:
            self.damage = "the file ends in the middle of a packet"
        self.groups = np.concatenate([groups for groups, _ in parts])
        self.captured = np.concatenate([captured for _, captured in parts])

    def file(self, group: int) -> Path:
        """Return the file of a group."""
        return self._folder / f"group{group}"

    def _sort(
        self, data: bytes, outs: Sequence[IO[bytes]], parts: list[tuple[Groups, Lengths]]
    ) -> bytes:
        """Write the whole records of `data`; return what is left of it."""
        if not parts:
            data = self._begin(data, outs)
        text = np.frombuffer(data, np.uint8)
        most = len(data) // 12 + 1
        records, groups = np.empty((most, 5), np.int64), np.empty(most, np.int8)
        stop = np.zeros(6, np.int64)
        count = sort_records(text, len(data), self._state, self._links, records, groups, stop)
        if stop[5] == STRANGE:
            raise CannotSplitError
        groups, packets = groups[:count], groups[:count] >= 0
        out = np.empty(len(data), np.uint8)
        for group in np.unique(groups) if packets.all() else range(GROUPS):
            chosen = np.flatnonzero((groups == group) | (groups == -1))
            done = gather(text, int(self._state[FORMAT]), records, chosen, out)
            outs[group].write(out[:done].data)
            self.bytes += done
        parts.append((groups[packets], records[:count, CAPTURED][packets].astype(np.uint32)))
        return data[stop[4] :]

    def _begin(self, data: bytes, outs: Sequence[IO[bytes]]) -> bytes:
        """Read the header of the file; return what follows it."""
        magic = data[:4]
        if magic == SECTION.to_bytes(4, "big"):
            self._state[FORMAT] = PCAPNG
            return data
        orders = {
            b"\xd4\xc3\xb2\xa1": "little",
            b"\x4d\x3c\xb2\xa1": "little",
            b"\xa1\xb2\xc3\xd4": "big",
            b"\xa1\xb2\x3c\x4d": "big",
        }
        if magic not in orders or len(data) < 24:
            raise CannotSplitError
        big = orders[magic] == "big"
        self._state[BIG] = big
        self._state[LINK] = int.from_bytes(data[20:24], "big" if big else "little") & 0xFFFF
        self.header = 24
        for out in outs:
            out.write(data[:24])
        return data[24:]
