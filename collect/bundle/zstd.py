"""Read a zstd file, and tell a whole one from one that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ...probes.base.closing import Closing
from ...probes.base.errors import BundleError

MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE, SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
MAX_WINDOW = 1 << 27
LONGEST_HEADER = 18
RLE_BLOCK = 1


class DamagedError(Exception):
    """The compressed data ends early (`cut`) or makes no sense.

    Corrupt data is found out by a checksum at the end of a frame: what came before is suspect.
    """

    def __init__(self, what: str, cut: bool) -> None:
        super().__init__(what)
        self.cut = cut


class ZstdFile(Closing):
    """The decompressed content of a file, read into memory of the caller's.

    Raises:
        BundleError: the file is not zstd at all.
    """

    def __init__(self, path: Path, shown: str) -> None:
        import zstandard

        self._shown = shown
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by close()
            magic = self._file.read(len(MAGIC))
        except OSError as error:
            raise _unreadable(shown, error) from error
        if magic != MAGIC:
            self._file.close()
            if not magic:
                raise BundleError(
                    f"{shown} is empty: its recorder ended before it had written anything",
                    "there is nothing to load: record again",
                )
            raise BundleError(f"{shown} is not a zstd file", "compress it with `zstd FILE`")
        # The decompressor takes a cut-off file for one that ends, so look for the end first.
        self._whole = is_whole(self._file, path.stat().st_size)
        self._file.seek(0)
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        self._plain = decompressor.stream_reader(self._file, read_across_frames=True)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def compressed(self) -> int:
        """How many compressed bytes were read so far."""
        return self._file.tell()

    def readinto(self, target: memoryview) -> int:
        """Fill `target` as far as there is content; return the number of bytes, 0 at the end.

        Raises:
            DamagedError: the file is corrupt, or cut off here.
        """
        import zstandard

        filled = 0
        while filled < len(target):
            try:
                count = self._plain.readinto(target[filled:])
            except zstandard.ZstdError as error:
                raise DamagedError(f"its compressed data is corrupt ({error})", False) from error
            except OSError as error:
                raise _unreadable(self._shown, error) from error
            if not count:
                break
            filled += count
        if filled == 0 and not self._whole:
            raise DamagedError("its compressed data is cut off", True)
        return filled


def _unreadable(shown: str, error: OSError) -> BundleError:
    return BundleError(
        f"cannot read {shown}: {error.strerror}", "check its permissions and the disk it is on"
    )


def is_whole(file: IO[bytes], size: int) -> bool:
    """Tell whether the last frame of a file of `size` bytes is there to its end (RFC 8878, 3.1).

    Data that makes no sense counts as whole: the decompressor says what is wrong with it.
    """
    at = 0
    for end in _ends(file, size):
        at = end
    return at <= size


def _ends(file: IO[bytes], size: int) -> Iterator[int]:
    """Yield where each frame and each block ends, past `size` if the file ends before that."""
    import zstandard

    at = 0
    while at < size:
        file.seek(at)
        head = file.read(LONGEST_HEADER)
        magic = int.from_bytes(head[:4], "little")
        if magic & SKIPPABLE_MASK == SKIPPABLE:
            at += 8 + int.from_bytes(head[4:8], "little")
            yield at
            continue
        try:
            frame = zstandard.get_frame_parameters(head)
            at += zstandard.frame_header_size(head)
        except zstandard.ZstdError:
            # Either garbage, or a header that the end of the file cuts.
            yield size + (len(head) < LONGEST_HEADER and MAGIC.startswith(head[:4]))
            return
        last = False
        while not last:
            file.seek(at)
            block = int.from_bytes(file.read(3), "little")
            last = bool(block & 1)
            at += 3 + (1 if block >> 1 & 3 == RLE_BLOCK else block >> 3)
            yield at
            if at > size:
                return
        at += 4 * frame.has_checksum
        yield at
