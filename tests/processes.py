"""Processes that tests wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def runs(pid: int | str) -> bool:
    """Whether a process is still there, and no zombie, which the machine's first process reaps."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return once something holds.

    Raises:
        AssertionError: it does not within `seconds`.
    """
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
