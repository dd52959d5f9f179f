"""Let DuckDB read a lake's files through pyarrow, where they are not on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ...probes.base.errors import StoreError

if TYPE_CHECKING:
    import duckdb

    from .lake_place import LakePlace

SCHEME = "bbrscope-lake"


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

        def open(self, path: str, mode: str = "rb", **_: object) -> Any:
            """Open a file of the manifest for reading."""
            if mode != "rb" or self._strip_protocol(path) not in sizes:
                raise PermissionError(path)
            return place.files.open_input_file(place.full(self._strip_protocol(path)))

        def modified(self, path: str) -> datetime:
            """Return one time for all: files of a lake never change."""
            return datetime.fromtimestamp(0, UTC)

    con.register_filesystem(LakeFiles())
