"""The cgroups (v2) that a user names: their folders, their numbers, and how ss is told of them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...probes.base.errors import HostError

MOUNTS = Path("/proc/self/mountinfo")
WAY_OUT = "name one by its path below the mount point, as /proc/PID/cgroup does behind 0::"


def folder_of(path: str) -> Path:
    """A cgroup's folder, given as that or as its path within the hierarchy.

    Raises:
        HostError: there is no such cgroup of version 2.
    """
    mounts = _mounts()
    if not mounts:
        raise HostError(
            "no cgroup v2 hierarchy is mounted here",
            "mount -t cgroup2 none DIR, or choose by --port, --address, --pid",
        )
    below = [at / path.lstrip("/") for at in mounts] if path else []
    for folder in [Path(path), *below] if path.startswith("/") else below:
        if folder.is_dir() and folder.stat().st_dev in mounts.values():
            return folder
    raise HostError(f"no cgroup {path!r} in {' or '.join(map(str, mounts))}", WAY_OUT)


def number_of(path: str) -> int:
    """A cgroup's id, which is the inode number of its folder. Raises HostError."""
    try:
        return folder_of(path).stat().st_ino
    except OSError as error:  # it was removed just now
        raise HostError(f"no cgroup {path!r}: {error.strerror}", WAY_OUT) from error


def hold(path: str) -> int:
    """A descriptor that stands for a cgroup, also when it was removed since. Raises HostError."""
    try:
        return os.open(folder_of(path), os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise HostError(f"no cgroup {path!r}: {error.strerror}", WAY_OUT) from error


def name_for_ss(descriptor: int) -> str:
    """The path by which ss finds a cgroup that is held.

    ss takes no name with spaces or brackets in it, and none at all in a network namespace, where
    `ip netns exec` mounts another /sys.
    """
    return f"/proc/{os.getpid()}/fd/{descriptor}/."


def _mounts() -> dict[Path, int]:
    """Where cgroup v2 is mounted, and the devices there (proc_pid_mountinfo(5))."""
    mounts = {}
    for line in os.fsdecode(MOUNTS.read_bytes()).splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            _, _, device, _, at, *_ = fields.split(" ")
            major, minor = map(int, device.split(":"))
            # Space, tab, line break and backslash are written as three octal digits.
            text = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), at)
            mounts[Path(text)] = os.makedev(major, minor)
    return mounts
