"""`--max-cpu`: what a recording takes of the host's time, and less of it where it is too much."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...probes.base.plurals import plural
from .host import bpf_stats

SECOND_NS = 1_000_000_000
# Looks are this far apart: so long that attaching or a single burst is not all that they see.
CHECK_NS = 2 * SECOND_NS
MOST_SHARE = 1 << 20
MOST_PERIOD_S = 60.0


class Periodic(Protocol):
    """A sampler: it polls every `period_s` seconds, which may be made longer."""

    period_s: float
    name: str


@dataclass(frozen=True)
class Used:
    """Seconds of CPU up to `ns`: of all, and of them what polling by ss and tc took."""

    ns: int
    all_s: float
    polls_s: float


class CpuLimit:
    """Compares CPU time with a limit, in percent of one CPU, and records less above it.

    What counts is bpftrace (`tracer`), this process with the tools that it called, further `pids`,
    and the probes' own time inside the kernel where it counts that. Where the tools took most of
    it the `samplers` poll half as often; else SIGWINCH to bpftrace halves the flows that are
    recorded. `notes` has what was said of it, `share` is N where one of N flows is left: `sample`
    of them from the beginning on. What `apart` encloses does not count.
    """

    def __init__(
        self, percent: float, tracer: int, say: Callable[[str], None], sample: int = 1
    ) -> None:
        self.percent = percent
        self.tracer = tracer
        self.say = say
        self.pids = [tracer]
        self.samplers: list[Periodic] = []
        self.share = self._first_share = sample
        self.notes: list[str] = []
        self._last: Used | None = None
        self._apart_s = 0.0

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """Leave out what this thread takes here: it is once, and fewer flows are no remedy."""
        before_s = time.thread_time()
        try:
            yield
        finally:
            self._apart_s += time.thread_time() - before_s

    def check(self, now_ns: int) -> None:
        """Judge the time since the last check, if that was long enough ago."""
        last = self._last
        if last is not None and now_ns - last.ns < CHECK_NS:
            return
        self._last = now = self.used(now_ns)
        if last is not None:
            percent = 100 * (now.all_s - last.all_s) * SECOND_NS / (now.ns - last.ns)
            if percent > self.percent:
                self._back_off(percent, now.polls_s - last.polls_s > (now.all_s - last.all_s) / 2)

    def _back_off(self, percent: float, by_polls: bool) -> None:
        slower = [one for one in self.samplers if one.period_s < MOST_PERIOD_S]
        if by_polls and slower:
            for one in slower:
                one.period_s *= 2
            self._note(percent, f"half as many polls by {' and '.join(one.name for one in slower)}")
        elif self.share < self._first_share * MOST_SHARE:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.tracer, signal.SIGWINCH)
                self.share *= 2
                self._note(percent, f"1 of {plural(self.share, 'flow')}")

    def _note(self, percent: float, what: str) -> None:
        text = (
            f"recording took {percent:.3g} % of a CPU, more than --max-cpu {self.percent:g} %:"
            f" from here on {what}"
        )
        self.notes.append(text)
        self.say(f"  {text}")

    def used(self, now_ns: int) -> Used:
        """What the recording took of the CPU so far."""
        own = os.times()
        polls = own.children_user + own.children_system
        itself = own.user + own.system - self._apart_s
        processes = itself + polls + sum(map(cpu_s, self.pids))
        runs = bpf_stats.programs(self.tracer)
        in_kernel = sum(one.get("run_time_ns", 0) for one in runs) / SECOND_NS
        return Used(now_ns, processes + in_kernel, polls)


def cpu_s(pid: int) -> float:
    """Seconds of CPU of a process, user's and system's, by proc_pid_stat(5); 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # The second field is the program's name in brackets, which may hold anything.
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
