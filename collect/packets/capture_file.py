"""A packet capture as a plain byte stream: gzip, zstd or neither, cut off or not."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from ..bundle.zstd import MAGIC as ZSTD_MAGIC
from ..bundle.zstd import DamagedError, ZstdFile

GZIP_MAGIC = b"\x1f\x8b"
PIECE = 1 << 20
# Captures of equal packets compress a thousandfold; beyond this a file was made to fill the disk.
MAX_GROWTH = 2000
SLACK_BYTES = 1 << 30
# First bytes of pcap (both byte orders, microseconds and nanoseconds) and pcapng.
PCAP_MAGICS = tuple(
    bytes.fromhex(magic) for magic in ("d4c3b2a1", "a1b2c3d4", "4d3cb2a1", "a1b23c4d", "0a0d0d0a")
)


def packed(path: Path) -> bool:
    """Tell whether a file is compressed."""
    with open(path, "rb") as file:
        head = file.read(4)
    return head == ZSTD_MAGIC or head[:2] == GZIP_MAGIC


def pieces(path: Path, size: int = PIECE) -> Iterator[tuple[int, bytes]]:
    """Yield the plain content piece by piece, each with the bytes of the file read so far.

    `size` are a piece's bytes at most.

    Raises:
        DamagedError: the compression is corrupt or cut off; what came before is given first.
    """
    with open(path, "rb") as file:
        head = file.read(4)
    if head == ZSTD_MAGIC:
        source = _zstd(path, size)
    elif head[:2] == GZIP_MAGIC:
        source = _gzip(path, size)
    else:
        source = _plain(path, size)
    budget = path.stat().st_size * MAX_GROWTH + SLACK_BYTES
    for done, piece in source:
        budget -= len(piece)
        if budget < 0:
            raise DamagedError(f"it grows more than {MAX_GROWTH} times when unpacked", False)
        yield done, piece


def _plain(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    with open(path, "rb") as file:
        while piece := file.read(size):
            yield file.tell(), piece


def _zstd(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    buffer = memoryview(bytearray(size))
    with ZstdFile(path, str(path)) as file:
        while count := file.readinto(buffer):
            yield file.compressed, bytes(buffer[:count])


def _gzip(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Members one after another, as gzip allows; what follows the last one is ignored."""
    with open(path, "rb") as file:
        inflate = zlib.decompressobj(wbits=31)
        data = file.read(size)
        while data:
            try:
                plain = inflate.decompress(data, size)
            except zlib.error as error:
                raise DamagedError(f"its compressed data is corrupt ({error})", False) from error
            if plain:
                yield file.tell(), plain
            if inflate.eof:
                data = inflate.unused_data or file.read(size)
                if data[:2] != GZIP_MAGIC:
                    return
                inflate = zlib.decompressobj(wbits=31)
            else:
                data = inflate.unconsumed_tail or file.read(size)
    raise DamagedError("its compressed data is cut off", True)
