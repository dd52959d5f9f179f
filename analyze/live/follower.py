"""Follow a recording: events and decisions of each batch of rows, made once for all who look on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...collect.bundle.numbers import MAX_NS
from ...collect.bundle.rungs import RUNGS, named_rung
from ...collect.events import which_bbr
from ...collect.flight.triggers import LiveBatch
from ...probes.base.errors import BbrscopeError
from ..replay import warm
from .live_events import EventAssembler, LiveEvent
from .live_replay import LiveDecision, LiveReplay

# An event whose next one has not come by then is judged without it.
PATIENCE_NS = 300_000_000


@dataclass(frozen=True)
class Followed:
    """What a batch of rows brought: events in order, and decisions of these or of earlier ones."""

    events: list[LiveEvent]
    decisions: list[LiveDecision]


class Follower:
    """Turns batches into events and decisions; `replay` is None on rungs without callbacks.

    `version` is "" before the first row came. `wanted` are the codes of the decisions that are told
    (None: all): without any, the estimator need not run.
    """

    def __init__(self, wanted: Iterable[int] | None = None) -> None:
        self.wanted = None if wanted is None else set(wanted)
        self.manifest: Mapping[str, Any] = {}
        self.version = ""
        self.replay: LiveReplay | None = None
        self._assembler: EventAssembler | None = None
        self._last: tuple[LiveBatch, Followed] | None = None

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Learn the recording's settings, and have the estimator ready before events come."""
        if self.manifest:
            return
        self.manifest = manifest
        rung = RUNGS.get(named_rung(manifest))
        if self._estimates and manifest.get("bbr") and (rung is None or rung.replays):
            warm.compile_loop(str(manifest["bbr"]))

    @property
    def _estimates(self) -> bool:
        """Whether decisions are told."""
        return self.wanted is None or bool(self.wanted)

    def take(self, batch: LiveBatch) -> Followed:
        """Return events and decisions of a batch; asked twice about one, the same object."""
        if self._last is None or self._last[0] is not batch:
            self._last = (batch, self._follow(batch))
        return self._last[1]

    def _follow(self, batch: LiveBatch) -> Followed:
        if self._assembler is None:
            if not batch.rows:
                return Followed([], [])
            self._assembler = self._assemble(batch)
        events = list(self._assembler.take(batch.rows))
        events += self._assembler.waiting(batch.now_ns - PATIENCE_NS)
        if self.replay is None:
            return Followed(events, [])
        return Followed(events, self.replay.take(events, batch.now_ns - PATIENCE_NS))

    def end(self) -> Followed:
        """Return what waited for rows that will not come, once all batches are taken."""
        if self._assembler is None:
            return Followed([], [])
        events = list(self._assembler.waiting(MAX_NS))
        decisions = self.replay.take(events, MAX_NS) if self.replay else []
        return Followed(events, decisions)

    def _assemble(self, batch: LiveBatch) -> EventAssembler:
        headers = (
            f"#{tag.decode()},{','.join(names)}".encode() for tag, names in batch.columns.items()
        )
        assembler = EventAssembler(headers)
        self.version = which_bbr.decide(assembler.columns, self.manifest).version
        if self._estimates and any(tag.kind == "main" for tag in assembler.header.tags):
            columns = assembler.columns
            try:
                self.replay = LiveReplay(self.version, columns, self.manifest, self.wanted)
            except BbrscopeError:  # HZ is not known: events are shown, decisions are not
                self.replay = None
        return assembler
