"""The packets of a recording: tcpdump, compressed as it writes, without what people sent."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import threading
import time
from typing import Any

from ....probes.base.plurals import plural
from ..host.helpers import how_ended
from ..output.outputs import Output
from ..output.stream import Pump, Writable
from .headers_only import LINKS, HeadersOnly
from .place import Place

# Ethernet with two VLAN tags, IPv6 without extension headers, TCP with all its options:
# 22 + 40 + 60 = 122.
HEADERS = 128
# Ends tcpdump when the collector dies: it gives up its privileges, and with them the request to be
# sent a signal when its parent dies (PR_SET_PDEATHSIG in prctl(2)).
GUARD = 'read -r line || kill -TERM "$1"'

# "3 packets dropped by kernel": there was no room in the ring; by interface: before it saw them.
COUNT = re.compile(r"^(\d+) packets? (captured|received|dropped(?: by interface)?)", re.MULTILINE)
LOST = ("dropped", "dropped_by_interface")


class HeadersPump(Pump):
    """Copies a capture and leaves out the payload."""

    def __init__(self, source: int, target: Writable) -> None:
        super().__init__(source, target)
        self.cutter = HeadersOnly()

    def accept(self, chunk: bytes) -> None:
        """Write the headers of what came."""
        self.keep(self.cutter.cut(chunk))


class PacketCapture:
    """tcpdump on one device; `snaplen` bytes of each packet, None for the headers only.

    `ended` says how tcpdump had ended by itself when it was last looked at; "" if it had not.
    """

    def __init__(
        self,
        place: Place,
        output: Output,
        ring_kib: int,
        expression: list[str],
        snaplen: int | None = None,
    ) -> None:
        self.place = place
        self.output = output
        self.snaplen = snaplen
        tool = shutil.which("tcpdump") or "tcpdump"
        options = ["-i", place.device, "-n", "-U", "-s", str(snaplen or HEADERS)]
        options += ["-B", str(ring_kib)]
        self.process = subprocess.Popen(
            place.command(tool, *options, "-w", "-", *expression),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self._guard = subprocess.Popen(
            ["sh", "-c", GUARD, "sh", str(self.process.pid)],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        assert self.process.stdout is not None
        source = os.dup(self.process.stdout.fileno())
        kind = Pump if snaplen else HeadersPump
        self.pump = kind(source, self.output)
        self.pump.start()
        self._said = b""
        self.ended, self._is_stopped = "", False
        self.counts: dict[str, int] = {}
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said += line[:300]

    def wait_listening(self, timeout_s: float = 60.0) -> bool:
        """True once tcpdump listens; False when it gave up."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            if b"listening on" in self._said:
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> dict[str, Any]:
        """End tcpdump; its own counts, or why there are none."""
        time.sleep(0.1)  # the last packets are still on their way through the ring
        self._look()
        self._is_stopped = True
        with contextlib.suppress(OSError):
            self._guard.communicate(b"ended in order\n", 5)
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
        self.counts = counts_of(self._said.decode(errors="replace"))
        return self.describe() | self.counts | ({"ended": self.ended} if self.ended else {})

    def _look(self) -> None:
        if not self._is_stopped and (status := self.process.poll()) is not None:
            self.ended = how_ended(status)

    def describe(self) -> dict[str, Any]:
        """Where packets are captured and how much of each: the manifest's `packets`, uncounted."""
        return {
            "where": f"tcpdump on {self.place.text} of the host that ran BBR",
            "snaplen": self.snaplen or HEADERS,
            "payload": self.snaplen is not None,
        }

    def notes(self) -> list[str]:
        """What a reader of the capture must know: while it runs, of what there is so far."""
        notes = []
        self._look()
        if self.ended:
            why = f"tcpdump ended by itself ({self.ended}) {self.complaint()}".strip()
            notes.append(f"{why}: later packets are missing")
        if lost := sum(self.counts.get(f"packets_{name}", 0) for name in LOST):
            notes.append(f"{plural(lost, 'packet')} lost by tcpdump: a larger --ring loses fewer")
        if isinstance(self.pump, HeadersPump) and self.pump.cutter.link not in (0, *LINKS):
            kind = self.pump.cutter.link
            unknown = "whose headers are not known: all were cut off"
            notes.append(f"packets have link type {kind}, {unknown}")
        return notes

    def complaint(self) -> str:
        """tcpdump's last line that counts nothing."""
        lines = self._said.decode(errors="replace").strip().splitlines()
        said = [line for line in lines if not COUNT.match(line) and "listening on" not in line]
        return said[-1] if said else ""


def counts_of(text: str) -> dict[str, int]:
    """tcpdump's last words as the manifest has them: what it captured, received and lost."""
    return {f"packets_{what.replace(' ', '_')}": int(n) for n, what in COUNT.findall(text)}
