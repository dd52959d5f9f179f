"""COMMAND of `collect -- COMMAND`: it runs while recording, and its status is passed on."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
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
        """End it, if it is not over yet."""
        if self.process is None or self.ended:
            return
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


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
