"""The lines of a text of any size, plain or compressed, in little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ..bundle.zstd import DamagedError
from ..packets.capture_file import pieces

MAX_LINE = 1 << 20


def lines(
    path: Path, progress: Callable[[int], None] | None = None, ended: bool = False
) -> Iterator[str]:
    """Yield the lines of a text, plain or compressed; one that is longer than `MAX_LINE` in parts.

    `progress` is called with the bytes of the file read so far. With `ended` a last line that no
    newline ends is damage: a number in it may lack digits.

    Raises:
        DamagedError: the compression is corrupt or cut off, or the text grows beyond reason when
            unpacked; what came before is given first.
    """
    for block in blocks(path, progress, ended):
        for line in block[:-1].split(b"\n"):
            yield line.decode("utf-8", "replace").rstrip("\r")


def blocks(
    path: Path, progress: Callable[[int], None] | None = None, ended: bool = False
) -> Iterator[bytes]:
    """Yield a text as `lines` does, many lines at once: each block ends with a newline."""
    rest = b""
    for done, piece in pieces(path):
        whole, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            yield whole + newline
        if len(rest) > MAX_LINE:
            yield rest + b"\n"
            rest = b""
        if progress is not None:
            progress(done)
    if rest and ended:
        raise DamagedError("its last line is cut off", cut=True)
    if rest:
        yield rest + b"\n"
