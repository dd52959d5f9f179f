"""Step mode along a flow: gaps are found by it, and cut out of what is replayed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..bbr import loops
from ..bbr.records import Array
from .chunks import Chunk
from .elsewhere import Elsewhere
from .find_elsewhere import find_elsewhere
from .gaps import Gap, classify, cut, suspects
from .missing_calls import Sign
from .mode_replay import ModeReplay
from .passes import Pass
from .prepare import copy_of
from .run_info import RunInfo
from .tally import Tally


class StepMode:
    """Replays chunks of a flow from the recorded state before each event.

    Args:
        chunks: yields the flow's chunks from the first one on.

    Attributes:
        tally: how events agree outside of gaps.
    """

    def __init__(
        self,
        info: RunInfo,
        params: Array,
        decisions: bool,
        chunks: Callable[[], Iterable[Chunk]],
    ) -> None:
        self.tally = Tally()
        self._info, self._chunks = info, chunks
        self._elsewhere: list[Elsewhere] | None = None
        self._as_recorded = ModeReplay("step", info.rules, params, decisions)
        # From a flow's first gap on: with gaps cut out, and with the state after each unknown.
        # Of a state that was recorded in part, each goes on with its own.
        self._cut: ModeReplay | None = None
        self._trial: ModeReplay | None = None
        self._after_gap = False

    def run(self, chunk: Chunk) -> tuple[Pass, list[Gap]]:
        """Replay the next chunk, after its gaps were found and cut out of its own events."""
        replay, found = self._as_recorded, list[Gap]()
        result = replay.run(chunk)
        if result.first_difference() is not None:
            found = classify(result, self._suspects(chunk), self._info.rows_lost)
        if found and self._cut is None:
            self._cut, self._trial = replay.fork(), replay.fork()
        if self._cut and self._trial:
            trial = _without_next_state(chunk, found)
            outputs_too = self._trial.run(trial).outcome == loops.DIFFERENT
            chunk.own.events["ctl"]["resync"][:1] |= self._after_gap
            cut(chunk.own, found, outputs_too)
            self._after_gap = any(gap.index == len(chunk.own.events) - 1 for gap in found)
            replay = self._cut
            result = replay.run(chunk)
        self.tally.add(chunk, replay, result)
        return result, found

    def _suspects(self, chunk: Chunk) -> dict[int, list[Sign]]:
        if self._elsewhere is None:
            self._elsewhere = find_elsewhere(self._chunks(), self._info.version)
        return suspects(chunk, self._info.version, self._elsewhere[chunk.number])


def _without_next_state(chunk: Chunk, gaps: Sequence[Gap]) -> Chunk:
    """The chunk where nothing is known of the state after gaps, but the outputs are compared."""
    events = copy_of(chunk.own.events)
    for gap in gaps:
        events["ctl"]["has_next"][gap.index] = 0
    return replace(chunk, own=replace(chunk.own, events=events))
