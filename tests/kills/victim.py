"""Command lines in processes of their own that need not import anything first, to be killed."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO


class Victims:
    """Starts command lines; each has a process group, a working folder and a TMPDIR of its own."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "tests.kills.victim"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self) -> None:
        """Let the process that starts them end."""
        _pipe(self._process.stdin).close()
        self._process.wait()

    def run(self, words: list[str], folder: Path, after: float | None, group: bool) -> Ended:
        """Run a command line in `folder`; kill it, or its whole group, `after` so many seconds."""
        request = json.dumps([words, str(folder), after, group])
        _pipe(self._process.stdin).write(request.encode() + b"\n")
        _pipe(self._process.stdin).flush()
        return Ended(*json.loads(_pipe(self._process.stdout).readline()))


class Ended(tuple[int, float]):
    """How a command ended: its status (-9: killed), and after how long [s]."""

    def __new__(cls, status: int, seconds: float) -> Ended:
        return super().__new__(cls, (status, seconds))


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _child(words: list[str], folder: str) -> None:
    """Be the command; never return."""
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ["TMPDIR"] = f"{folder}/tmp"
    with open(f"{folder}/said", "ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    from bbrscope.reports.cli import main

    status = 0
    try:
        main(words)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(status)


def _serve() -> None:
    """Start a process for each line that comes in, and say how it ended."""
    import altair  # noqa: F401
    import bbrscope.analyze.replay.replay_runs
    import bbrscope.reports.cli  # noqa: F401
    import duckdb  # noqa: F401
    import polars  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    for line in sys.stdin:
        words, folder, after, group = json.loads(line)
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            _child(words, folder)
        with contextlib.suppress(OSError):  # the child may have been first
            os.setpgid(pid, pid)
        status = _wait(pid, began + after if after is not None else None, group)
        print(json.dumps([status, time.monotonic() - began]), flush=True)


def _wait(pid: int, until: float | None, group: bool) -> int:
    """Wait for a process, or kill it at a time; return its status."""
    if until is not None:
        while time.monotonic() < until:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(max(0.0, min(0.002, until - time.monotonic())))
        (os.killpg if group else os.kill)(pid, 9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    _serve()
