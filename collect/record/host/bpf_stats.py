"""Counting the runs of BPF programs, without touching a setting of the host.

BPF_ENABLE_STATS (Linux 5.8, kernel/bpf/syscall.c bpf_enable_stats()) counts for as long as its file
descriptor is open; the sysctl kernel.bpf_stats_enabled stays as it is.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

BPF_ENABLE_STATS = 32
BPF_STATS_RUN_TIME = 0
SYS_BPF = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "s390x": 351, "ppc64le": 361}
PERF_EVENT = 7  # BPF_PROG_TYPE_PERF_EVENT, linux/bpf.h
WANTED = {"prog_type", "prog_id", "run_cnt", "run_time_ns", "recursion_misses"}


def enable() -> int | None:
    """Have the kernel count until the returned descriptor is closed; None if it does not."""
    number = SYS_BPF.get(os.uname().machine)
    if number is None:
        return None
    kind = ctypes.c_uint32(BPF_STATS_RUN_TIME)
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.syscall(number, BPF_ENABLE_STATS, ctypes.byref(kind), 4))
    return descriptor if descriptor >= 0 else None


def programs(pid: int) -> list[dict[str, int]]:
    """Per BPF program of a process: prog_id, run_cnt and run_time_ns if counted, recursion_misses.

    Source: /proc/PID/fdinfo (kernel/bpf/syscall.c bpf_prog_show_fdinfo()).

    The heartbeat (a perf event) is left out: it may skip a beat without harm.
    """
    counts: dict[int, dict[str, int]] = {}
    try:
        files = list(Path(f"/proc/{pid}/fdinfo").iterdir())
    except OSError:
        return []
    for file in files:
        try:
            facts = fdinfo(file.read_text())
        except OSError:
            continue
        # Links name their program too, without its type.
        if facts.get("prog_type", PERF_EVENT) != PERF_EVENT:
            counts[facts["prog_id"]] = facts
    return list(counts.values())


def fdinfo(text: str) -> dict[str, int]:
    """The numeric facts of a BPF program's fdinfo that matter here."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {k: int(v) for k, v in pairs if k in WANTED and v.strip().isdigit()}
