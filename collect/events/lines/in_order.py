"""The text of an event stream with its rows in order of time.

bpftrace prints the rows of each CPU in order, but those of several as it comes to them: on a busy
host seconds apart. `collect` sorts them as they come; what a killed script left was never sorted.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from ....probes.base.closing import Closing
from ....probes.base.errors import BundleError
from ....probes.base.scratch import temporary_folder
from ...bundle.zstd import DamagedError, ZstdFile

READ_BYTES = 1 << 20
# So much text is sorted in memory at a time.
SORTED_BYTES = 32 << 20
_ROW = re.compile(rb"[A-Z]+[0-9]?,([0-9]{1,20}),")
# A line with the time of its row; one that is no row stays behind the row before it.
_Timed = tuple[int, bytes]


class InOrder(Closing):
    """The decompressed content of a file, as ZstdFile gives it, its rows in order of time.

    Args:
        longest: no line of a recording has more bytes: what follows is not read.
        most: bytes of text that are read at most.

    Attributes:
        late: rows that came after newer ones; known once something was read.

    Raises:
        BundleError: the file is not zstd at all, or there is no room to sort its rows.
    """

    def __init__(self, path: Path, shown: str, longest: int, most: int) -> None:
        self.late = 0
        self._longest, self._most = longest, most
        self._damage: DamagedError | None = None
        self._parts: list[IO[bytes]] = []
        self._rest = memoryview(b"")
        self._file = ZstdFile(path, shown)
        self._sorted = self._sort()

    def close(self) -> None:
        """Close the file, and forget what was sorted."""
        for part in self._parts:
            part.close()
        self._file.close()

    @property
    def compressed(self) -> int:
        """How many compressed bytes were read so far."""
        return self._file.compressed

    def readinto(self, target: memoryview) -> int:
        """Fill `target` as far as there is content; return the number of bytes, 0 at the end.

        Raises:
            DamagedError: the file is corrupt, or cut off here.
        """
        filled = 0
        while filled < len(target):
            if not self._rest:
                self._rest = memoryview(next(self._sorted, b""))
                if not self._rest:
                    break
            count = min(len(self._rest), len(target) - filled)
            target[filled : filled + count] = self._rest[:count]
            self._rest = self._rest[count:]
            filled += count
        if filled == 0 and self._damage is not None:
            raise self._damage
        return filled

    def _sort(self) -> Iterator[bytes]:
        """Sort the text in parts, each in a file without a name; return its lines in order."""
        part, size, ns, newest = list[_Timed](), 0, -1, -1
        for lines in self._pieces():
            for line in lines:
                if row := _ROW.match(line):
                    ns = int(row[1])
                    self.late += ns < newest
                    newest = max(newest, ns)
                part.append((ns, line))
                size += len(line)
            if size > SORTED_BYTES:
                self._parts.append(_written(part))
                part, size = [], 0
        # A line that the end of the file cuts stays the last.
        tail = part.pop()[1] if part and not part[-1][1].endswith(b"\n") else b""
        self._parts.append(_written(part))
        yield from map(_line, heapq.merge(*map(_timed, self._parts), key=_time))
        yield tail

    def _pieces(self) -> Iterator[list[bytes]]:
        """Yield the text's lines, some at a time; remember what ends it early."""
        space, tail, left = memoryview(bytearray(READ_BYTES)), b"", self._most
        while left > 0 and len(tail) <= self._longest:
            try:
                count = self._file.readinto(space)
            except DamagedError as damage:
                self._damage = damage
                break
            if not count:
                break
            left -= count
            *lines, tail = (tail + space[:count]).split(b"\n")
            yield [line + b"\n" for line in lines]
        if tail:
            yield [tail]


def _written(part: list[_Timed]) -> IO[bytes]:
    part.sort(key=_time)
    folder = temporary_folder()
    try:
        # A nameless file is gone with its maker, however that ends.
        file = TemporaryFile(dir=folder)  # noqa: SIM115 - closed by close()
        file.writelines(b"%d %b" % timed for timed in part)
        file.seek(0)
    except OSError as error:
        raise BundleError(
            f"cannot sort rows in {folder}: {error.strerror}", "set TMPDIR to a folder with room"
        ) from error
    return file


def _timed(part: IO[bytes]) -> Iterator[_Timed]:
    for line in part:
        ns, _, text = line.partition(b" ")
        yield int(ns), text


def _time(timed: _Timed) -> int:
    return timed[0]


def _line(timed: _Timed) -> bytes:
    return timed[1]
