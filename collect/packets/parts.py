"""Dissect a capture, a large one in parts: several at once, and none beyond the memory there is.

What is left is a single connection of more packets than one tshark has room for: it is cut off
there, and the capture's damage says so.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...probes.base.closing import Closing
from ...probes.base.errors import BundleError
from ...probes.base.scratch import ScratchFolder
from .capture_file import packed, pieces
from .capture_records import GROUPS
from .packets_alone import packets_alone
from .split import CannotSplitError, Sorted
from .tshark import Dissection, free_memory
from .tshark_text import Decoder

if TYPE_CHECKING:
    import pyarrow as pa

# tshark takes so much to begin with, and for each packet it has seen: there is no way to make it
# forget and keep what it says of later ones. All may take this share of the memory that is free.
TSHARK_MEMORY = 180_000_000
PACKET_MEMORY = 500
MEMORY_SHARE = 0.6
# Captures beyond this are sorted by connection first, if there are several cores: starting another
# tshark takes a fifth of a second.
WORTH_SORTING = 16 << 20
# One tshark gets no more packets than this, unless one group of connections has more.
MOST_PACKETS = 2_000_000
# Headers alone pack to about a sixth.
GROWTH = 6
# The least that a packet takes in a capture: its record's header and its own.
LEAST_PACKET = 60


@dataclass(frozen=True)
class _AsCaptured:
    """Of each frame that a part's tshark sees: its number in the capture, its captured bytes."""

    frames: npt.NDArray[np.uint32]
    captured: npt.NDArray[np.uint32]


