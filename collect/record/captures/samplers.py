"""What is looked at now and then beside the events: the queue ten times a second, `ss` once."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence

from ....probes.base.plurals import plural
from ..host.helpers import answer_of
from ..host.ss_sockets import socket_lines
from ..output.outputs import Output
from .place import Place

QUEUE_S = 0.1
SS_S = 1.0
JOIN_S = 30.0
USERS = re.compile(r" users:\(\(.*?\)\)")
QUEUE_HEADER = (
    "uptime_s,kind,sent_bytes,sent_pkts,dropped,overlimits,requeues,backlog_bytes,backlog_pkts"
)


class Sampler(threading.Thread):
    """Calls `take` every `period_s` until stopped and appends what it returns.

    `polls` counts the calls that returned anything, `rows` what they returned, see `rows_in`;
    `unanswered` those that returned None, because what was asked failed.
    """

    def __init__(
        self, name: str, output: Output, period_s: float, take: Callable[[], str | None]
    ) -> None:
        super().__init__(daemon=True, name=name)
        self.output = output
        self.period_s = period_s
        self.take = take
        self.polls = 0
        self.unanswered = 0
        self.rows = 0
        self.error: OSError | None = None
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._closed = False

    def run(self) -> None:
        """Look, write, and wait for the next time; until stop()."""
        due = time.monotonic()
        while not self._stopping.is_set():
            text = self.take()
            try:
                self._append(text)
            except OSError as error:
                self.error = error
                return
            due = max(due + self.period_s, time.monotonic())
            self._stopping.wait(max(due - time.monotonic(), 0))

    def _append(self, text: str | None) -> None:
        with self._writing:
            if self._closed:
                return
            self.unanswered += text is None
            if text:
                self.output.write(text.encode())
                self.polls += 1
                self.rows += rows_in(text)

    def notes(self) -> list[str]:
        """What a reader of the samples must know."""
        asked = self.unanswered + self.polls
        if not self.unanswered:
            return []
        return [f"{self.unanswered:,} of {plural(asked, 'poll')} of {self.name} failed"]

    def stop(self) -> None:
        """End the file; a poll that does not come to an end is left alone, and its text dropped."""
        self._stopping.set()
        self.join(JOIN_S)
        with self._writing:
            self._closed = True
            self.output.close()


def rows_in(text: str) -> int:
    """How many lines of what a sampler wrote are no comments."""
    return sum(not line.startswith("#") for line in text.splitlines())


def queue_rows(place: Place) -> str | None:
    """One row per qdisc of the device, in the bundle's queue.csv columns; None: tc failed."""
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    words = ["-s", "-j", "qdisc", "show", "dev", place.device]
    # tc enters a namespace by itself: ten times a second, one program less to start counts.
    inside = ["tc", "-n", place.netns, *words] if place.netns else place.command("tc", *words)
    text = answer_of(inside)
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    try:
        qdiscs = json.loads(text or "")
    except ValueError:
        return None
    uptime = (before + after) / 2e9
    rows = []
    for qdisc in qdiscs:
        values = (
            *(qdisc.get(name, 0) for name in ("bytes", "packets", "drops", "overlimits")),
            *(qdisc.get(name, 0) for name in ("requeues", "backlog", "qlen")),
        )
        rows.append(f"{uptime:.4f},{qdisc.get('kind')},{','.join(map(str, values))}\n")
    return "".join(rows)


def ss_lines(prefix: list[str], expression: list[str], pids: Sequence[int] = ()) -> str | None:
    """`ss` output under a line that says when it was taken (CLOCK_MONOTONIC); None: ss failed.

    `expression` is ss's own filter, which the kernel applies; processes are known by their names
    for sockets, which only `ss -p` knows.
    """
    before = time.monotonic_ns()
    text = answer_of([*prefix, "ss", "-tienpOH" if pids else "-tienOH", *expression])
    if text is None:
        return None
    taken = (before + time.monotonic_ns()) // 2
    lines = [line for line in socket_lines(text) if " bbr" in line]
    if pids:
        lines = [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
        lines = [USERS.sub("", line) for line in lines]  # names of programs are nobody's business
    return "\n".join([f"# monotonic_ns {taken}", *lines]) + "\n"
