"""Give a file its name, unless another process was faster."""

from __future__ import annotations

import os
from pathlib import Path


def move_to_free_name(source: Path, target: Path) -> bool:
    """Give a file another name on its disk; False: a file of that name has come to be."""
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:
        # Not every file system has hard links; then keep the name by a file of our own.
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        source.replace(target)
    return True
