"""What is recorded beside the events: packets, the queue, and `ss` once a second."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .stream import Compressed, Pump
from .tracer import die_with_parent

# Ethernet with two VLAN tags, IPv6 without extension headers, TCP with all its options:
# 22 + 40 + 60 = 122.
SNAPLEN = 128
QUEUE_S = 0.1
SS_S = 1.0
JOIN_S = 30.0
USERS = re.compile(r" users:\(\(.*?\)\)")
QUEUE_HEADER = (
    "uptime_s,kind,sent_bytes,sent_pkts,dropped,overlimits,requeues,backlog_bytes,backlog_pkts"
)


class Place:
    """Where something is measured: DEV, NETNS:DEV, or ssh://HOST/DEV (queues only)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.prefix: list[str] = []
        self.netns = ""
        if match := re.fullmatch(r"ssh://([^/\s-][^/\s]*)/(\S+)", text):
            self.prefix = ["ssh", "-o", "BatchMode=yes", match[1]]
            self.device = match[2]
        elif ":" in text:
            self.netns, self.device = text.split(":", 1)
            self.prefix = ["ip", "netns", "exec", self.netns]
        else:
            self.device = text

    def command(self, *words: str) -> list[str]:
        return [*self.prefix, *words]


def output_of(command: list[str]) -> str:
    """A helper's output, "" when it fails."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=20,
            check=False,
            process_group=0,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def route_device(address: str | None, prefix: list[str]) -> str | None:
    """The device of the route to `address`, or of the default route."""
    words = ["route", "get", address] if address else ["route", "show", "default"]
    text = output_of([*prefix, "ip", *(["-6"] if address and ":" in address else []), *words])
    match = re.search(r"\bdev (\S+)", text)
    return match[1] if match else None


class Packets:
    """tcpdump, compressed as it writes."""

    def __init__(self, place: Place, output: Path, ring_kib: int, expression: list[str]) -> None:
        self.place = place
        self.output = Compressed(output)
        tool = shutil.which("tcpdump") or "tcpdump"
        options = ["-i", place.device, "-n", "-U", "-s", str(SNAPLEN), "-B", str(ring_kib)]
        command = place.command(tool, *options, "-w", "-", *expression)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
            preexec_fn=die_with_parent,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.pump = Pump(os.dup(self.process.stdout.fileno()), self.output)
        self.pump.start()
        self._talk = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._talk += line[:300]

    def wait_listening(self, timeout_s: float = 60.0) -> bool:
        """True once tcpdump listens; False when it gave up."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            if b"listening on" in self._talk:
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> dict[str, Any]:
        """End tcpdump; its own counts, or why there are none."""
        time.sleep(0.1)  # the last packets are still on their way through the ring
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.pump.join(20)
        self._listener.join(5)
        self.output.close()
        text = self._talk.decode(errors="replace")
        counts = re.findall(r"(\d+) packets? (captured|received|dropped)", text)
        return {
            "where": f"tcpdump on {self.place.text} of the host that ran BBR",
            "snaplen": SNAPLEN,
            **{f"packets_{name}": int(count) for count, name in counts},
        }

    def complaint(self) -> str:
        return self._talk.decode(errors="replace").strip().splitlines()[-1] if self._talk else ""


class Sampler(threading.Thread):
    """Calls `take` every `period_s` until stopped and appends what it returns."""

    def __init__(self, output: Path, period_s: float, take: Callable[[], str]) -> None:
        super().__init__(daemon=True)
        self.output = Compressed(output)
        self.period_s = period_s
        self.take = take
        self.samples = 0
        self.error: OSError | None = None
        self._stopping = threading.Event()
        self._writing = threading.Lock()
        self._closed = False

    def run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            if text := self.take():
                try:
                    self._keep(text)
                except OSError as error:
                    self.error = error
                    return
            due = max(due + self.period_s, time.monotonic())
            self._stopping.wait(max(due - time.monotonic(), 0))

    def _keep(self, text: str) -> None:
        with self._writing:
            if not self._closed:
                self.output.write(text.encode())
                self.samples += 1

    def stop(self) -> None:
        """End the file; a look that does not come to an end is left alone, and its text dropped."""
        self._stopping.set()
        self.join(JOIN_S)
        with self._writing:
            self._closed = True
            self.output.close()


def queue_rows(place: Place) -> str:
    """One row per qdisc of the device, in the bundle's queue.csv columns."""
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    words = ["-s", "-j", "qdisc", "show", "dev", place.device]
    # tc enters a namespace by itself: ten times a second, one program less to start counts.
    inside = ["tc", "-n", place.netns, *words] if place.netns else place.command("tc", *words)
    text = output_of(inside)
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    try:
        qdiscs = json.loads(text)
    except ValueError:
        return ""
    uptime = (before + after) / 2e9
    rows = []
    for qdisc in qdiscs:
        values = (
            *(qdisc.get(name, 0) for name in ("bytes", "packets", "drops", "overlimits")),
            *(qdisc.get(name, 0) for name in ("requeues", "backlog", "qlen")),
        )
        rows.append(f"{uptime:.4f},{qdisc.get('kind')},{','.join(map(str, values))}\n")
    return "".join(rows)


def ss_lines(prefix: list[str], expression: list[str], pids: Sequence[int] = ()) -> str:
    """`ss` output under a line that says when it was taken (CLOCK_MONOTONIC).

    `expression` is ss's own filter, which the kernel applies; processes are told by their names
    for sockets, which only `ss -p` knows.
    """
    before = time.monotonic_ns()
    text = output_of([*prefix, "ss", "-tienpOH" if pids else "-tienOH", *expression])
    taken = (before + time.monotonic_ns()) // 2
    lines = [line for line in text.splitlines() if " bbr" in line]
    if pids:
        lines = [line for line in lines if any(f"pid={pid}," in line for pid in pids)]
        lines = [USERS.sub("", line) for line in lines]  # names of programs are nobody's business
    return "\n".join([f"# monotonic_ns {taken}", *lines]) + "\n"
