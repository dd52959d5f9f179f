"""The folder that a recording is written to: NAME.partial until it is whole, then NAME.

It belongs to one collector at a time (a lock that the kernel drops when the process dies), nobody
but its owner may read it, and its manifest is there from the start: what a collector leaves that
was killed says what it is, and `ingest --salvage` reads it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any

from ....probes.base.errors import HostError
from ...bundle.bundle import EVENTS, MANIFEST
from ..plan import check_name
from .outputs import FilesIn, Outputs
from .replaced import private, replaced

PARTIAL = ".partial"
PROBE = "probe.bt"
# Kept free in the output folder so that a full disk leaves room to finish the files.
RESERVE_BYTES = 2 << 20
RESERVE = "reserve"


class RecordingFolder:
    """NAME.partial, made and locked; nothing that was there before is touched.

    Raises:
        HostError: the name cannot be a run's, it exists, another collector is at work on it or was
            killed at it, or it cannot be written.
    """

    def __init__(self, output: Path) -> None:
        check_name(output)
        self.output = output
        self.path = output.with_name(output.name + PARTIAL)
        self.outputs: Outputs = FilesIn(self.path)
        if os.path.lexists(output):
            raise HostError(f"{output} exists", "choose another --output")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
        except OSError as error:
            if os.path.lexists(self.path):
                raise self._left_behind() from error
            raise HostError(
                f"cannot write {error.filename or self.path}: {error.strerror}",
                "choose an --output in a folder that can be written",
            ) from error
        self._lock = -1
        try:
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._reserve()
        except OSError as error:
            self.discard()
            raise HostError(
                f"cannot keep {RESERVE_BYTES >> 20} MB free for the end of the recording in"
                f" {self.path}: {error.strerror}",
                way_out(error, "make room there, or choose an --output on another file system"),
            ) from error

    def _left_behind(self) -> HostError:
        """Why there is a folder already."""
        if is_locked(self.path):
            return HostError(
                f"another collect is recording into {self.path}", "choose another --output"
            )
        return HostError(
            f"{self.path} exists: a recording that was killed may have left it",
            f"bbrscope ingest --salvage {self.path} reads what is there; or remove it, or choose"
            " another --output",
        )

    @property
    def events(self) -> Path:
        """The event stream."""
        return self.path / EVENTS

    @property
    def probe(self) -> Path:
        """The bpftrace program."""
        return self.path / PROBE

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Write the manifest in one step: a reader finds the old one or the new one, whole."""
        text = json.dumps(manifest, indent=1, default=str)
        with replaced(self.path / MANIFEST) as file:
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())

    def write_probe(self, program: str) -> None:
        """Keep the program that is attached; bpftrace reads it from here."""
        with open(self.probe, "w", opener=private) as file:
            file.write(program)

    def _reserve(self) -> None:
        """Claim the space that finishing needs."""
        with open(self.path / RESERVE, "wb", opener=private) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, RESERVE_BYTES)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    raise

    def release_reserve(self) -> None:
        """Give back the space that was kept free."""
        (self.path / RESERVE).unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove a folder in which nothing was recorded.

        The lock's descriptor may be the last one to be had, and is enough; without even a lock
        there are no files.
        """
        names = []
        self.close()
        with contextlib.suppress(OSError):
            names = os.listdir(self.path)
        with contextlib.suppress(OSError):
            for name in names:
                os.unlink(self.path / name)
            self.path.rmdir()

    def publish(self) -> Path:
        """Give the bundle its name, and to the user who called sudo.

        Raises:
            HostError: the name was taken meanwhile, or the disk refuses.
        """
        try:
            if os.path.lexists(self.output):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.rename(self.path, self.output)
        except OSError as error:
            raise HostError(
                f"cannot name the bundle {self.output}: {error.strerror}", f"it is {self.path}"
            ) from error
        finally:
            self.close()
        hand_over(self.output)
        return self.output

    def close(self) -> None:
        """Let go of the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def way_out(error: OSError, otherwise: str) -> str:
    """What to do about what the kernel refused: `otherwise`, but for a limit of open files."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "ulimit -n 1024 lets this shell's programs open more files"
    return otherwise


def is_locked(folder: Path) -> bool:
    """Tell whether a collector holds this folder."""
    try:
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(held)
    return False


def hand_over(folder: Path) -> None:
    """Under sudo, give the bundle to the user who asked for it."""
    numbers = (os.environ.get(name, "") for name in ("SUDO_UID", "SUDO_GID"))
    # -1 leaves an owner as it is.
    uid, gid = (int(text) if text.isascii() and text.isdigit() else -1 for text in numbers)
    if os.geteuid() == 0 and uid >= 0:
        for path in (folder, *folder.iterdir()):
            with contextlib.suppress(OSError, OverflowError):
                os.chown(path, uid, gid, follow_symlinks=False)
