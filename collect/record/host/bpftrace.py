"""The bpftrace at hand: where it is, what it can do, how it is called."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ....probes.base.errors import HostError

TRACEFS = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
# Memory for rows on their way to user space, of all CPUs together.
BUFFER_BYTES = 256 << 20
LEAST_PAGES = 64
# From 0.19 on rows go through one BPF ring buffer that the CPUs share, where the kernel has it
# (Linux 5.8); before, through one perf ring per CPU. The setting counts pages of a single ring.
SHARED_RING = (0, 19)
# Before 0.17 fentry was called kfunc, took a function's name only, and found no module's.
FENTRY_OF_MODULES = (0, 17)
# kptr(), a pointer into the kernel, was tried with 0.17 and newer.
KNOWS_KPTR = (0, 17)
# Since then long rows are built in buffers that programs share, unless its configuration forbids it
# (probes/attach.py).
SHARED_BUFFERS = (0, 22)
CLONE_NEWNS = 0x00020000


@dataclass(frozen=True)
class Bpftrace:
    """What this host's bpftrace offers, found by asking and trying it."""

    path: str
    version: str
    keyword: str
    exit_keyword: str
    argument: str
    has_fentry: bool
    has_kprobe: bool
    has_jiffies: bool
    has_monotonic: bool
    raw_tracepoints: bool
    info: str = field(repr=False)
    shared_ring: bool = True

    @property
    def number(self) -> tuple[int, ...]:
        """The version as numbers: (0, 23, 2); () when it cannot be read."""
        return version_number(self.version)

    @property
    def shares_buffers(self) -> bool:
        """Whether it builds long rows where a program that interrupts another overwrites them."""
        return self.number >= SHARED_BUFFERS


def find() -> Bpftrace:
    """Ask bpftrace about itself.

    Raises:
        HostError: it is missing, or cannot run here.
    """
    path = shutil.which("bpftrace")
    if path is None:
        raise HostError(
            "bpftrace is not installed",
            "apt-get install bpftrace (or dnf, pacman); 0.17 and newer are known to work",
        )
    return ask(path, os.stat(path).st_mtime_ns)


@lru_cache(maxsize=1)
def ask(path: str, _changed_ns: int) -> Bpftrace:
    """Try out the program at a path; once for several recordings, until it is replaced."""
    # Each is a start of bpftrace, seconds on a slow machine: side by side.
    version_said, info_said, tried = run(
        [path, "--version"], [path, "--info"], [path, "-e", one_statement("$now = jiffies;")]
    )
    version = version_said.stdout.strip().removeprefix("bpftrace ").removeprefix("v")
    info = info_said.stdout + info_said.stderr
    # 0.17 calls them kfunc/kretfunc and reads args->x; what --info lists is what it understands.
    listed = dict(re.findall(r"\b(fentry|kfunc|kprobe): (yes|no)\b", info))
    new = "kfunc" not in listed
    has_jiffies = tried.returncode == 0
    monotonic = [path, "-e", one_statement("$at = nsecs(monotonic);")]
    return Bpftrace(
        path=path,
        version=version,
        keyword="fentry" if new else "kfunc",
        exit_keyword="fexit" if new else "kretfunc",
        argument="args." if new else "args->",
        # The newest no longer list what every kernel they accept should have.
        has_fentry="no" not in (listed.get("kfunc"), listed.get("fentry")),
        has_kprobe=listed.get("kprobe") != "no",
        has_jiffies=has_jiffies,
        # What knows jiffies knows nsecs(monotonic), which is older.
        has_monotonic=has_jiffies or run(monotonic)[0].returncode == 0,
        raw_tracepoints=new,
        info=info,
        # The newest no longer list what every kernel they accept should have.
        shared_ring=version_number(version) >= SHARED_RING and "ringbuf: no" not in info,
    )


def version_number(text: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version.

    >>> version_number("0.23.2"), version_number("0.20.2-1ubuntu4")
    ((0, 23, 2), (0, 20, 2))
    """
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def one_statement(statement: str) -> str:
    """A program that runs a statement and ends."""
    return f"BEGIN {{ {statement} exit(); }}"


def run(*commands: list[str], timeout_s: float = 300.0) -> list[subprocess.CompletedProcess[str]]:
    """Run tools side by side as bpftrace is run: its settings, tracefs within reach.

    Raises:
        HostError: one cannot run here, or does not answer; none of the others is left behind.
    """
    with ExitStack() as stack:
        processes = []
        for command in commands:
            processes.append(stack.enter_context(start(command)))
            stack.callback(processes[-1].kill)
        return [answer(process, timeout_s) for process in processes]


def start(command: list[str]) -> subprocess.Popen[str]:
    """Start a tool as `run` does. Raises HostError: it cannot run here."""
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment(),
            preexec_fn=prepare,
        )
    except OSError as error:
        foreign = "install the one of this machine's architecture"
        raise HostError(
            f"{command[0]} cannot run here: {error.strerror}",
            foreign if error.errno == errno.ENOEXEC else "",
        ) from error


def answer(process: subprocess.Popen[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Wait for a started tool: what it printed, and its exit status. Raises HostError: too late."""
    assert isinstance(process.args, list)
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        words = " ".join(process.args[:2])
        raise HostError(f"{words} did not answer within {timeout_s:.0f} s") from error
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def ring_pages(buffer_bytes: int, rings: int, page_bytes: int) -> int:
    """Pages of each of `rings` that keep all of them within `buffer_bytes`: a power of two.

    >>> ring_pages(256 << 20, 1, 4096), ring_pages(256 << 20, 64, 4096)
    (65536, 1024)
    """
    pages = LEAST_PAGES
    while 2 * pages * page_bytes * rings <= buffer_bytes:
        pages *= 2
    return pages


def environment(buffer_bytes: int = BUFFER_BYTES, shared_ring: bool = True) -> dict[str, str]:
    """bpftrace's settings: pages of its ring, or of each CPU's, and map sizes."""
    rings = 1 if shared_ring else os.cpu_count() or 1
    pages = ring_pages(buffer_bytes, rings, os.sysconf("SC_PAGE_SIZE"))
    # The maps setting changed its name after 0.18; each version ignores the other's.
    return {
        **os.environ,
        "BPFTRACE_PERF_RB_PAGES": str(pages),
        "BPFTRACE_MAP_KEYS_MAX": "65536",
        "BPFTRACE_MAX_MAP_KEYS": "65536",
        "BPFTRACE_MAX_PROBES": "1024",
        "LC_ALL": "C.UTF-8",
    }


def tracefs() -> Path | None:
    """The mounted tracefs, if any."""
    for folder in TRACEFS:
        if (path := Path(folder) / "events").is_dir():
            return path.parent
    return None


def private_tracefs() -> bool:
    """Mount tracefs in a mount namespace of this process only; tell whether it worked.

    For use in a child: a host without it mounted stays as it was.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    rslave = 0x4000 | 0x80000  # MS_REC | MS_SLAVE
    return bool(
        libc.unshare(CLONE_NEWNS) == 0
        and libc.mount(None, b"/", None, rslave, None) == 0
        and libc.mount(b"tracefs", TRACEFS[0].encode(), b"tracefs", 0, None) == 0
    )


def prepare() -> None:
    """Run in a child before bpftrace: tracefs within reach, memory lock unlimited if allowed.

    It opens files for each CPU and each probe: as many as it may.
    """
    if os.geteuid() == 0 and tracefs() is None:
        private_tracefs()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
    except (OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
