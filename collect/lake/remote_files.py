"""Let DuckDB read a lake's files through pyarrow, where they are not on this machine."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ...probes.base.errors import StoreError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from .lake_place import LakePlace

SCHEME = "bbrscope-lake"


class _ManyReaders:
    """A file in which every thread has a place of its own.

    DuckDB's threads share one Python file: each says where it reads, and then reads, and another
    one may come in between. With a single place for all, it got the bytes that the other asked for.
    """

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self._places = threading.local()

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a place, counted from the beginning, from here or from the end."""
        start = (0, self.tell(), self._file.size())[whence]
        self._places.here = start + offset
        return self.tell()

    def tell(self) -> int:
        """Return this thread's place."""
        return int(getattr(self._places, "here", 0))

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes (-1: all) from this thread's place on; fewer at the end."""
        here = self.tell()
        rest = max(0, self._file.size() - here)
        found: bytes = self._file.read_at(rest if size < 0 else min(size, rest), here)
        self._places.here = here + len(found)
        return found

    def close(self) -> None:
        """Close it for all threads."""
        self._file.close()


def register(con: duckdb.DuckDBPyConnection, place: LakePlace, sizes: Mapping[str, int]) -> None:
    """Make the files that `sizes` names readable as ``bbrscope-lake://NAME``, and no others.

    The manifest tells their sizes, so that nothing is asked of the bucket before a file is read.

    Raises:
        StoreError: fsspec, through which DuckDB calls Python, is not installed.
    """
    try:
        import fsspec
    except ImportError:
        raise StoreError(
            f"{place.shown} needs fsspec to be read", "install it: pip install 'bbrscope[fleet]'"
        ) from None

    class LakeFiles(fsspec.AbstractFileSystem):  # type: ignore[misc]
        """The files of one lake, read-only."""

        protocol = SCHEME
        cachable = False

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(path).removeprefix(f"{SCHEME}://")

        def glob(self, path: str, **_: object) -> list[str]:
            """Return the path itself: names of files are never patterns here."""
            return [path]

        def info(self, path: str, **_: object) -> dict[str, object]:
            """Return name and size from the manifest."""
            name = self._strip_protocol(path)
            if name not in sizes:
                raise FileNotFoundError(path)
            return {"name": path, "size": sizes[name], "type": "file"}

        def open(self, path: str, mode: str = "rb", **_: object) -> _ManyReaders:
            """Open a file of the manifest for reading."""
            if mode != "rb" or self._strip_protocol(path) not in sizes:
                raise PermissionError(path)
            file = place.files.open_input_file(place.full(self._strip_protocol(path)))
            return _ManyReaders(file)

        def modified(self, path: str) -> datetime:
            """Return one time for all: files of a lake never change."""
            return datetime.fromtimestamp(0, UTC)

    con.register_filesystem(LakeFiles())
