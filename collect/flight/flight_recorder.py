"""Record into rings, look at the rows as they come, and write a bundle when a trigger fires."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...probes.base.errors import HostError
from ...probes.base.plurals import plural
from ..record.attaching import Attaching
from ..record.captures.side_captures import SideCaptures
from ..record.host import clocks
from ..record.host.clocks import ClockReading
from ..record.output.accounting import EMPTY_WAY_OUT, is_empty, no_socket, trouble
from ..record.output.folder import PARTIAL, RecordingFolder
from ..record.output.live_rows import ORDER_NS, STALLED_NS
from ..record.output.manifest import ManifestWriter
from ..record.plan import RecordingPlan
from ..record.recording import ended_by_signals
from ..record.user_command import UserCommand
from ..record.watching import Watching
from . import beginnings, dump
from .due_dumps import DueDumps, Fired
from .early_signal import EarlySignal
from .looks import looks
from .rings import NO_PACKETS, WAIT_NS, Covered, Rings
from .triggers import Happened, LiveBatch, Watcher

TICK_S = 0.2
CLOCKS_S = 5.0
SECOND_NS = 1_000_000_000
# A trigger is seen this late at most where looks keep up with the rows.
LATE_S = 2.0
# What an event that began within a window prints after its end comes within this.
EVENT_NS = 10_000_000
# tcpdump hands packets on after a second at most: where there are no rows, these are waited for.
PACKETS_NS = 1_500_000_000
# A rotation comes early where this part of the memory is taken: nothing is dropped meanwhile.
FULL = 0.7
ROTATE = "rotate"
TOO_FAST = "rows that came too fast for triggers to look at"


@dataclass(frozen=True)
class FlightPlan:
    """What to keep and what to wait for.

    `last_s` seconds before a trigger and `after_s` after it are written; the rings take `memory`
    bytes; of the dumps the newest `keep` stay (None: all). With `rotate_s` nothing is waited for:
    everything is written, a bundle every so many seconds, or sooner where memory fills; none for a
    time in which no socket had BBR.
    """

    last_s: float
    memory: int
    watchers: tuple[tuple[str, Watcher], ...]
    after_s: float = 1.0
    keep: int | None = None
    rotate_s: float | None = None


class FlightRecorder:
    """A flight recording under way; `stop` ends all that it started.

    `dumps` are the bundles written so far, and `all_empty` while none of them has had a row;
    `problems` counts those that are not complete or could not be written; `due` are triggers that
    fired and whose dump is not written yet.
    """

    def __init__(self, plan: RecordingPlan, flight: FlightPlan, say: Callable[[str], None]) -> None:
        self.plan = plan
        self.flight = flight
        self.say = say
        self.rings = Rings(int((flight.last_s + flight.after_s) * SECOND_NS), flight.memory)
        self.watching = Watching(plan, self.rings, say)
        self.command = UserCommand(plan.command, plan.as_root)
        self.command.check()
        self.side = SideCaptures(plan, self.rings)
        self.dumps: list[Path] = []
        self.all_empty = True
        self.problems = 0
        self.due = DueDumps(int(flight.after_s * SECOND_NS), int(flight.last_s * SECOND_NS) // 2)
        self._written_until_ns = 0
        self._asked = False
        self._readings: deque[ClockReading] = deque()
        self._lost: deque[tuple[int, int]] = deque()
        self._writer: ManifestWriter | None = None

    @property
    def ended(self) -> str:
        """What ended it, in words; "" while nothing has."""
        return self.watching.ended

    @ended.setter
    def ended(self, why: str) -> None:
        """End it."""
        self.watching.ended = why

    def start(self) -> None:
        """Attach and start everything but the command.

        Raises:
            HostError: no bundle could be written, nothing could be attached, or the user ended it.
        """
        RecordingFolder(self._name()).discard()
        attaching: Attaching = self.watching.attach()
        self.side.start()
        attaching.count_too(self.side)
        self._writer = ManifestWriter(self.plan, attaching)
        self._read_clocks()
        # Nothing before is in all rings; and of COMMAND nothing may be missing.
        self.rings.began_ns = self._written_until_ns = self._readings[-1].monotonic_ns
        manifest = self._writer.at_start(self._readings[-1], [])
        for _, watcher in self.flight.watchers:
            watcher.begin(manifest)
        self.command.start()

    def run(self) -> None:
        """Look and dump until something ends it."""
        began = time.monotonic()
        while not self.ended:
            time.sleep(TICK_S)
            now = time.monotonic_ns()
            self.take_rows(now)
            self.watching.look(now)
            self.ended = self.ended or self._why_end(time.monotonic() - began)
        # What happened last is judged, too, however late this process is with looking.
        time.sleep(STALLED_NS / SECOND_NS)
        self.take_rows(time.monotonic_ns())
        while fired := self._answer(time.monotonic_ns()):
            self._dump(self._wait_for_rows(fired))
        if self.flight.rotate_s is not None:
            now = time.monotonic_ns()
            self.due.add(fired := Fired(ROTATE, self.ended, now, now))
            self._dump(self._wait_for_rows(fired))
        self._say_unwritten()

    def _say_unwritten(self) -> None:
        """Say of which triggers there is no bundle, and what they could not see."""
        if unwritten := self.due.unwritten:
            often = ", ".join(
                f"{trigger} {plural(count, 'time')}" for trigger, count in unwritten.items()
            )
            self.say(f"  fired and wrote no bundle, as one was due or just written: {often}")
        if dropped := self.watching.rows.dropped:
            self.say(f"  {TOO_FAST}: {dropped:,}")

    def ask(self) -> None:
        """Write a dump soon: what SIGUSR1 does."""
        self._asked = True

    def take_rows(self, now_ns: int) -> None:
        """Take the rows that came, judge them, and write a dump that is due."""
        if not self._readings or now_ns - self._readings[-1].monotonic_ns > CLOCKS_S * SECOND_NS:
            self._read_clocks()
        self._lost.append((now_ns, self.watching.lost))
        self._answer(now_ns)
        for rows, at_ns in looks(self.watching.rows.take(), now_ns):
            self._judge(rows, at_ns)
            while (fired := self.due.first) is not None and self._is_whole(fired, now_ns):
                self._dump(fired)
        looked_ns = now_ns if self.due.first is None else self.due.first.ns
        self.rings.looked(looked_ns, self._readings[-1].offset_ns)

    def _judge(self, rows: list[bytes], now_ns: int) -> None:
        columns = beginnings.columns_of(self.watching.headers)
        batch = LiveBatch(columns, rows, now_ns - ORDER_NS)
        if self.flight.rotate_s is not None and self.due.first is None:
            self._rotate(self.flight.rotate_s, now_ns)
        for text, watcher in self.flight.watchers:
            if (happened := watcher.check(batch)) is not None:
                self._fire(text, happened)

    def _answer(self, now_ns: int) -> Fired | None:
        """Fire for SIGUSR1, after a dump that is due, whatever was written just now."""
        if self._asked and self.due.first is None:
            self._asked = False
            self.due.forget("signal")
            self._fire("signal", Happened("SIGUSR1", now_ns))
        return self.due.first

    def _rotate(self, rotate_s: float, now_ns: int) -> None:
        """Begin the next bundle when it is time, or when memory fills."""
        since_ns = self._written_until_ns
        full = self.rings.fill(since_ns, self._readings[-1].offset_ns) > FULL
        if full or now_ns - since_ns >= rotate_s * SECOND_NS:
            why = "memory fills" if full else f"every {rotate_s:g} s"
            self.due.add(Fired(ROTATE, why, now_ns, now_ns))

    def _fire(self, trigger: str, happened: Happened) -> None:
        """Have a dump written, and say so; while it is due, or was just written, only count."""
        ns, why = happened.ns, happened.why
        if not self.due.fire(trigger, happened):
            return
        late_s = (time.monotonic_ns() - ns) / SECOND_NS
        late = f" (seen {late_s:.1f} s later)" if late_s > LATE_S else ""
        self.say(f"trigger {trigger}: {why}{late}")

    def _is_whole(self, fired: Fired, now_ns: int) -> bool:
        """Whether all rows of the time to write have come, or all packets where none do."""
        until, events = fired.until_ns, self.rings.events
        if events is None:
            return now_ns >= until + (PACKETS_NS if self.rings.packets else 0)
        reached = events.newest_ns >= until + EVENT_NS
        return now_ns >= until and (reached or now_ns >= until + WAIT_NS)

    def _wait_for_rows(self, fired: Fired) -> Fired:
        """At the end the time after the trigger is cut short; rows on their way are waited for."""
        fired = replace(fired, until_ns=min(fired.until_ns, time.monotonic_ns()))
        while not self._is_whole(fired, time.monotonic_ns()) and not self.watching.why_end():
            time.sleep(TICK_S)
        return fired

    def _read_clocks(self) -> None:
        now = clocks.sample()
        self._readings.append(now)
        oldest = now.monotonic_ns - 2 * self.rings.last_ns - 60 * SECOND_NS
        while self._readings[0].monotonic_ns < oldest:
            self._readings.popleft()
        while self._lost and self._lost[0][0] < oldest:
            self._lost.popleft()

    def _why_end(self, elapsed_s: float) -> str:
        if why := self.watching.why_end():
            return why
        if self.command.ended:
            return f"the command ended (status {self.command.status})"
        if self.plan.duration_s is not None and elapsed_s >= self.plan.duration_s:
            return "duration"
        return ""

    def _dump(self, fired: Fired) -> None:
        """Write the window before a trigger, the first that is due; the recording goes on."""
        self.due.take()
        self._read_clocks()
        last = self._readings[-1]
        rotates = fired.trigger == ROTATE
        begin = self._written_until_ns if rotates else None
        output = self._name()
        try:
            window = self.rings.window(fired.until_ns, last.offset_ns, begin)
            facts = self._facts(fired, window, output)
            program = self.watching.place.program
            with self.watching.apart():
                manifest = dump.write_dump(
                    self.rings, window, output, facts, program, empty_too=not rotates
                )
        except HostError as error:
            self.problems += 1
            self.say(f"  no bundle: {error.fact}; the recording goes on")
            return
        if rotates:
            self._written_until_ns = window.until_ns
        else:
            self.due.written(fired.trigger, window.until_ns)
        seconds = (window.until_ns - window.from_ns) / 1e9
        if manifest is None:
            nothing = no_socket(self.plan.select.describe())
            self.say(f"  no bundle: {nothing} in the last {seconds:.1f} s")
            return
        self._add(output, manifest, seconds)

    def _add(self, output: Path, manifest: dict[str, Any], seconds: float) -> None:
        """Say what a new bundle holds, and keep the newest."""
        self.dumps.append(output)
        self.all_empty = self.all_empty and is_empty(manifest)
        rows = sum(manifest["events"].values()) or manifest["socket_samples"]
        self.say(f"  {output}: the last {seconds:.1f} s, {plural(rows, 'row')}")
        if problems := trouble(manifest):
            self.problems += 1
            self.say(f"  it is not complete: {'; '.join(problems)}")
        self._keep_newest()

    def _name(self) -> Path:
        """A name by the time that nothing has yet, nor what a recorder writes, or left of it."""
        wanted = self.plan.output
        name = f"{wanted.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        numbered = (f"{name}-{number:03}" for number in itertools.count(2))
        paths = map(wanted.with_name, itertools.chain((name,), numbered))
        taken = {path.name.removesuffix(PARTIAL) for path in wanted.parent.glob(f"{name}*")}
        return next(path for path in paths if path.name not in taken)

    def _facts(self, fired: Fired, window: Covered, output: Path) -> dict[str, Any]:
        """The manifest of a dump, but for what is counted while it is written."""
        assert self._writer is not None
        start, end = dump.clocks_of(list(self._readings), window)
        before = [count for ns, count in self._lost if ns <= window.from_ns]
        lost = self.watching.lost - (before[-1] if before else 0)
        facts = self._writer.of_dump(output.name, start, end, self._notes(window))
        packets = self.side.packets
        return {
            **facts,
            "ended": f"trigger {fired.trigger}: {fired.why}",
            "flight": {
                "trigger": fired.trigger,
                "why": fired.why,
                "fired_ns": fired.ns,
                "from_ns": window.from_ns,
                "until_ns": window.until_ns,
                "memory_bytes": self.flight.memory,
                "kept_bytes": self.rings.size,
                "unwritten_before": self.due.unwritten.total(),
            },
            "events_lost": lost,
            "packets": packets.describe() if packets else None,
        }

    def _notes(self, window: Covered) -> list[str]:
        notes = [*self.side.notes, *(self.side.packets.notes() if self.side.packets else [])]
        if window.short:
            seconds = (window.until_ns - window.from_ns) / 1e9
            notes.append(
                f"{' and '.join(window.short)} had no room for more: the window is"
                f" {seconds:.1f} s, what all cover; a larger --memory holds more"
            )
        if not window.packets:
            notes.append(NO_PACKETS)
        if dropped := self.watching.rows.dropped:
            notes.append(f"{TOO_FAST}, so far: {dropped}")
        events = self.rings.events
        if events is not None and events.beginnings.forgotten:
            notes.append("addresses of the flows that were silent longest had no room")
        return notes

    def _keep_newest(self) -> None:
        """Remove the oldest dumps of this recording beyond those to keep, now or with the next."""
        keep = self.flight.keep
        for oldest in self.dumps[:-keep] if keep is not None else ():
            shutil.rmtree(oldest, ignore_errors=True)
            if oldest.exists():
                self.say(f"  cannot remove {oldest}, the oldest of more than {keep}")
                continue
            self.dumps.remove(oldest)
            self.say(f"  removed {oldest}, the oldest of more than {keep}")

    def stop(self) -> None:
        """Stop everything; safe to call in any state."""
        self.command.stop()
        self.watching.stop()
        self.side.stop()


def fly(
    plan: RecordingPlan, flight: FlightPlan, say: Callable[[str], None]
) -> tuple[list[Path], str, int]:
    """Record until something ends it; return the bundles, what ended it, and COMMAND's status, or 1
    where a bundle is not complete or could not be written.

    Raises:
        HostError: nothing could be recorded, or there was nothing: all bundles are empty.
    """
    recorder = FlightRecorder(plan, flight, say)
    with ended_by_signals(recorder), asked_by_signal(recorder):
        try:
            recorder.start()
            waits = ", ".join(text for text, _ in flight.watchers) or "signal"
            until = (
                f"a bundle every {flight.rotate_s:g} s" if flight.rotate_s else f"until: {waits}"
            )
            say(f"keeping the last {flight.last_s:g} s, {until} (or kill -USR1)")
            recorder.run()
        finally:
            recorder.stop()
    status = recorder.command.status if recorder.command.ended else 0
    if recorder.problems:
        status = 1
        say(f"  could not be written or not complete: {plural(recorder.problems, 'bundle')}")
    elif recorder.all_empty and (recorder.dumps or flight.rotate_s):
        of = f" in the time of {_all_of(recorder.dumps)}" if recorder.dumps else ""
        nothing = no_socket(plan.select.describe())
        raise HostError(f"nothing was recorded: {nothing}{of}", EMPTY_WAY_OUT)
    return recorder.dumps, recorder.ended, status


def _all_of(dumps: list[Path]) -> str:
    """The bundles in words."""
    first = str(dumps[0])
    if len(dumps) == 1:
        return first
    return f"all {plural(len(dumps), 'bundle')}, {first} to {dumps[-1]}"


@contextlib.contextmanager
def asked_by_signal(recorder: FlightRecorder) -> Iterator[None]:
    """SIGUSR1 has a dump written."""
    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: recorder.ask())
    if isinstance(before, EarlySignal) and before.came:
        recorder.ask()
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)