class Parts(Closing):
    """Runs of tshark over one capture; a context manager.

    Args:
        path: the capture: pcap or pcapng, plain, gzip or zstd.
        shown: what to call it in messages.
        folder: where copies of its packets may lie meanwhile.
        progress: called with the bytes of the file read so far.
        whole: one tshark sees all of it, whatever its size.

    Attributes:
        frames: after the batches: the number of packets, of any protocol.
        damage: after the batches: why the capture ends early, or None.
        sorted: the packets by connection; None: one tshark sees them all.

    Raises:
        HostError: tshark is not installed.
    """

    def __init__(
        self,
        path: Path,
        shown: str,
        folder: Path,
        progress: Callable[[int], None] | None = None,
        whole: bool = False,
    ) -> None:
        self._path, self._shown, self._progress = path, shown, progress
        self._scratch = ScratchFolder(folder)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._running: set[Dissection] = set()
        self._most_memory = int(free_memory() * MEMORY_SHARE)
        self._born: list[tuple[int, int]] = []
        self._fed = 0
        self.frames = 0
        self.damage: str | None = None
        self.sorted = None if whole else self._sort()

    def close(self) -> None:
        """End what still runs, and remove the copies."""
        self._stop.set()
        self._scratch.close()

    def _sort(self) -> Sorted | None:
        """Sort the packets by connection, if that pays or one tshark could not hold them."""
        size = self._path.stat().st_size * (GROWTH if packed(self._path) else 1)
        fits = size / LEAST_PACKET < self._most_packets(1)
        if fits and (_cores() < 2 or size < WORTH_SORTING):
            return None
        try:
            return Sorted(self._path, self._scratch.path)
        except CannotSplitError:
            return None
        except OSError as error:
            raise BundleError(
                f"cannot read {self._shown}, or write a copy beside the store: {error}",
                "free as much space as the unpacked capture takes, or put the store elsewhere",
            ) from error

    def _workers(self) -> int:
        """How many tsharks run at once."""
        return max(1, min(_cores(), self._most_memory // (2 * TSHARK_MEMORY)))

    def _most_packets(self, workers: int) -> int:
        """How many packets one of so many tsharks has room for."""
        room = self._most_memory // workers - TSHARK_MEMORY
        return max(1, min(MOST_PACKETS, room // PACKET_MEMORY))

    def _jobs(self) -> list[list[int]]:
        """Groups for one tshark each, of about the same number of packets; the largest first."""
        assert self.sorted is not None
        counts = np.bincount(self.sorted.groups, minlength=GROUPS)
        workers = self._workers()
        most = self._most_packets(workers)
        wanted = max(workers, -(-int(counts.sum()) // most))
        jobs = _dealt(counts, wanted)
        while any(len(job) > 1 and counts[job].sum() > most for job in jobs):
            wanted += 1
            jobs = _dealt(counts, wanted)
        return jobs

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the capture's TCP segments, some ten thousand at a time; parts come mixed.

        Columns are those of `tshark_text`; stream has the part's number in its upper 32 bits.

        Raises:
            BundleError: it is no capture that tshark understands, or cannot be read.
        """
        if self.sorted is None:
            yield from self._dissect(0, packets_alone(pieces(self._path)), None)
            return
        self.damage = self.sorted.damage
        ready: queue.Queue[pa.RecordBatch] = queue.Queue(maxsize=2)
        jobs = self._jobs()
        with ThreadPoolExecutor(self._workers()) as pool:
            try:
                working = [
                    pool.submit(self._put, ready, part, job) for part, job in enumerate(jobs)
                ]
                while not all(work.done() for work in working) or not ready.empty():
                    _raise_first(working)
                    try:
                        yield ready.get(timeout=0.05)
                    except queue.Empty:
                        continue
                _raise_first(working)
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)

    def _put(self, ready: queue.Queue[pa.RecordBatch], part: int, job: list[int]) -> None:
        assert self.sorted is not None
        numbers = [np.flatnonzero(self.sorted.groups == group) for group in job]
        places = np.concatenate(numbers)
        as_captured = _AsCaptured((places + 1).astype(np.uint32), self.sorted.captured[places])
        for batch in self._dissect(part, self._read(job), as_captured):
            while not self._stop.is_set():
                try:
                    ready.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    continue

    def _read(self, job: list[int]) -> Iterator[tuple[int, bytes]]:
        """The files of a job's groups, one after the other, as one capture."""
        assert self.sorted is not None
        size = self._path.stat().st_size
        for place, group in enumerate(job):
            with open(self.sorted.file(group), "rb") as file:
                file.seek(self.sorted.header if place else 0)
                while piece := file.read(1 << 20):
                    with self._lock:
                        self._fed += len(piece)
                    yield min(size, size * self._fed // max(1, self.sorted.bytes)), piece

    def _dissect(
        self, part: int, source: Iterator[tuple[int, bytes]], known: _AsCaptured | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one tshark with frames numbered as in the capture."""
        with Dissection(source, self._shown, self._progress, self._has_room) as dissection:
            with self._lock:
                self._running.add(dissection)
            try:
                first = part << 32
                for batch in dissection.batches():
                    if self._stop.is_set():
                        return
                    born = batch.born if known is None else known.frames[batch.born - 1]
                    with self._lock:
                        self._born += zip(
                            born.tolist(), range(first, first + len(born)), strict=True
                        )
                    first += len(born)
                    yield _as_in_capture(batch.rows, part, known)
            finally:
                with self._lock:
                    self._running.discard(dissection)
            with self._lock:
                self.frames += dissection.frames
                self.damage = self.damage or dissection.damage

    def _has_room(self) -> bool:
        """Tell whether all tsharks together have taken less memory than they may."""
        with self._lock:
            return sum(running.memory() for running in self._running) <= self._most_memory

    def numbers(self) -> pa.Table:
        """Return each `stream` of the batches and the `number` that one tshark would have given.

        It numbers connections in the order of their appearance.
        """
        import pyarrow as pa

        streams = [stream for _, stream in sorted(self._born)]
        types = pa.schema([("stream", pa.uint64()), ("number", pa.uint32())])
        return pa.table({"stream": streams, "number": range(len(streams))}, types)


def arrow_schema() -> pa.Schema:
    """Return the names and types of the columns of the batches."""
    nothing = Decoder().decode(np.empty(0, np.uint8), 0)
    return _as_in_capture(nothing.rows, 0, None).schema


def _dealt(counts: npt.NDArray[np.int64], wanted: int) -> list[list[int]]:
    """Deal out groups to so many jobs, each to the one that has least."""
    jobs: list[list[int]] = [[] for _ in range(wanted)]
    sums = np.zeros(wanted, np.int64)
    for group in np.argsort(-counts, kind="stable"):
        if counts[group]:
            job = int(np.argmin(sums))
            jobs[job].append(int(group))
            sums[job] += counts[group]
    return [jobs[job] for job in np.argsort(-sums, kind="stable") if jobs[job]]


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _raise_first(working: list[Future[None]]) -> None:
    for work in working:
        if work.done():
            work.result()


def _as_in_capture(rows: pa.RecordBatch, part: int, known: _AsCaptured | None) -> pa.RecordBatch:
    """Tell a part's streams from those of others; number and measure frames as in the capture."""
    import pyarrow as pa

    columns: dict[str, Any] = dict(zip(rows.schema.names, rows.columns, strict=True))
    if known is not None:
        import pyarrow.compute as pc

        frames, captured = pa.array(known.frames), pa.array(known.captured)
        places = pc.subtract(columns["packet"], pa.scalar(1, pa.uint32()))
        acked = pc.subtract(columns["acks_packet"], pa.scalar(1, pa.uint32()))
        columns["packet"] = frames.take(places)
        columns["captured_len"] = captured.take(places)
        columns["acks_packet"] = frames.take(acked)
    columns["stream"] = pa.array(columns["stream"].to_numpy() + np.uint64(part << 32))
    return pa.record_batch(columns)
