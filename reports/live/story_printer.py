"""`collect --follow`: the story of flows as it happens, a line for each change."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from ...analyze.bbr.codes import CODES
from ...analyze.live.follower import Followed, Follower
from ...analyze.live.live_limits import phase_of
from ...collect.bundle.rungs import named_rung
from ...collect.flight import beginnings
from ...collect.flight.triggers import LiveBatch
from ...collect.record.output.live_rows import ORDER_NS
from ..text.screen import say

if TYPE_CHECKING:
    from ...analyze.live.live_events import LiveEvent

# Printed with every round or ACK, they would hide the others.
TOO_OFTEN = frozenset({"round", "bw", "cwnd", "pacing", "extra_acked", "fast_path"})


class StoryPrinter:
    """Prints decisions that changed something; on rungs without callbacks, changes of the phase."""

    def __init__(self) -> None:
        self.follower = Follower()
        self._ahead_ns = time.time_ns() - time.monotonic_ns()
        self._is_read = True
        # By socket: number of its flow, and that one's phase.
        self._phases: dict[str, tuple[int, str]] = {}

    def begin(self, manifest: dict[str, Any]) -> None:
        """Have the estimator ready; say so where there will be nothing to tell."""
        self.follower.begin(manifest)
        if named_rung(manifest) == "inet_diag":
            say("  --follow tells nothing by inet_diag; bbrscope top shows what it tells", err=True)

    def see(self, headers: list[bytes], rows: list[bytes], now_ns: int) -> None:
        """Follow the rows and print what they tell."""
        if not self._is_read:
            return
        columns = beginnings.columns_of(headers)
        self.say_change(self.follower.take(LiveBatch(columns, rows, now_ns - ORDER_NS)))

    def end(self) -> None:
        """Print what waited for rows that will not come."""
        self.say_change(self.follower.end())

    def say_change(self, followed: Followed) -> None:
        """Print what a batch brought; where nobody reads it any more, nothing from here on."""
        try:
            self._say_all(followed)
        except BrokenPipeError:
            self._is_read = False
            stop_writing()
            say("  nobody reads the story any more; the recording goes on", err=True)

    def _say_all(self, followed: Followed) -> None:
        for event in followed.events:
            if event.kind == "sample":
                self._say_phase(event)
        for decision in followed.decisions:
            code = CODES[decision.code]
            if code.change and code.about not in TOO_OFTEN:
                self._say(decision.event, decision.words)

    def _say_phase(self, event: LiveEvent) -> None:
        phase = phase_of(self.follower.version, event.values)
        number, before = self._phases.get(event.flow.sk, (0, ""))
        if number != event.flow.number:
            before = ""
        if phase != before:
            self._phases[event.flow.sk] = event.flow.number, phase
            self._say(event, f"{before} > {phase}" if before else f"seen first in {phase}")

    def _say(self, event: LiveEvent, words: str) -> None:
        seconds, ms = divmod((event.ns + self._ahead_ns) // 1_000_000, 1000)
        clock = time.strftime("%H:%M:%S", time.localtime(seconds))
        say(f"{clock}.{ms:03d}  {event.flow.name}  {words}")


def stop_writing() -> None:
    """Let what is still to be written to a pipe that nobody reads go nowhere, without an error."""
    with contextlib.suppress(OSError), open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
