"""Unpack a ``.tar.zst`` that a stranger made, without letting it write where it likes."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ...probes.base.errors import BundleError
from ...probes.base.scratch import ScratchFolder

MAGIC = b"\x28\xb5\x2f\xfd"
# Everything big inside a bundle is compressed already, so an archive that grows this much when
# unpacked was made to fill the disk.
MAX_GROWTH = 20
SLACK_BYTES = 16 << 20
MAX_MEMBERS = 10_000
MAX_WINDOW = 1 << 27

# What tarfile raises of numbers and of chains of headers that nobody means.
_NONSENSE = (ValueError, OverflowError, RecursionError)

AGAIN = "make it anew: tar -C PARENT -cf - BUNDLE | zstd > BUNDLE.tar.zst"


@contextmanager
def unpacked(path: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    """Unpack the files of `path` whose names are `wanted` into a temporary folder; yield it.

    Only regular files at the top or in one folder are taken, by their bare names.

    Raises:
        BundleError: not a tar.zst, damaged, or with a member that does not belong in a bundle.
    """
    with open(path, "rb") as raw:
        if raw.read(4) != MAGIC:
            raise BundleError(f"{path} is neither a folder nor a zstd file", AGAIN)
    with ScratchFolder() as scratch:
        _unpack(path, scratch.path, wanted)
        yield scratch.path


class _Limited:
    """Reads the decompressed archive, and stops when it has grown beyond reason.

    tarfile holds headers of any size in memory, so counting members' sizes would come too late.
    """

    def __init__(self, path: Path, plain: IO[bytes]) -> None:
        self.path = path
        self.plain = plain
        self.budget = path.stat().st_size * MAX_GROWTH + SLACK_BYTES

    def read(self, size: int) -> bytes:
        data = self.plain.read(size)
        self.budget -= len(data)
        if self.budget < 0:
            raise BundleError(
                f"{self.path} grows more than {MAX_GROWTH} times when unpacked: no bundle does",
                "unpack it yourself if you trust it, and ingest the folder",
            )
        return data


class _Header(tarfile.TarInfo):
    """A member's header; tarfile alone would follow a negative size back to the same header."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Read a header of 512 bytes.

        Raises:
            tarfile.ReadError: it has a size below zero.
        """
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0:
            raise tarfile.ReadError(f"a member has size {header.size}")
        return header


def _unpack(path: Path, folder: Path, wanted: Callable[[str], bool]) -> None:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    try:
        with (
            open(path, "rb") as raw,
            decompressor.stream_reader(raw, read_across_frames=True) as plain,
            tarfile.open(
                fileobj=cast(IO[bytes], _Limited(path, plain)), mode="r|", tarinfo=_Header
            ) as tar,
        ):
            for count, member in enumerate(tar):
                if count >= MAX_MEMBERS:
                    raise BundleError(f"{path} has more than {MAX_MEMBERS} members", AGAIN)
                name = _checked(path, member)
                if name is not None and wanted(name):
                    _extract(path, tar, member, folder / name)
    except (tarfile.TarError, zstandard.ZstdError, EOFError, *_NONSENSE) as error:
        raise BundleError(f"{path} is damaged or not a .tar.zst: {error}", AGAIN) from error
    except OSError as error:
        raise BundleError(
            f"cannot unpack {path} into {folder}: {error}",
            "free some space there, or set TMPDIR to a folder that has it",
        ) from error


def _checked(path: Path, member: tarfile.TarInfo) -> str | None:
    """Return the bare name of a regular file, None for a folder; refuse everything else."""
    where = PurePosixPath(member.name)
    parts = [part for part in where.parts if part != "."]
    if where.is_absolute() or ".." in parts or len(parts) > 2:
        raise BundleError(f"{path}: member {member.name!r:.80} has a path outside a bundle", AGAIN)
    if member.isdir():
        return None
    if not member.isreg() or member.issparse() or member.size < 0:
        raise BundleError(f"{path}: member {member.name!r:.80} is not a plain file", AGAIN)
    return parts[-1] if parts else None


def _extract(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    if target.exists():
        raise BundleError(f"{path} has {target.name} twice", "make one archive per bundle")
    source = tar.extractfile(member)
    if source is None:
        raise BundleError(f"{path}: member {member.name!r:.80} cannot be read", AGAIN)
    with open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
