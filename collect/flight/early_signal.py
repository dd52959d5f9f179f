"""SIGUSR1 while the flight recorder is not there yet: its usual effect is the process's end."""

from __future__ import annotations

import signal
from types import FrameType


class EarlySignal:
    """Handles SIGUSR1 until the recorder does; `came` tells that one was sent."""

    def __init__(self) -> None:
        self.came = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Remember it."""
        self.came = True


def hold(words: list[str]) -> None:
    """Let no SIGUSR1 end the process if the words of its command line ask for a flight recorder."""
    options = ("--last", "--rotate")
    if "collect" in words and any(word.split("=")[0] in options for word in words):
        signal.signal(signal.SIGUSR1, EarlySignal())
