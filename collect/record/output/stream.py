"""Compressed output streams: flat memory, usable up to the last flush whatever happens."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO, BinaryIO, Protocol, cast

import zstandard

from .event_cut import EventCut
from .held_rows import HeldRows

FLUSH_S = 1.0
CHUNK = 1 << 20
# A child that writes line by line would wake its reader for every one of them: what is read was
# less than this, so the pipe has room for what comes within the rest.
SMALL, REST_S = 64 << 10, 0.02
# A row or a column header; everything else that bpftrace prints is talk.
TALK = re.compile(rb"^(?!#?[A-Z]+[0-9]?,).*\n", re.MULTILINE)
LOST = re.compile(rb"Lost (\d+) events")
ROW = re.compile(rb"^[A-Z]+[0-9]?,([0-9]+),.*\n", re.MULTILINE)
# Rows of one CPU come in order; those of several are sorted among this much of the newest, as soon
# as there is a part more of them: sorting them for every few that come costs more than all else.
WINDOW_NS = 1_000_000_000
PART_NS = WINDOW_NS // 4
# Where no newer rows come, rows this old are written: bpftrace may stand still for less than that.
STALLED_NS = 5 * WINDOW_NS
COUNTER = re.compile(rb"^@attempted_([A-Z]+): (\d+)", re.MULTILINE)
# Lines of talk that are kept.
MOST_LINES = 1000
# What the program prints when no more rows can come (probes/program.py), and how many of these
# lines tell that all rows are printed. Silence tells nothing: on a busy host bpftrace may not run
# for a second, with rows on their way.
OVER, OVERS = b"+over\n", 2
WAIT_S = 0.05


class Sink:
    """An unbuffered file that forgets nothing: what a full disk refuses is kept for another try."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115 - closed in close()
        self._pending = b""
        self.written = 0
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        """Never raises: an exception inside zstandard would leave a hole in its stream."""
        self._pending += data
        try:
            self.drain()
        except OSError as error:
            self.error = error
        return len(data)

    def drain(self) -> None:
        """Write what is pending. Raises OSError; what was not written stays pending."""
        while self._pending:
            count = self._file.write(self._pending)
            self.written += count
            self._pending = self._pending[count:]

    def close(self) -> None:
        """Write the rest to the disk and close. Raises OSError."""
        try:
            self.drain()
            os.fsync(self._file.fileno())
        finally:
            self._file.close()


class Compressed:
    """A zstd file written piece by piece; `written` counts compressed bytes.

    `write` raises OSError when the disk is full; nothing given to it before or then is lost if
    there is room again by the time of `close`. A child that outlives its recording may still have
    something to write then: after `close`, `write` raises OSError, and `flush` does nothing.
    """

    def __init__(self, path: Path) -> None:
        self._sink = Sink(path)
        self._writer = zstandard.ZstdCompressor(level=3).stream_writer(
            cast("BinaryIO", self._sink), closefd=False
        )
        self._flushed = time.monotonic()
        self._closed = False

    @property
    def written(self) -> int:
        """Compressed bytes that are in the file."""
        return self._sink.written

    def write(self, data: bytes) -> None:
        """Compress and write. Raises OSError."""
        if self._closed:
            raise OSError("the file is closed")
        self._writer.write(data)
        if time.monotonic() - self._flushed > FLUSH_S:
            self.flush()
        if self._sink.error is not None:
            raise self._sink.error

    def flush(self) -> None:
        """Let everything so far be read by whoever opens the file now."""
        if self._closed:
            return
        self._writer.flush()
        self._flushed = time.monotonic()

    def close(self) -> None:
        """End the stream; a second call does nothing. Raises OSError."""
        if self._closed:
            return
        self._closed = True
        self._writer.close()  # type: ignore[no-untyped-call]  # zstandard has no hints here
        self._sink.close()


class Writable(Protocol):
    """What a child's output is copied to."""

    def write(self, data: bytes) -> None:
        """Take more. Raises OSError."""

    def flush(self) -> None:
        """Let everything so far be read by whoever looks now."""


class Tap(Protocol):
    """Who wants to see the rows as they come, before they are in order."""

    def add(self, rows: list[tuple[int, bytes]]) -> None:
        """Take rows with their times [ns]; called in the thread that reads them."""


class Pump(threading.Thread):
    """Copies a child's output to what it is given until it ends; keeps the first error.

    A failed write (a full disk) does not stop the reading: a child that blocks on its pipe could
    not be stopped in order.
    """

    def __init__(self, source: int, target: Writable) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.target = target
        self.error: OSError | None = None

    def run(self) -> None:
        """Read until the other end is closed."""
        while True:
            if not select.select([self.source], [], [], FLUSH_S)[0]:
                self.idle()
                continue
            chunk = os.read(self.source, CHUNK)
            if not chunk:
                break
            self.accept(chunk)
            if len(chunk) < SMALL:
                time.sleep(REST_S)
        self.accept_end()
        os.close(self.source)

    def idle(self) -> None:
        """Nothing came for a while: what came before can be read, should we be killed."""
        if self.error is None:
            self.target.flush()

    def accept(self, chunk: bytes) -> None:
        """Take what was read; a subclass understands it."""
        self.keep(chunk)

    def accept_end(self) -> None:
        """Called once, after the last byte."""

    def keep(self, data: bytes) -> None:
        """Write, until the first error."""
        if self.error is not None or not data:
            return
        try:
            self.target.write(data)
        except OSError as error:
            self.error = error


