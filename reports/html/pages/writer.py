"""Write a file so that it is there as a whole or not at all, and never over another unasked."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ....probes.base.errors import BbrscopeError


def check_free(path: Path, force: bool) -> None:
    """See, before the work is done, that `path` may be written.

    Raises:
        BbrscopeError: it exists and `force` is not given, is a folder, or has none to lie in.
    """
    if path.is_dir():
        raise BbrscopeError(f"{path} is a folder", f"name a file: -o {path / 'report.html'}")
    if path.exists() and not force:
        raise BbrscopeError(f"{path} exists", "add --force to overwrite it, or name another: -o")
    if not path.parent.is_dir():
        raise BbrscopeError(f"there is no folder {path.parent}", f"mkdir -p {path.parent}")


def write(path: Path, text: str) -> None:
    """Write `text` as UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` aside, then put it in place.

    Raises:
        BbrscopeError: it cannot be written; what lay at `path` is untouched.
    """
    with written_aside(path) as file:
        file.write(content)


@contextmanager
def written_aside(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes the place of `path` at the end; after an error it is removed.

    Raises:
        BbrscopeError: it cannot be written; what lay at `path` is untouched.
    """
    aside = None
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        aside = Path(name)
        with os.fdopen(number, "wb") as file:
            yield file
        # mkstemp keeps others out; a report is as readable as any file one makes.
        mask = os.umask(0)
        os.umask(mask)
        aside.chmod(0o666 & ~mask)
        aside.replace(path)
        aside = None
    except OSError as error:
        way = "write elsewhere with -o, or make room"
        raise BbrscopeError(f"cannot write {path}: {error.strerror}", way) from error
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)
