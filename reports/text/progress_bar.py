"""A progress bar on a terminal's stderr, and nothing at all elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """Give a function to call with every piece of `total` that is done."""
    if not sys.stderr.isatty() or total <= 0:
        yield lambda done: None
        return
    with click.progressbar(length=total, label=label, file=sys.stderr) as bar:
        yield bar.update
