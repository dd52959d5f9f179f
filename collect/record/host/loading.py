"""A BBR that is not loaded yet: load it, or wait until the first socket that asks for it does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from ....probes.base.errors import HostError
from ....probes.bbr_versions import VERSIONS
from ..plan import RecordingPlan
from . import target

TICK_S = 0.2


def make_loaded(
    plan: RecordingPlan, say: Callable[[str], None], stopped: Callable[[], bool]
) -> None:
    """Load BBR or wait for it, as the plan says; nothing to do where it is there already.

    Raises:
        HostError: modprobe failed, or the user ended the waiting.
    """
    if plan.rung == "inet_diag" or target.registered():
        return
    if plan.load_module:
        load(VERSIONS[plan.bbr].module if plan.bbr else "tcp_bbr")
    elif plan.wait:
        say("waiting until the first socket asks for BBR; Ctrl-C ends it")
        while not target.registered():
            if stopped():
                raise HostError("stopped while waiting for BBR; nothing was recorded")
            time.sleep(TICK_S)


def load(module: str) -> None:
    """Have the kernel load a module.

    Raises:
        HostError: modprobe is missing, or its complaint.
    """
    try:
        done = subprocess.run(
            ["modprobe", module],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise HostError(f"cannot run modprobe: {error.strerror}", "apt-get install kmod") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise HostError(
            f"cannot load {module}: {lines[-1] if lines else f'status {done.returncode}'}",
            f"this kernel may be built without it: find /lib/modules -name '{module}*'",
        )
