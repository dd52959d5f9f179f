"""A recording without files of its own: attached to rings or to nothing, looked at as it runs.

What the flight recorder and the live views have in common.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ...probes.base.scratch import ScratchFolder
from ..bundle.bundle import EVENTS
from ..bundle.rungs import RUNGS
from .attaching import Attaching
from .host import loading
from .host.survey import survey
from .output.folder import PROBE
from .output.live_rows import LiveRows
from .output.outputs import Outputs
from .plan import RecordingPlan


class ScratchPlace:
    """A private folder for the program that is attached, gone after close()."""

    def __init__(self, outputs: Outputs) -> None:
        self.outputs = outputs
        self._scratch = ScratchFolder()

    @property
    def probe(self) -> Path:
        """The file from which bpftrace reads the program."""
        return self._scratch.path / PROBE

    def write_probe(self, program: str) -> None:
        """Write that file."""
        self.probe.write_text(program)

    @property
    def program(self) -> str:
        """The program that is attached; "" where none is."""
        return self.probe.read_text() if self.probe.exists() else ""

    def close(self) -> None:
        """Remove the folder."""
        self._scratch.close()


class Watching:
    """Attaches, and hands out rows as they come: `rows`, with `headers` that name their columns.

    `ended` says what ended it; it is set by signals, too.
    """

    def __init__(self, plan: RecordingPlan, outputs: Outputs, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.say = say
        self.ended = ""
        self.rows = LiveRows()
        self.place = ScratchPlace(outputs)
        self.attaching: Attaching | None = None

    def attach(self) -> Attaching:
        """Attach by the best rung that holds.

        Raises:
            HostError: none does, or the user ended it.
        """
        loading.make_loaded(self.plan, self.say, self.is_ended)
        host = survey(self.plan)
        self.attaching = Attaching(self.plan, host, self.place, self.say, self.rows)
        self.attaching.attach(self.is_ended)
        self.say(f"watching with {self.rung}: {RUNGS[self.rung].answers}")
        return self.attaching

    @property
    def rung(self) -> str:
        """How it is attached."""
        return self.attaching.rung if self.attaching else ""

    @property
    def headers(self) -> list[bytes]:
        """The lines that name the rows' columns."""
        tracer = self.attaching.tracer if self.attaching else None
        return tracer.events.headers if tracer else []

    @property
    def lost(self) -> int:
        """Rows that were lost on their way so far."""
        tracer = self.attaching.tracer if self.attaching else None
        return tracer.events.lost if tracer else 0

    def look(self, now_ns: int) -> None:
        """See which CPUs run, and record fewer flows where it takes more of them than it may."""
        if self.attaching is not None:
            self.attaching.look(now_ns)

    def apart(self) -> AbstractContextManager[None]:
        """A context whose CPU time is not of recording, and is not held against it."""
        limit = self.attaching.limit if self.attaching else None
        return limit.apart() if limit is not None else nullcontext()

    def is_ended(self) -> bool:
        """Whether something has ended it."""
        return bool(self.ended)

    def why_end(self) -> str:
        """What ends it now: bpftrace's own end; "" when nothing does."""
        tracer = self.attaching.tracer if self.attaching else None
        return tracer.why_ended() if tracer else ""

    def stop(self) -> None:
        """Detach and leave nothing behind; safe to call in any state."""
        tracer = self.attaching.tracer if self.attaching else None
        if tracer is not None:
            tracer.stop()
            self.place.outputs.drop(EVENTS)
        self.place.close()
