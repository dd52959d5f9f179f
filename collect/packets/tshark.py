"""Run tshark over a capture and read the fields of its packets.

A thread unpacks the capture into tshark's standard input, tshark dissects in its own process, and
its output is decoded meanwhile, so that two cores share the work. Only one pass: what tshark says
of a packet depends on the packets before it.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, cast

import numpy as np

from ...probes.base.closing import Closing
from ...probes.base.errors import BundleError, HostError
from ...probes.base.scratch import ScratchFolder
from ..bundle.zstd import DamagedError
from .tshark_fields import FIELDS
from .tshark_text import Decoded, Decoder

GET_TSHARK = "install it (Debian, Ubuntu: apt install tshark; Fedora: dnf install wireshark-cli)"

# Settings that the results depend on, whatever the user's own are; payload stays undissected,
# which is faster and keeps dissectors of a hundred protocols away from a stranger's bytes.
OPTIONS = (
    "-o tcp.relative_sequence_numbers:TRUE -o tcp.analyze_sequence_numbers:TRUE "
    "-o tcp.track_bytes_in_flight:TRUE -o tcp.calculate_timestamps:FALSE "
    "-o tcp.desegment_tcp_streams:FALSE -o tcp.check_checksum:FALSE -o ip.check_checksum:FALSE "
    "-o tcp.try_heuristic_first:FALSE -d tcp.port==1-65535,data"
).split()

# Fields as columns of tshark's packet list: all occurrences (0) of each, as bare values (U). They
# are what `-T fields` prints, but for that tshark makes a tree of each packet as a window would
# show it, which takes half its time.
COLUMNS = "gui.column.format:" + ",".join(
    f'"{field.name}","%Cus:{field.name}:0:U"' for field in FIELDS
)

BLOCK, PIPE = 4 << 20, 1 << 20


def find_tshark() -> str:
    """Return the path of tshark.

    Raises:
        HostError: it is not installed.
    """
    program = shutil.which("tshark")
    if program is None:
        raise HostError("tshark is not installed: it dissects packet captures", GET_TSHARK)
    return program


@lru_cache(maxsize=1)
def tshark_version() -> str:
    """Return the version of the installed tshark, e.g. ``4.0.17``; empty if it does not say.

    capinfos comes with tshark and starts fifty times as fast.
    """
    program = shutil.which("capinfos") or find_tshark()
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"\(Wireshark\) ([\w.]+)", said.stdout)
    return match[1] if match else ""


def free_memory() -> int:
    """Return the bytes of memory that new programs can have (proc(5), MemAvailable)."""
    match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(match[1]) * 1024 if match else 1 << 62


class _TooLargeError(Exception):
    """tshark has taken as much memory as it may."""

    def __init__(self, taken: int) -> None:
        super().__init__(
            f"tshark had taken {taken / 1e9:.1f} GB of memory, most of what is free, so the rest "
            "was left out: split it with `editcap -c 5000000` and ingest the pieces"
        )


class Dissection(Closing):
    """One run of tshark over one capture; a context manager.

    Args:
        source: the capture's bytes, and with each piece how much of the file was read.
        shown: what to call it in messages.
        progress: called with the bytes of the file read so far.
        has_room: tells whether tshark may go on, which takes more memory with every packet.

    Attributes:
        frames: after the batches: the number of packets, of any protocol.
        damage: after the batches: why the capture ends early, or None.

    Raises:
        HostError: tshark is not installed.
    """

    def __init__(
        self,
        source: Iterator[tuple[int, bytes]],
        shown: str,
        progress: Callable[[int], None] | None,
        has_room: Callable[[], bool],
    ) -> None:
        self._source = source
        self._has_room = has_room
        self._shown = shown
        self._progress = progress
        self._stop = threading.Event()
        self._feeding: BaseException | None = None
        self.frames = 0
        self.damage: str | None = None
        tshark = find_tshark()
        self._scratch = ScratchFolder()
        self._said = open(self._scratch.path / "said", "w+b")  # noqa: SIM115 - see close()
        self._process = self._start(tshark)
        self._output = cast(io.FileIO, self._process.stdout)
        # tshark goes on while its output is decoded.
        with suppress(OSError):
            fcntl.fcntl(self._output, fcntl.F_SETPIPE_SZ, PIPE)
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def _start(self, tshark: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [tshark, "-n", "-r", "-", *OPTIONS, "-T", "tabs", "-o", COLUMNS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            # The user's own preferences and profiles must not change what is stored.
            env={
                **os.environ,
                "WIRESHARK_CONFIG_DIR": str(self._scratch.path),
                "LC_ALL": "C.UTF-8",
            },
            bufsize=0,
        )

    def memory(self) -> int:
        """Return the resident bytes of tshark; 0 if it has ended."""
        try:
            statm = Path(f"/proc/{self._process.pid}/statm").read_text()
            return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            return 0

    def close(self) -> None:
        """End tshark if it still runs, and remove what it left."""
        self._stop.set()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._feeder.join()
        self._output.close()
        self._said.close()
        self._scratch.close()

    def _feed(self) -> None:
        """Write the plain capture into tshark."""
        sink = cast(IO[bytes], self._process.stdin)
        try:
            for done, piece in self._source:
                if self._stop.is_set():
                    break
                # A write that Ctrl-Z or any signal interrupts takes a part, and tells how much.
                rest = memoryview(piece)
                while rest:
                    rest = rest[sink.write(rest) :]
                if not self._has_room():
                    raise _TooLargeError(self.memory())
                if self._progress is not None:
                    self._progress(done)
        except BrokenPipeError:
            pass  # tshark ended early, and will say why
        except (DamagedError, OSError, _TooLargeError) as error:
            self._feeding = error
        finally:
            with suppress(OSError):
                sink.close()

    def batches(self) -> Iterator[Decoded]:
        """Yield the capture's TCP segments, some ten thousand at a time.

        Raises:
            BundleError: it is no capture that tshark understands, or cannot be read.
        """
        decoder = Decoder()
        buffer, filled = bytearray(BLOCK), 0
        # What tshark was killed in the middle of is no line.
        while count := self._output.readinto(memoryview(buffer)[filled:]):
            filled += count
            if filled < len(buffer):
                continue
            end = buffer.rfind(b"\n", 0, filled) + 1
            if end:
                yield decoder.decode(np.frombuffer(buffer, np.uint8), end)
            else:
                buffer += bytes(BLOCK)
            filled -= end
            buffer[:filled] = buffer[end : end + filled]
        if end := buffer.rfind(b"\n", 0, filled) + 1:
            yield decoder.decode(np.frombuffer(buffer, np.uint8), end)
        self.frames = decoder.frames
        self._feeder.join()
        self._judge(self._process.wait())

    def _judge(self, status: int) -> None:
        """Tell a capture that was cut off from one that cannot be read at all."""
        self._said.seek(0)
        lines = self._said.read(1 << 16).decode("utf-8", "replace").splitlines()
        said = " ".join(line.removeprefix("tshark: ") for line in lines if "Running as" not in line)
        if isinstance(self._feeding, OSError):
            raise BundleError(f"cannot read {self._shown}: {self._feeding}", "check the file")
        if self._feeding is not None:
            self.damage = str(self._feeding)
        elif status == 0:
            pass
        elif "cut short" in said:
            self.damage = "the file ends in the middle of a packet"
        elif "isn't a capture file" in said:
            raise BundleError(
                f"{self._shown} is not a packet capture that tshark understands",
                "give a pcap or pcapng file; gzip and zstd are fine",
            )
        else:
            self.damage = f"tshark stopped with status {status}: {said[:300]}"
