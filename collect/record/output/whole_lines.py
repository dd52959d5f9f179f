"""The lines of a recording's compressed text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zstandard

CHUNK = 1 << 20


def whole_lines(path: Path) -> Iterator[bytes]:
    """Decompressed lines, many at a time; a stream cut short ends at its last whole line."""
    with path.open("rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        left = b""
        try:
            while data := reader.read(CHUNK):
                lines, end, left = (left + data).rpartition(b"\n")
                if end:
                    yield lines
        except zstandard.ZstdError:
            return
