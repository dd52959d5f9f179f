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
    old = {number: signal.signal(number, _end) for number in SIGNALS}
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedLabError from error
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _end(_number: int, _frame: object) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
