"""Decompress a zstd file piece by piece, and tell a whole file from one that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .errors import BundleError

# Four bytes of a hostile file can stand for 128 KiB, so a piece this small bounds what one step
# can yield.
PIECE = 4096
MAX_WINDOW = 1 << 27


class DamagedError(Exception):
    """The compressed data ends early (`cut`) or makes no sense; what came before was yielded.

    Corrupt data is found out by a checksum at the end of a frame: what came before is suspect.
    """

    def __init__(self, what: str, cut: bool) -> None:
        super().__init__(what)
        self.cut = cut


def pieces(path: Path, shown: str) -> Iterator[tuple[bytes, int]]:
    """Yield decompressed bytes of `path` and how many compressed bytes were read so far.

    Raises:
        BundleError: the file is empty or not zstd at all.
        DamagedError: it is zstd, but cut off or corrupt.
    """
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    frame = decompressor.decompressobj()
    taken = 0
    whole = False
    with open(path, "rb") as raw:
        if raw.read(4) != b"\x28\xb5\x2f\xfd":
            raise BundleError(f"{shown} is not a zstd file", "compress it with `zstd FILE`")
        raw.seek(0)
        while data := raw.read(PIECE):
            taken += len(data)
            while data:
                whole = False
                try:
                    plain = frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise DamagedError(
                        f"its compressed data is corrupt ({error})", cut=False
                    ) from error
                if plain:
                    yield plain, taken
                data = b""
                if frame.eof:
                    whole = True
                    data = frame.unused_data
                    frame = decompressor.decompressobj()
    if not whole:
        raise DamagedError("its compressed data is cut off", cut=True)
