"""Folders for the time of a job, which the next one clears away if their maker was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from .closing import Closing

PREFIX = ".bbrscope-scratch-"


class ScratchFolder(Closing):
    """A folder under `parent` (None: the system's for such) that is removed at the end.

    Its maker holds a lock on it, which the kernel takes back from a process that was killed: such
    folders of the same user are removed when the next one is made.

    Attributes:
        path: the folder; nobody else may read it.

    Raises:
        OSError: no folder can be made there.
    """

    def __init__(self, parent: Path | None = None) -> None:
        where = parent or temporary_folder()
        remove_abandoned(where)
        self.path, self._lock = _make(where)

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def temporary_folder() -> Path:
    """Return the system's folder for passing files.

    tempfile.gettempdir() writes a file to find out whether it can, which a kill would leave there.
    """
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    for folder in (*named, "/tmp", "/var/tmp"):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return Path(folder).absolute()
    return Path.cwd()


def remove_abandoned(parent: Path) -> None:
    """Remove the scratch folders under `parent` that no living process holds."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = _lock(folder, fcntl.LOCK_NB)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _make(parent: Path) -> tuple[Path, int]:
    """Make and lock a folder; another process may remove it before it is locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        with suppress(FileNotFoundError):
            lock = _lock(folder, 0)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _lock(folder: Path, how: int) -> int:
    """Open and lock a folder, which must not be a link; return the file descriptor."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | how)
    except BaseException:
        os.close(opened)
        raise
    return opened
