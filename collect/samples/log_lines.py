"""The lines of a text of any size, plain or compressed, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ..packets.capture_file import pieces

MAX_LINE = 1 << 20


def lines(path: Path, progress: Callable[[int], None] | None = None) -> Iterator[str]:
    """Yield the lines of a text, plain or compressed; one that is longer than `MAX_LINE` in parts.

    `progress` is called with the bytes of the file read so far.

    Raises:
        DamagedError: the compression is corrupt or cut off, or the text grows beyond reason when
            unpacked; what came before is given first.
    """
    rest = b""
    for done, piece in pieces(path):
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > MAX_LINE:
            whole, rest = [*whole, rest], b""
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if progress is not None:
            progress(done)
    if rest:
        yield rest.decode("utf-8", "replace")