class Events(Pump):
    """bpftrace's output: rows go to the file; talk, its other lines, is understood or kept aside.

    `rows` counts rows by tag, `headers` are the lines that name their columns, `lost` sums the
    "Lost N events" that bpftrace reports here and on its stderr, `attempted` holds the kernel-side
    counters printed at its end, `talk` the rest of what it said.
    """

    def __init__(self, source: int, target: Writable) -> None:
        super().__init__(source, target)
        self.rows: Counter[str] = Counter()
        self.headers: list[bytes] = []
        self._lost_on_stdout = 0
        self.lost_on_stderr = 0
        self.attempted: dict[str, int] = {}
        self.talk: list[str] = []
        self.attached = threading.Event()
        self.tap: Tap | None = None
        self._overs = 0
        self._tail = b""
        self._tags: list[str] = []
        self._beats: set[bytes] = set()
        self._held = HeldRows()
        self._released_ns = 0
        self._end: EventCut | None = None

    @property
    def lost(self) -> int:
        """Rows that bpftrace says it lost: 0.24 and later say it on stderr, earlier ones here."""
        return self._lost_on_stdout + self.lost_on_stderr

    @property
    def cut(self) -> Counter[str]:
        """Rows of events that began after the end, by tag."""
        return self._end.cut if self._end else Counter()

    @property
    def late_ns(self) -> int:
        """How much later than a newer one a row was written, at most: 0 where all are in order."""
        return self._held.late_ns

    def cut_after(self, ns: int) -> None:
        """Leave out the events that began at `ns` [the rows' clock] or later.

        Probes detach one by one, in any order: the recording ends here for all of them at once.
        """
        self._end = EventCut(ns)

    def wait_printed(self, timeout_s: float) -> bool:
        """Wait until bpftrace has printed every row; False if it did not say so in that time."""
        deadline = time.monotonic() + timeout_s
        while self._overs < OVERS:
            if not self.is_alive() or time.monotonic() > deadline:
                return False
            time.sleep(WAIT_S)
        return True

    def accept(self, chunk: bytes) -> None:
        """Take whole lines: rows are held until they are in order, talk is understood."""
        data = self._tail + chunk
        end = data.rfind(b"\n") + 1
        self._tail = data[end:]
        data = data[:end]
        if TALK.search(data):
            data = self._without_talk(data)
        if data.startswith(b"#") or b"\n#" in data:
            data = self._without_headers(data)
        rows = [(int(row[1]), row[0]) for row in ROW.finditer(data)]
        self._held.add(rows)
        if self.tap is not None:
            self.tap.add(rows)
        if self._held.newest_ns - WINDOW_NS > self._released_ns + PART_NS:
            self._release(self._held.newest_ns - WINDOW_NS)

    def idle(self) -> None:
        """Write old rows: none of another CPU comes before them, unless bpftrace stands still."""
        self._release(max(self._released_ns, time.monotonic_ns() - STALLED_NS))
        super().idle()

    def accept_end(self) -> None:
        """Write the rows that are held."""
        # A row cut short by the death of bpftrace would be read as a whole one: the tail is left,
        # unless it is talk.
        if self._tail and not re.match(rb"[A-Z]+[0-9]?,", self._tail):
            self.accept(b"\n")
        self._release(self._held.newest_ns)

    def _release(self, until_ns: int) -> None:
        """Write the held rows up to a time, in order of time."""
        self._released_ns = until_ns
        data = self._held.take(until_ns)
        if not data:
            return
        if self._end is not None:
            data = self._end.keep(data)
        for tag in self._tags:
            row = b"%s," % tag.encode()
            self.rows[tag] += data.count(b"\n" + row) + data.startswith(row)
        self.keep(data)

    def _without_headers(self, data: bytes) -> bytes:
        """Write column headers at once: they come before every row."""
        lines = re.findall(rb"^#[A-Z]+[0-9]?,.*\n", data, re.MULTILINE)
        for line in lines:
            self._tags.append(line[1 : line.index(b",")].decode())
        self.keep(b"".join(lines))
        self.headers += lines
        return re.sub(rb"^#.*\n", b"", data, flags=re.MULTILINE)

    def _without_talk(self, data: bytes) -> bytes:
        for line in TALK.findall(data):
            for count in LOST.findall(line):
                self._lost_on_stdout += int(count)
            for tag, count in COUNTER.findall(line):
                self.attempted[tag.decode()] = int(count)
            if line == OVER:
                self._overs += 1
                continue
            if line.startswith(b"+"):
                self._beats.add(line)
                if len(self._beats) == 2:
                    self.attached.set()
                continue
            text = line.decode(errors="replace").strip()
            if text and not text.startswith(("@", "Attach")) and len(self.talk) < MOST_LINES:
                self.talk.append(text)
        return TALK.sub(b"", data)


class Stderr(threading.Thread):
    """What bpftrace says on stderr: losses are counted to the end, of the rest the first lines."""

    def __init__(self, source: IO[bytes], events: Events) -> None:
        super().__init__(daemon=True)
        self.source = source
        self.events = events
        self.lines: list[str] = []

    def run(self) -> None:
        """Read until bpftrace ends."""
        with self.source:
            for line in self.source:
                self._read(line)

    def _read(self, line: bytes) -> None:
        counts = LOST.findall(line)
        self.events.lost_on_stderr += sum(int(count) for count in counts)
        text = line.decode(errors="replace").strip()
        if text and not counts and len(self.lines) < MOST_LINES:
            self.lines.append(text)
