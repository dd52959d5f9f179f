"""A user's own variant runs in a process of its own: it may raise, crash, or never return."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar, cast

from ....probes.base.errors import BbrscopeError
from ....probes.base.jit import PLAIN

T = TypeVar("T")
# Where the compiler says that something is.
_PLACE = re.compile(r'^File "(.*)", line (\d+):$', re.MULTILINE)
_WAY_OUT = "try it as plain Python, where a debugger can look on: BBRSCOPE_PLAIN=1"
# Far below what compiled code (a million packets or events per second) and plain Python (some
# 2,000) do.
_SECONDS, _STEPS_PER_SECOND = 5, 500 if PLAIN else 20_000
# A file that sleeps or waits uses no processor time, so that this does not limit it. What counts is
# the time in which it neither had a share of a CPU nor was ready for one: one that works on a
# machine that is busy with others is ready all the time.
_WAITING_S, _LEAST_SHARE = 30, 0.1
# States of a process (proc(5), stat) that is ready to run, or has the disk fetch its memory.
_WORKS = "RD"
# Beyond what the process has when the file's code begins; no world needs so much.
_MOST_GB = 4


def guarded(
    names: Iterable[str], work: Callable[[], T], steps: int, compiled: Callable[[], object]
) -> T:
    """What `work` returns; it runs apart from this process if one of the variants is a file.

    Args:
        names: of the versions and variants whose callbacks `work` calls.
        steps: about how many packets or events it goes through.
        compiled: compiles what `work` calls, and calls nothing of the user's; its time is not
            counted, and the child has what it compiled.

    Raises:
        BbrscopeError: the user's file raised, ended the process, or did not come back.
    """
    files = sorted({name for name in names if name.endswith(".py")})
    if not files:
        return work()
    if not PLAIN:
        compiling(", ".join(files), compiled)
    return run_apart(", ".join(files), work, _SECONDS + steps // _STEPS_PER_SECOND)


def compiling(names: str, compiled: Callable[[], T]) -> T:
    """What `compiled` returns, which compiles these of the user's files.

    Raises:
        BbrscopeError: one cannot be compiled.
    """
    try:
        return compiled()
    except BbrscopeError:
        raise
    except Exception as error:
        raise BbrscopeError(
            f"{names} cannot be compiled: {_why(error, names)}",
            "try it as plain Python first: BBRSCOPE_PLAIN=1",
        ) from None


def _why(error: Exception, names: str) -> str:
    """What the compiler says first, of pages, and which line of the user's files it is about."""
    text = str(error).splitlines()
    said = next((line for line in text if line and not line.startswith("Failed in")), "")
    # Of numba's own errors the text says enough; of others it may be a bare name.
    cause = said if len(text) > 1 else f"{type(error).__name__}: {said}"
    lines = [number for file, number in _PLACE.findall(str(error)) if _is_one_of(names, file)]
    return f"line {lines[0]}: {cause:.200}" if lines else f"{cause:.200}"


def _is_one_of(names: str, file: str) -> bool:
    """Tell whether a file that an error names is one of the user's, as `guarded` joins them."""
    return Path(file).name in (Path(name).name for name in names.split(", "))


def run_apart(name: str, work: Callable[[], T], cpu_seconds: int) -> T:
    """What `work` returns, run in a child process that may use `cpu_seconds` of CPU time.

    It may also wait for _WAITING_S, however busy the machine is, and use _MOST_GB of memory. What
    it prints goes to standard error.

    Raises:
        BbrscopeError: the child raised, ended without an answer, or used up its time or memory.
    """
    context = multiprocessing.get_context("fork")
    answers, answer = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(name, work, answer, cpu_seconds))
    child.start()
    answer.close()
    try:
        _await(name, answers, child.pid or 0)
        got = answers.recv()
        child.join()
    except EOFError:
        child.join()
        raise _gone(name, child.exitcode, cpu_seconds) from None
    finally:
        child.kill()
        child.join()
    if isinstance(got, BbrscopeError):
        raise got
    return cast(T, got[0])


def _await(name: str, answers: Connection, child: int) -> None:
    """Return when the child has answered or ended. Raises BbrscopeError: it waits."""
    step_s = _WAITING_S / 30
    waited_s = used_s = 0.0
    # Steps are counted, not the clock: a terminal may stop both processes for a while.
    while not answers.poll(step_s):
        state, now_s = _state_and_cpu_seconds(child)
        if state not in _WORKS and now_s - used_s < _LEAST_SHARE * step_s:
            waited_s += step_s
        used_s = now_s
        if waited_s >= _WAITING_S - step_s / 2:
            raise BbrscopeError(
                f"{name} did not come back: stopped when it had waited for {waited_s:.0f} s",
                "look in it for what it waits for",
            )


def _state_and_cpu_seconds(process: int) -> tuple[str, float]:
    """A process's state, and the CPU time of it and of the children that it has awaited.

    Both are of proc(5), stat.
    """
    # The name stands in brackets, and may have some of its own.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return fields[0], sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _gone(name: str, exit_code: int | None, cpu_seconds: int) -> BbrscopeError:
    if exit_code == -signal.SIGXCPU:
        return BbrscopeError(
            f"{name} did not come back: stopped after {cpu_seconds} s of processor time",
            "look in it for a loop that does not end",
        )
    return BbrscopeError(f"{name} ended the process that ran it ({exit_code})", _WAY_OUT)


def _work(name: str, work: Callable[[], object], answer: Connection, cpu_seconds: int) -> None:
    """In the child: the kernel ends it when its time is over, whatever code it runs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    usual = resource.getrlimit(resource.RLIMIT_DATA)
    most_bytes = _data_bytes() + _MOST_GB * 10**9
    resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, usual[1]))
    # Standard output is the command's: a JSON document is to stay one.
    sys.stdout.flush()
    os.dup2(2, 1)
    raised: list[Any] = [None]

    def keep_the_first(event: sys.UnraisableHookArgs) -> None:
        # Of a file that took all memory there is none left for more of them.
        raised[0] = raised[0] or event.exc_value

    # What compiled callbacks raise gets no further than here.
    sys.unraisablehook = keep_the_first
    told: BbrscopeError | tuple[object]
    try:
        value = work()
        told = _raised(name, raised[0]) if raised[0] else (value,)
    except BbrscopeError as error:
        told = error
    except Exception as error:
        told = _raised(name, error)
    # What compiled code took before it raised is not given back.
    resource.setrlimit(resource.RLIMIT_DATA, usual)
    answer.send(told)


def _data_bytes() -> int:
    """The memory that counts for RLIMIT_DATA, of this process (proc(5), statm)."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()


def _raised(name: str, error: BaseException) -> BbrscopeError:
    if isinstance(error, MemoryError):
        return BbrscopeError(
            f"{name} asked for more than {_MOST_GB} GB of memory",
            "look in it for what grows without end",
        )
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if _is_one_of(name, frame.filename)]
    where = f" in line {lines[-1]}" if lines else ""
    return BbrscopeError(f"{name} raised {type(error).__name__}{where}: {error!s:.200}", _WAY_OUT)
