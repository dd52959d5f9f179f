"""The bpftrace process of a recording: start, wait until it is attached, account, stop."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...probes.base.errors import HostError
from .host import bpf_stats
from .host.bpftrace import Bpftrace, environment, prepare
from .host.helpers import how_ended
from .output.outputs import Output
from .output.stream import Events, Stderr, Tap

PR_SET_PDEATHSIG = 1
F_SETPIPE_SZ = 1031
STOP_S = 60.0
AGAIN_S = 1.0
# What bpftrace warned of while attaching has been read by then.
SETTLE_S = 0.1
# What bpftrace says of its settings whatever else happens: no cause of anything.
REMARKS = ("RLIMIT_MEMLOCK", "BPFTRACE_MAP_KEYS_MAX is deprecated")


def die_with_parent() -> None:
    """In a child: end it when the collector dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)


def prepare_to_trace() -> None:
    """In a child, before bpftrace: what it needs, and its end with ours."""
    prepare()
    die_with_parent()


@dataclass(frozen=True)
class TracerEnd:
    """How bpftrace ended: whether its programs' runs were counted, and whether it died by itself or
    had to be killed, which leaves its counters unprinted.

    `programs` has what the kernel says of each BPF program: run_cnt, recursion_misses (fdinfo).
    """

    programs: list[dict[str, int]]
    counted: bool = False
    died: bool = False
    killed: bool = False


class Tracer:
    """bpftrace running one program, its rows on their way into `output`."""

    def __init__(
        self,
        bpftrace: Bpftrace,
        program: Path,
        output: Output,
        buffer_bytes: int,
        tap: Tap | None = None,
    ) -> None:
        self.output = output
        self._stats = bpf_stats.enable()
        source, sink = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(sink, F_SETPIPE_SZ, 1 << 20)
        self.process = subprocess.Popen(
            [bpftrace.path, "-B", "line", str(program.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.PIPE,
            env=environment(buffer_bytes, bpftrace.shared_ring),
            process_group=0,  # Ctrl-C is for the collector to pass on
            preexec_fn=prepare_to_trace,
        )
        os.close(sink)
        self.events = Events(source, self.output)
        self.events.tap = tap
        assert self.process.stderr is not None
        self.stderr = Stderr(self.process.stderr, self.events)
        self.stderr.start()
        self.events.start()

    def wait_attached(self, stop: Callable[[], bool], timeout_s: float = 300.0) -> None:
        """Return once every probe is attached.

        Raises:
            HostError: bpftrace gave up, with its own words, or took longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not self.events.attached.wait(0.1):
            if self.process.poll() is not None:
                how = f"bpftrace did not attach ({how_ended(self.process.returncode)})"
                raise HostError(": ".join(filter(None, (how, self.complaint()))))
            if stop():
                raise HostError("stopped while bpftrace was attaching; nothing was recorded")
            if time.monotonic() > deadline:
                raise HostError(f"bpftrace did not attach within {timeout_s:.0f} s")
        time.sleep(SETTLE_S)
        if words := self.complaint(partial=True):
            raise HostError(f"bpftrace attached only in part: {words}")

    def complaint(self, partial: bool = False) -> str:
        """What bpftrace said beside its rows, without REMARKS."""
        if self.process.poll() is not None:
            self.stderr.join(AGAIN_S)
        said = [*self.stderr.lines, *self.events.talk]
        lines = [line for line in said if not any(remark in line for remark in REMARKS)]
        if partial:
            # With the rest attached, a missing function is only a warning.
            words = ("could not attach", "cannot attach", "unable to attach", "not found")
            lines = [line for line in lines if any(word in line.lower() for word in words)]
        return "; ".join(list(dict.fromkeys(lines))[:6])[:1000]

    def why_ended(self) -> str:
        """How bpftrace ended by itself, with its own words; "" while it runs."""
        if self.process.poll() is None:
            return ""
        how = how_ended(self.process.returncode)
        return f"bpftrace ended by itself ({how}) {self.complaint()}".strip()

    def stop(self) -> TracerEnd:
        """End bpftrace in order and return what it counted; safe to call when it is dead."""
        stats = bpf_stats.programs(self.process.pid)
        alive = self.process.poll() is None
        if alive:
            # The program stops recording by itself; bpftrace prints what is on its way, and only
            # then may be asked to end: it drops what it has not printed.
            self.process.send_signal(signal.SIGURG)
            self.events.cut_after(time.monotonic_ns())
            self.events.wait_printed(STOP_S)
        ended = not alive or self._interrupt()
        if not ended:
            self.process.kill()
            self.process.wait()
        self.events.join(STOP_S)
        with contextlib.suppress(OSError):
            self.output.close()
        self.stderr.join(STOP_S)
        counted = self._stats is not None
        if self._stats is not None:
            os.close(self._stats)
            self._stats = None
        return TracerEnd(stats, counted, died=not alive, killed=not ended)

    def _interrupt(self) -> bool:
        """Send SIGINT until bpftrace has ended; False if it has not within STOP_S.

        0.17 overlooks a SIGINT that comes while it is not waiting for rows, so one may not be
        enough; one that comes while it prints its counters would kill it, and only then does it
        not catch the signal.
        """
        deadline = time.monotonic() + STOP_S
        self.process.send_signal(signal.SIGINT)
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(AGAIN_S)
                return True
            if catches(self.process.pid, signal.SIGINT):
                self.process.send_signal(signal.SIGINT)
        return False


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal: SigCgt of proc_pid_status(5)."""
    with contextlib.suppress(OSError):
        caught = re.search(
            r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.M
        )
        return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)
    return False
