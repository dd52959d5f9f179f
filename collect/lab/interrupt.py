"""Ctrl-C and the signals that end a program: the lab ends in order at any of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from ...probes.base.errors import BbrscopeError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class InterruptedLabError(BbrscopeError):
    """Ctrl-C or a signal ended the lab; nothing of the current run is kept."""

    def __init__(self) -> None:
        super().__init__("interrupted; finished runs are kept", "the same command goes on")


@contextmanager
def in_order() -> Iterator[None]:
    """Make each of SIGNALS unwind what runs inside; a second one does not disturb the unwinding.

    Raises:
        InterruptedLabError: one came.
    """
    came: list[int] = []

    def end(number: int, _frame: object) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        came.append(number)
        raise KeyboardInterrupt

    old = {number: signal.signal(number, end) for number in SIGNALS}
    try:
        yield
    except BaseException as error:
        # Python makes another exception of what is raised while a class is made (__set_name__).
        if came or isinstance(error, KeyboardInterrupt):
            raise InterruptedLabError from error
        raise
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
