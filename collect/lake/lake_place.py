"""Where a lake lies: a folder, or a bucket that pyarrow reaches, behind one set of operations."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...probes.base.errors import StoreError
from ...probes.base.scratch import ScratchFolder, remove_abandoned, temporary_folder

if TYPE_CHECKING:
    import pyarrow.fs as pafs

MARK = "lake.json"
FORMAT = "bbrscope-lake"
VERSION = 1
# DuckDB and pyarrow give these a meaning in names of files.
_PATTERN = frozenset("*?[]{}")
_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
# So often a folder may be gone between its making and its use.
_AGAIN = 10


@dataclass(frozen=True)
class LakePlace:
    """A lake's root.

    Attributes:
        shown: as the user wrote it.
        root: its path within `files`.
        files: how pyarrow reaches it.
        local: it is a folder of this machine.
    """

    shown: str
    root: str
    files: pafs.FileSystem
    local: bool

    def full(self, name: str) -> str:
        """Return the path of a file of the lake within `files`."""
        return f"{self.root}/{name}"

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Make a folder from which `publish` takes files: on the lake's own disk if it has one."""
        with ScratchFolder(Path(self.root) if self.local else None) as folder:
            yield folder.path

    def remove_abandoned(self) -> None:
        """Remove what processes that were killed had not put into the lake."""
        remove_abandoned(temporary_folder())
        if self.local:
            remove_abandoned(Path(self.root))

    def publish(self, written: Path, name: str) -> None:
        """Put a local file, which was made in `scratch`, into the lake: wholly or not at all."""
        if self.local:
            _moved(written, Path(self.full(name)))
        else:
            # An object appears when its upload is complete.
            with self.files.open_output_stream(self.full(name)) as out:
                out.write(written.read_bytes())

    @contextmanager
    def published(self) -> Iterator[list[str]]:
        """Yield a list for the names of files published inside: if that fails, they are deleted.

        Not in a bucket, where an upload that failed may have been done: what names them is there.
        """
        names: list[str] = []
        try:
            yield names
        except Exception:
            if self.local:
                with suppress(OSError):
                    self.delete(names)
            raise

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Tell what the lake's disk refuses as an error of the lake.

        Raises:
            StoreError: it is full, or only to be read.
        """
        try:
            yield
        except OSError as error:
            if error.errno not in _REFUSED:
                raise
            raise StoreError(
                f"the lake {self.shown} cannot be written: {os.strerror(error.errno)}",
                "make room there (bbrscope lake remove), or name another lake: every run is there"
                " wholly or not at all, and adding bundles again takes up those that are missing",
            ) from error

    def publish_new(self, written: Path, name: str) -> bool:
        """Put a file into the lake unless one of that name is there; tell whether it was put.

        A bucket has no such step that pyarrow knows: there, of two at the same moment the later
        one stays.
        """
        if self.local:
            target = Path(self.full(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(written, target)
            except FileExistsError:
                return False
            finally:
                # What is written to that name next must not be written into the lake's file.
                written.unlink()
            return True
        if name in self.sizes(Path(name).parent.as_posix()):
            return False
        self.publish(written, name)
        return True

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Return the sizes of all files below a folder of the lake, by their names in it."""
        from pyarrow.fs import FileSelector, FileType

        where = FileSelector(
            self.full(folder) if folder else self.root, recursive=True, allow_not_found=True
        )
        return {
            info.path[len(self.root) + 1 :]: info.size
            for info in self.files.get_file_info(where)
            if info.type == FileType.File
        }

    def delete(self, names: list[str]) -> None:
        """Delete files of the lake; those that are gone already are no error."""
        for name in names:
            with suppress(FileNotFoundError):
                self.files.delete_file(self.full(name))
            if self.local:
                self._drop_empty(Path(self.full(name)).parent)

    def _drop_empty(self, folder: Path) -> None:
        """Remove a folder, and those above it, as far as nothing is in them."""
        root = Path(self.root)
        with suppress(OSError):
            while folder != root:
                folder.rmdir()
                folder = folder.parent


