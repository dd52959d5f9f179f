"""Writes a file of a bundle anew: aside, and renamed once all of it is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard


def private(path: str, flags: int) -> int:
    """An opener for files that nobody but their owner may read."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes the one at `path`; where the block fails, that one stays as it is."""
    aside = path.with_name(f".{path.name}")
    try:
        with open(aside, "wb", opener=private) as target:
            yield target
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def compressed_anew(path: Path) -> Iterator[zstandard.ZstdCompressionWriter]:
    """The same for a compressed file: what is written is compressed."""
    with (
        replaced(path) as target,
        zstandard.ZstdCompressor(level=3).stream_writer(target) as writer,
    ):
        yield writer
