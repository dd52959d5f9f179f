"""A signal that comes before the flight recorder is there is answered when it is."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from bbrscope.collect.flight.early_signal import hold
from bbrscope.collect.flight.flight_recorder import asked_by_signal


class Recorder:
    """Counts what is asked of it."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self) -> None:
        self.asked += 1


@pytest.mark.parametrize("early", [0, 1])
def test_a_signal_that_came_early_has_its_bundle(early: int) -> None:
    recorder: Any = Recorder()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        hold(["bbrscope", "collect", "--last=9s"])
        for _ in range(early):
            os.kill(os.getpid(), signal.SIGUSR1)
        with asked_by_signal(recorder):
            assert recorder.asked == early
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert recorder.asked == early + 1
