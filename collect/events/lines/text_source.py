"""The text of an event stream, a window at a time: unpacked, bounded, and whole lines only."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ....probes.base.errors import BundleError
from ...bundle.zstd import DamagedError, ZstdFile
from .in_order import InOrder

TEXT_BYTES = 1 << 18
# Rows compress some tenfold; beyond this a file was made to take time.
MAX_GROWTH = 2_000
SLACK_BYTES = 4 << 20

SALVAGE = "add --salvage to keep every whole event, with the damage on record"


class TextSource:
    """A window of whole lines on the decompressed text.

    Attributes:
        text: the bytes, as int8. start, end: bounds of the lines not read yet.
        line: number of the line at `start`; who moves `start` keeps it.
        cut: what ended the text early, when salvaging; else empty.
    """

    def __init__(self, path: Path, shown: str, salvage: bool, in_order: bool = False) -> None:
        self.shown = shown
        self.salvage = salvage
        self.start = self.end = self._filled = 0
        self.line = 1
        self.cut = ""
        self._raw = bytearray(TEXT_BYTES)
        self.text = np.frombuffer(self._raw, np.int8)
        self._budget = path.stat().st_size * MAX_GROWTH + SLACK_BYTES
        self._file: ZstdFile | InOrder = (
            InOrder(path, shown, TEXT_BYTES, self._budget + 1)
            if in_order
            else ZstdFile(path, shown)
        )

    @property
    def compressed(self) -> int:
        """Compressed bytes read so far."""
        return self._file.compressed

    @property
    def late(self) -> int:
        """Rows that came after newer ones and were put in order."""
        return self._file.late if isinstance(self._file, InOrder) else 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def fill(self) -> bool:
        """Move what is left to the front and read on; tell whether there are lines.

        Raises:
            BundleError: a line is too long, the text grows beyond reason when unpacked, or the
                file is damaged; one that is only cut off is no error when salvaging.
        """
        left = self._filled - self.start
        self._raw[:left] = self._raw[self.start : self._filled]
        self.start, self._filled = 0, left
        more = self._read()
        self.end = self._raw.rfind(b"\n", 0, self._filled) + 1
        if self.end == 0 and self._filled == TEXT_BYTES:
            raise BundleError(
                f"{self.shown}, line {self.line}: longer than {TEXT_BYTES} bytes",
                "this is not a recording; BUNDLE.md describes the file",
            )
        if not more and self._filled > self.end:
            self._damaged("its last line is cut off", True)
            self._filled = self.end
        return self.end > 0

    def _read(self) -> bool:
        """Read as much as there is room for; return False at the end of the file."""
        try:
            count = self._file.readinto(memoryview(self._raw)[self._filled :])
        except DamagedError as damage:
            self._damaged(str(damage), damage.cut)
            return False
        self._filled += count
        self._budget -= count
        if self._budget < 0:
            raise BundleError(
                f"{self.shown} grows more than {MAX_GROWTH} times when unpacked",
                "this is not a recording; BUNDLE.md describes the file",
            )
        return count > 0

    def _damaged(self, what: str, cut: bool) -> None:
        """Raise, unless salvaging what a cut-off file still has."""
        if self.salvage and cut:
            self.cut = self.cut or what
            return
        last = self.line + self._raw.count(b"\n", 0, self._filled)
        # Of a file that ends within its first line nothing can be kept.
        way = SALVAGE if cut and last > 1 else "restore the file from a copy, or record again"
        raise BundleError(f"{self.shown}, line {last}: {what}", way)

    def peek_line(self) -> str:
        """Return the line at `start`, at most 64 KiB of it, without its end."""
        stop = self._raw.find(b"\n", self.start, self.end)
        line = self._raw[self.start : min(stop, self.start + (1 << 16))]
        return line.decode("utf-8", "replace").rstrip("\r")

    def skip_line(self) -> None:
        """Step over the line at `start`."""
        self.start = self._raw.find(b"\n", self.start, self.end) + 1
        self.line += 1
