"""What the script without Python leaves where it is killed, or finds no zstd: brought into form."""

from __future__ import annotations

import gzip
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from ...probes.base.errors import BundleError
from ...probes.base.scratch import ScratchFolder

# Everything that bpftrace printed, in a recording that is under way: rows, and other lines.
RAW = "raw"
ROW = re.compile(rb"#?[A-Z]+[0-9]?,")
TEXTS = ("events.csv", "queue.csv", "ss.txt")
# gzip makes texts at most 1,032 times smaller; those of a recording become some ten times smaller.
MAX_GROWTH = 100
SLACK_BYTES = 16 << 20
LONGEST_LINE = 1 << 18


@contextmanager
def in_form(folder: Path, wanted: Callable[[str], bool], salvage: bool) -> Iterator[Path]:
    """Yield `folder`, or a scratch copy of it if its texts are not compressed by zstd.

    With `salvage` the rows may still be among what bpftrace printed; a last line that is cut off
    there is left out. Files whose names are not `wanted` in a bundle are not copied.

    Raises:
        BundleError: a text is no regular file, is no gzip file, or grows beyond reason.
    """
    texts = _texts(folder, salvage)
    if not texts:
        yield folder
        return
    with ScratchFolder() as scratch:
        for path in folder.iterdir():
            if wanted(path.name) and stat.S_ISREG(path.lstat().st_mode):
                shutil.copyfile(path, scratch.path / path.name)
        for name, source in texts.items():
            _pack(source, scratch.path / f"{name}.zst", salvage)
        yield scratch.path


def _texts(folder: Path, salvage: bool) -> dict[str, Path]:
    """The texts of a bundle that are not there as zstd files; none if its events are."""
    found: dict[str, Path] = {}
    for name in TEXTS:
        if not (folder / f"{name}.zst").exists():
            # A gzip that was killed leaves both; the plain one is whole.
            places = [folder / name, folder / f"{name}.gz"]
            places += [folder / RAW] if name == "events.csv" and salvage else []
            if there := [path for path in places if path.exists()]:
                found[name] = there[0]
    return found if "events.csv" in found else {}


def _pack(source: Path, target: Path, salvage: bool) -> None:
    import zstandard

    if not stat.S_ISREG(source.lstat().st_mode):
        raise BundleError(f"{source} is not a regular file", "put a copy of it in its place")
    with target.open("wb") as out, zstandard.ZstdCompressor().stream_writer(out) as packed:
        for line in _lines(source, salvage):
            if source.name != RAW or (ROW.match(line) and line.endswith(b"\n")):
                packed.write(line)


def _lines(source: Path, salvage: bool) -> Iterator[bytes]:
    """The lines of a text, long ones in pieces."""
    budget = source.stat().st_size * MAX_GROWTH + SLACK_BYTES
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rb") as file:
        try:
            for line in iter(partial(file.readline, LONGEST_LINE), b""):
                budget -= len(line)
                if budget < 0:
                    raise BundleError(
                        f"{source} grows more than {MAX_GROWTH} times when unpacked",
                        "this is not a recording; BUNDLE.md describes the file",
                    )
                yield line
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            if not (salvage and isinstance(error, EOFError)):
                raise BundleError(
                    f"{source} is damaged: {error}", "restore it from a copy, or record again"
                ) from error
