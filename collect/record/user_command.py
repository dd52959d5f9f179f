"""COMMAND of `collect -- COMMAND`: it runs while recording, and its status is passed on."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...probes.base.errors import HostError

STOP_S = 10.0


class UserCommand:
    """A command of the user's: as the user who called sudo, unless it shall be root's."""

    def __init__(self, words: Sequence[str], as_root: bool = False) -> None:
        self.words = list(words)
        # Without a command nothing runs as anybody.
        self.caller = calling_user() if words and not as_root else None
        self.process: subprocess.Popen[bytes] | None = None

    def check(self) -> None:
        """Refuse what cannot start.

        Raises:
            HostError: there is no such command.
        """
        if self.words and shutil.which(self.words[0]) is None:
            raise HostError(f"cannot start {self.words[0]!r}: no such command")

    def start(self) -> None:
        """Start it, if there is one.

        Raises:
            HostError: the kernel refuses.
        """
        if not self.words:
            return
        identity: dict[str, Any] = as_caller(self.caller) if self.caller else {}
        try:
            self.process = subprocess.Popen(self.words, **identity)
        except OSError as error:
            raise HostError(f"cannot start {self.words[0]!r}: {error.strerror}") from error

    @property
    def ended(self) -> bool:
        """Whether it was started and is over."""
        return self.process is not None and self.process.poll() is not None

    @property
    def status(self) -> int:
        """Its exit status as a shell tells it: 128 and the signal's number for one that died."""
        code = self.process.returncode if self.process else 0
        return 0 if code is None else 128 - code if code < 0 else code

    def stop(self) -> None:
        """End it, if it is not over yet, with what it started and waits for."""
        if self.process is None or self.ended:
            return
        family = [self.process.pid, *descendants(self.process.pid)]
        handles = list(filter(None, map(_handle, family)))
        self.process.terminate()  # Linux has no handles before 5.3
        try:
            _send(handles, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
            _wait(handles, STOP_S)
            _send(handles, signal.SIGKILL)
        finally:
            for handle in handles:
                os.close(handle)
        self.process.kill()
        self.process.wait()


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and theirs; those that were left alone are none.

    Source: /proc/PID/task/TID/children, see proc_pid_task_tid_children(5).
    """
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _handle(pid: int) -> int | None:
    """A descriptor of a process, which means this process for ever; None if it is gone."""
    with contextlib.suppress(OSError):
        return os.pidfd_open(pid)
    return None


def _send(handles: list[int], number: signal.Signals) -> None:
    for handle in handles:
        with contextlib.suppress(OSError):  # it is over
            signal.pidfd_send_signal(handle, number)


def _wait(handles: list[int], timeout_s: float) -> None:
    """Wait until all of these processes are over, but no longer than that."""
    deadline = time.monotonic() + timeout_s
    left = handles
    while left and (rest := deadline - time.monotonic()) > 0:
        over = select.select(left, [], [], rest)[0]
        left = [handle for handle in left if handle not in over]


def calling_user() -> pwd.struct_passwd | None:
    """Who called sudo; None when this is not root, or nobody did, or root itself.

    Raises:
        HostError: this host does not know that user: its command must not become root's.
    """
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() != 0 or caller in ("", "0"):
        return None
    try:
        return pwd.getpwuid(int(caller))
    except (KeyError, OverflowError, ValueError) as error:
        raise HostError(
            f"sudo was called by user {caller!r:.40}, whom this host does not know",
            "--as-root runs the command as root",
        ) from error


def as_caller(caller: pwd.struct_passwd) -> dict[str, Any]:
    """What Popen needs to start a process as that user, with all of the user's groups."""
    names = {"HOME": caller.pw_dir, "USER": caller.pw_name, "LOGNAME": caller.pw_name}
    return {
        "user": caller.pw_uid,
        "group": caller.pw_gid,
        "extra_groups": os.getgrouplist(caller.pw_name, caller.pw_gid),
        "env": {**os.environ, **names},
    }