def _moved(written: Path, target: Path) -> None:
    """Rename a file; who removes the last run of a day may remove the folder at the same moment."""
    for _ in range(_AGAIN):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            written.replace(target)
        except FileNotFoundError:
            continue
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    written.replace(target)


def is_lake(path: Path | str) -> bool:
    """Tell whether what a user names as a store is a lake."""
    text = _url(path)
    return "://" in text or (Path(text) / MARK).is_file()


def open_place(path: Path | str, create: bool = False) -> LakePlace:
    """Return where a lake is; make an empty one if `create`.

    Raises:
        StoreError: there is none, it cannot be reached, or it is of another kind or version.
    """
    text = _url(path)
    if _PATTERN & set(text):
        raise StoreError(f"{text} cannot be a lake: its name has a pattern's characters", "rename")
    place = _reach(text)
    try:
        _check_mark(place, create)
    except OSError as error:
        raise StoreError(
            f"the lake {text} cannot be used: {' '.join(str(error).split()):.300}",
            "check the name, your rights there, and for s3:// AWS_ENDPOINT_URL and the keys",
        ) from error
    return place


def _url(path: Path | str) -> str:
    """Return a lake's name; Path makes one slash of the two that a URL has."""
    scheme, colon, rest = str(path).partition(":/")
    if colon and scheme.isalnum() and len(scheme) > 1:
        return f"{scheme}://{rest.lstrip('/')}".rstrip("/")
    return str(path)


def _reach(text: str) -> LakePlace:
    import pyarrow as pa
    from pyarrow import fs

    if "://" not in text:
        return LakePlace(text, str(Path(text).absolute()), fs.LocalFileSystem(), True)
    try:
        if text.startswith("s3://"):
            return LakePlace(text, text.removeprefix("s3://"), _s3(), False)
        files, root = fs.FileSystem.from_uri(text)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{text} cannot be reached: {error}", "give a folder, or s3://..."
        ) from None
    return LakePlace(text, root.rstrip("/"), files, False)


def _s3() -> pafs.FileSystem:
    """Reach S3 by the variables that AWS's own programs read."""
    from pyarrow import fs

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return fs.S3FileSystem(endpoint_override=endpoint, region=region)


def _check_mark(place: LakePlace, create: bool) -> None:
    from pyarrow.fs import FileType

    marked = place.files.get_file_info(place.full(MARK)).type == FileType.File
    if not marked:
        if not create:
            raise StoreError(
                f"there is no lake at {place.shown}", "make one: bbrscope lake add DIR BUNDLE..."
            )
        _make(place)
    with place.files.open_input_stream(place.full(MARK)) as stream:
        text = stream.read(10_000)
    try:
        mark = dict(json.loads(text))
    except (ValueError, TypeError):
        mark = {}
    if mark.get("format") != FORMAT or mark.get("version") != VERSION:
        raise StoreError(
            f"{place.shown} is not a lake that this bbrscope reads",
            f"{MARK} there should say {FORMAT}, version {VERSION}",
        )


def _make(place: LakePlace) -> None:
    if place.local:
        root = Path(place.root)
        if not root.parent.is_dir():
            raise StoreError(
                f"there is no folder {root.parent}", f"make it: mkdir -p {root.parent}"
            )
        if root.is_dir():
            remove_abandoned(root)  # of one that was killed while it made the lake
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise StoreError(f"{place.shown} is there, and is no lake", "name an empty folder")
        root.mkdir(exist_ok=True)
    with place.scratch() as folder:
        mark = folder / MARK
        mark.write_text(json.dumps({"format": FORMAT, "version": VERSION}))
        place.publish_new(mark, MARK)


def token() -> str:
    """Return a name for a file that no other process takes."""
    return secrets.token_hex(8)
