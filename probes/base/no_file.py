"""What stands where a file was to be."""

from __future__ import annotations

import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def no_file(path: Path | str) -> str:
    """Say why there is no regular file at `path`, as the fact of an error; empty: there is one.

    A pipe or a device may have no end: it is neither read nor asked for its size.
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return f"there is no file {path}"
    except OSError as error:
        return f"cannot read {path}: {error.strerror}"
    return next((f"{path} is {kind}, not a file" for is_it, kind in _KINDS if is_it(mode)), "")
