"""One recording from start to bundle: attach, run, watch, stop, account, write."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ...probes.base.errors import HostError
from ...probes.base.plurals import plural
from ..bundle.rungs import RUNGS
from .attaching import Attaching
from .captures.side_captures import SideCaptures
from .host import clocks, loading
from .host.survey import survey
from .output import check
from .output.anonymize import anonymize
from .output.folder import RecordingFolder, way_out
from .output.late_rows import put_in_order
from .output.live_rows import LiveRows
from .output.manifest import ManifestWriter
from .plan import RecordingPlan
from .progress import Progress
from .tracer import Tracer, TracerEnd
from .user_command import UserCommand

TICK_S = 0.2
# How often the manifest of a recording under way is written: what is lost of the clocks' drift.
MANIFEST_S = 10.0


class Endable(Protocol):
    """A recording; `ended` says what ended it, "" while nothing has."""

    ended: str


class Onlooker(Protocol):
    """Sees the rows of a recording as they come, in order of time."""

    def begin(self, manifest: dict[str, Any]) -> None:
        """Learn what the recording is, from its manifest at the start."""

    def see(self, headers: list[bytes], rows: list[bytes], now_ns: int) -> None:
        """Take rows, the lines that name their columns, and the time [ns, CLOCK_MONOTONIC]."""

    def end(self) -> None:
        """Learn that no more rows come."""


class Recording:
    """A recording under way; `stop` ends all that it started, whatever happens."""

    def __init__(
        self,
        plan: RecordingPlan,
        say: Callable[[str], None],
        onlooker: Onlooker | None = None,
    ) -> None:
        self.plan = plan
        self.onlooker = onlooker
        self.rows = LiveRows()
        self.say = say
        self.ended = ""
        self.command = UserCommand(plan.command, plan.as_root)
        self.command.check()
        self.folder = RecordingFolder(plan.output)
        self.attaching: Attaching | None = None
        self.side: SideCaptures | None = None
        self.manifest: ManifestWriter | None = None

    def start(self) -> None:
        """Attach and start everything but the command.

        Raises:
            HostError: nothing could be attached, or the user ended it.
        """
        self.side = SideCaptures(self.plan, self.folder.outputs)
        loading.make_loaded(self.plan, self.say, self.is_ended)
        tap = self.rows if self.onlooker else None
        self.attaching = Attaching(self.plan, survey(self.plan), self.folder, self.say, tap)
        self.attaching.attach(self.is_ended)
        self.side.start()
        self.attaching.count_too(self.side)
        self.manifest = ManifestWriter(self.plan, self.attaching)
        self._write_manifest()
        if self.onlooker is not None:
            self.onlooker.begin(self.manifest.at_start(clocks.sample(), []))
        self.say(f"recording with {self.attaching.rung}: {RUNGS[self.attaching.rung].answers}")

    def is_ended(self) -> bool:
        """Whether something has ended the recording."""
        return bool(self.ended)

    def _write_manifest(self) -> None:
        assert self.manifest is not None
        assert self.side is not None
        self.folder.write_manifest(self.manifest.at_start(clocks.sample(), self.side.notes))

    def watch(self) -> None:
        """Until something ends the recording; `ended` says what."""
        start = time.monotonic()
        written_s = 0.0
        progress = Progress(sys.stderr, self.plan.quiet)
        while not self.ended:
            elapsed = time.monotonic() - start
            self.ended = self.why_end(elapsed)
            if not self.ended:
                time.sleep(TICK_S)
            if elapsed - written_s > MANIFEST_S:
                written_s = elapsed
                with contextlib.suppress(OSError):  # the streams notice a full disk
                    self._write_manifest()
            self._show(progress, elapsed)
            self._look_on(self.rows.take)
            if self.attaching is not None:
                self.attaching.look(time.monotonic_ns())
        progress.done()

    def _look_on(self, take: Callable[[], list[bytes]]) -> None:
        """Show the onlooker the rows that `take` returns."""
        tracer = self.attaching.tracer if self.attaching else None
        if self.onlooker is not None and tracer is not None:
            self.onlooker.see(tracer.events.headers, take(), time.monotonic_ns())

    def show_end(self) -> None:
        """Show the onlooker the rows that came while the recording ended."""
        self._look_on(self.rows.take_all)
        if self.onlooker is not None:
            self.onlooker.end()

    def _show(self, progress: Progress, elapsed_s: float) -> None:
        tracer = self.attaching.tracer if self.attaching else None
        rows, lost = (tracer.events.rows, tracer.events.lost) if tracer else ({}, 0)
        progress.show(elapsed_s, rows, lost, self.written())

    def why_end(self, elapsed_s: float) -> str:
        """What ends the recording now; "" when nothing does."""
        tracer = self.attaching.tracer if self.attaching else None
        if tracer and (why := tracer.why_ended()):
            return why
        if self.command.ended:
            return f"the command ended (status {self.command.status})"
        if self.plan.duration_s is not None and elapsed_s >= self.plan.duration_s:
            return "duration"
        if self.plan.max_bytes is not None and self.written() >= self.plan.max_bytes:
            return f"size cap of {plural(self.plan.max_bytes, 'byte')}"
        if error := self.write_error():
            return f"cannot write: {error.strerror}"
        return ""

    def written(self) -> int:
        """Compressed bytes so far."""
        tracer = self.attaching.tracer if self.attaching else None
        beside = self.side.written() if self.side else 0
        return beside + (tracer.output.written if tracer else 0)

    def write_error(self) -> OSError | None:
        """The first write that failed, if any."""
        tracer = self.attaching.tracer if self.attaching else None
        error = tracer.events.error if tracer else None
        return error or (self.side.write_error() if self.side else None)

    def stop(self) -> tuple[TracerEnd | None, dict[str, Any] | None]:
        """Stop everything; nothing stays attached. Safe to call in any state.

        Returns how bpftrace ended, and the manifest's `packets`; None for what did not run.
        """
        self.folder.release_reserve()
        self.command.stop()
        tracer = self.attaching.tracer if self.attaching else None
        ended = tracer.stop() if tracer else None
        return ended, self.side.stop() if self.side else None

    def finish(self) -> dict[str, Any]:
        """Stop, check the rows, write the manifest, and give the bundle its name."""
        tracer_end, packets = self.stop()
        assert self.manifest is not None
        assert self.side is not None
        assert self.attaching is not None
        status = self.command.status if self.command.ended else None
        manifest = self.manifest.at_end(self.ended, status, tracer_end, packets, self.side)
        if self.attaching.tracer is not None:
            self._put_in_order(self.attaching.tracer)
            manifest["completeness"] = check.check(self.folder.events).as_dict()
        self.folder.write_manifest(manifest)
        if self.plan.anonymize:
            anonymize(self.folder.path)
        self.folder.publish()
        return manifest

    def _put_in_order(self, tracer: Tracer) -> None:
        """Order the rows that bpftrace printed too late for it, unless the disk has no room."""
        if tracer.events.late_ns and tracer.events.error is None:
            self.say("putting rows in order of time, as bpftrace stood still for a while")
            with contextlib.suppress(OSError):  # the check that follows tells of it
                put_in_order(self.folder.events, tracer.events.late_ns)


def run(
    plan: RecordingPlan, say: Callable[[str], None], onlooker: Onlooker | None = None
) -> tuple[Path, dict[str, Any]]:
    """Record and return the bundle's path and manifest; `onlooker` sees the rows as they come.

    Raises:
        HostError: nothing could be recorded, and no bundle is left; or the bundle could not be
            finished, and what was recorded is where the message says.
    """
    recording = Recording(plan, say, onlooker)
    with ended_by_signals(recording):
        try:
            recording.start()
            recording.command.start()
        except BaseException as error:
            recording.stop()
            recording.folder.discard()
            if isinstance(error, OSError):
                raise HostError(
                    f"cannot record: {error}", way_out(error, "bbrscope doctor")
                ) from error
            raise
        try:
            recording.watch()
        finally:
            manifest = finished(recording)
        recording.show_end()
    return plan.output, manifest


def finished(recording: Recording) -> dict[str, Any]:
    """Finish a recording; whatever goes wrong now, what was recorded stays."""
    try:
        return recording.finish()
    except OSError as error:
        raise HostError(
            f"cannot finish the bundle: {error.strerror}",
            f"what was recorded is in {recording.folder.path}",
        ) from error


@contextlib.contextmanager
def ended_by_signals(recording: Endable) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the recording in order instead of the process.

    A SIGHUP that is ignored stays ignored: nohup(1) asks for that.
    """

    def end(number: int, _frame: object) -> None:
        recording.ended = recording.ended or signal.Signals(number).name

    wanted = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        wanted.append(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
