"""Whether the kernel keeps its memory from everyone, root included: then no probe can read it."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from .target import read

SECURITYFS = Path("/sys/kernel/security")
KCORE = Path("/proc/kcore")
CONFIDENTIALITY = "confidentiality"
ABSENT = "not in this kernel"
LESS = "none or integrity"
SYS_RAWIO = 17
NO_READING = "the kernel is locked down (confidentiality): no program may read its memory"
WAY_OUT = "boot without lockdown=confidentiality; a level that is set cannot be taken back"


def mode(securityfs: Path = SECURITYFS, kcore: Path = KCORE) -> str | None:
    """none, integrity or confidentiality; LESS: one of the first two; ABSENT; None: unknown.

    securityfs tells where it is mounted, which it is not under `ip netns exec`. Elsewhere an
    attempt to open the kernel's memory as a file does: of those who hold CAP_SYS_RAWIO, only
    lockdown for confidentiality keeps anyone from it.

    Source: security/lockdown/lockdown.c; fs/proc/kcore.c: open_kcore().
    """
    if is_mounted(securityfs):
        active = re.search(r"\[(\w+)\]", read(securityfs / "lockdown"))
        return active[1] if active else ABSENT
    if not held_capabilities() >> SYS_RAWIO & 1:
        return None
    try:
        opened = os.open(kcore, os.O_RDONLY)
    except OSError as error:
        return CONFIDENTIALITY if error.errno == errno.EPERM else None
    # A container may have /dev/null in its place.
    is_kcore = stat.S_ISREG(os.fstat(opened).st_mode)
    os.close(opened)
    return LESS if is_kcore else None


def forbids_reading(mode: str | None) -> bool:
    """Whether bpf_probe_read_kernel() is refused to every program (LOCKDOWN_BPF_READ_KERNEL)."""
    return mode == CONFIDENTIALITY


def is_mounted(folder: Path) -> bool:
    """Whether there is anything in a folder of /sys that is empty unless mounted."""
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def held_capabilities() -> int:
    """The capabilities of this process as a set of bits (linux/capability.h); 0 if unknown."""
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", read(Path("/proc/self/status")), re.MULTILINE)
    return int(match[1], 16) if match else 0
