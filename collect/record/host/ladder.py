"""The ways to reach BBR's state, best first, each chosen because its features were found."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ....probes.attach import (
    STACK_LIMIT,
    VALUES_IN_LIMIT,
    VALUES_ON_STACK,
    WORDS_IN_BUFFER,
    WORDS_ON_STACK,
    Attach,
    return_address_bytes,
)
from . import lockdown
from .bpftrace import FENTRY_OF_MODULES, Bpftrace, tracefs, version_number
from .target import Target, lines_with

SS = "ss reads it from any host"
NO_SS = "ss is not installed: apt-get install iproute2"
# Where jiffies is, for a bpftrace that does not know it: a program with the name is right after the
# next boot, too.
NAMED_JIFFIES = 'kaddr("jiffies")'
# The first Linux that does not run an fentry program within itself.
FENTRY_RUNS_ALONE = (5, 12)


@dataclass(frozen=True)
class Step:
    """One rung as tried: `attach` is None when it was ruled out, for `reason`."""

    rung: str
    attach: Attach | None
    reason: str

    @property
    def usable(self) -> bool:
        """Whether this rung can be tried; inet_diag attaches nothing, it only needs ss."""
        return self.attach is not None or (self.rung == "inet_diag" and has_ss())


def has_ss() -> bool:
    """Whether ss is installed."""
    return shutil.which("ss") is not None


def ladder(
    bpftrace: Bpftrace | None,
    target: Target | None,
    lockdown_mode: str | None,
    only: str | None = None,
) -> list[Step]:
    """The rungs in order, those that this host rules out included, with the reason.

    `lockdown_mode` is the kernel's (lockdown.mode()); `only` names the one rung to return.
    """
    ways = {"fentry": fentry, "kprobe": kprobe, "tcp_probe": tcp_probe}
    if lockdown.forbids_reading(lockdown_mode):
        steps = [Step(rung, None, lockdown.NO_READING) for rung in ways]
    else:
        steps = [Step(rung, *way(bpftrace, target)) for rung, way in ways.items()]
    steps.append(Step("inet_diag", None, SS if has_ss() else NO_SS))
    return [step for step in steps if only in (None, step.rung)]


def fentry(bpftrace: Bpftrace | None, target: Target | None) -> tuple[Attach | None, str]:
    """How to attach by fentry, or None, and why."""
    if bpftrace is None or target is None:
        return None, lacking(bpftrace)
    if not bpftrace.has_fentry:
        return None, "bpftrace --info: the kernel offers no fentry"
    if target.module and bpftrace.number < FENTRY_OF_MODULES:
        return None, f"bpftrace {bpftrace.version} cannot attach fentry to a module's functions"
    where = f"module {target.module}" if target.module else "vmlinux"
    return attach_with(bpftrace, target, "fentry"), f"fentry is there and {where} has BTF"


def kprobe(bpftrace: Bpftrace | None, target: Target | None) -> tuple[Attach | None, str]:
    """How to attach by kprobes, or None, and why."""
    if bpftrace is None or target is None:
        return None, lacking(bpftrace)
    if target.shared:
        return None, f"{', '.join(target.shared)} is in more than one place: no probe by name"
    if not bpftrace.has_kprobe or not Path("/sys/bus/event_source/devices/kprobe").exists():
        return None, "the kernel was built without kprobes"
    position = target.parameters.index("rs")
    return attach_with(bpftrace, target, "kprobe"), f"rs is argument {position} by BTF"


def tcp_probe(bpftrace: Bpftrace | None, target: Target | None) -> tuple[Attach | None, str]:
    """How to attach to the tracepoint tcp_probe, or None, and why."""
    if bpftrace is None or target is None:
        return None, lacking(bpftrace)
    attach = attach_with(bpftrace, target, "tcp_probe")
    if attach.raw:
        return attach, "raw tracepoint tcp_probe"
    folder = tracefs()
    text = (folder / "events/tcp/tcp_probe/format") if folder else None
    if text is not None and text.exists() and "skaddr" not in text.read_text():
        return None, "this kernel's tcp_probe does not name the socket, and bpftrace has no raw one"
    return attach, "tracepoint tcp:tcp_probe names the socket"


def lacking(bpftrace: Bpftrace | None) -> str:
    """Why no program can be written at all."""
    return "bpftrace cannot be used" if bpftrace is None else "no BBR was found in the BTF"


def attach_with(bpftrace: Bpftrace, target: Target, rung: str) -> Attach:
    """How this version of bpftrace writes the probes of a rung."""
    if bpftrace.has_jiffies:
        jiffies = "jiffies"
    elif kernel_address("jiffies") is not None:
        jiffies = f"*(uint64 *){NAMED_JIFFIES}"
    else:
        jiffies = ""
    return Attach(
        rung=rung,
        entry=bpftrace.keyword,
        exit=bpftrace.exit_keyword,
        argument=bpftrace.argument,
        module=target.module,
        parameters=target.parameters,
        jiffies=jiffies,
        clock="nsecs(monotonic)" if bpftrace.has_monotonic else "nsecs",
        raw=bpftrace.raw_tracepoints,
        values_per_row=VALUES_IN_LIMIT if bpftrace.shares_buffers else VALUES_ON_STACK,
        return_address_bytes=return_address_bytes(os.uname().machine),
        names_modules=bpftrace.number >= FENTRY_OF_MODULES,
        words_per_row=VALUES_IN_LIMIT if bpftrace.shares_buffers else WORDS_ON_STACK,
        words_of_main=WORDS_IN_BUFFER if bpftrace.shares_buffers and runs_alone(rung) else 0,
        stack_limit=STACK_LIMIT if bpftrace.shares_buffers else 0,
    )


def runs_alone(rung: str) -> bool:
    """Whether this kernel never runs the program of main()'s entry within itself, on one CPU."""
    guarded = version_number(os.uname().release) >= FENTRY_RUNS_ALONE
    return rung == "kprobe" or (rung == "fentry" and guarded)


@cache
def kernel_address(name: str) -> int | None:
    """Where a symbol of the kernel is until the next boot, by /proc/kallsyms; None: nowhere.

    Symbols of data are there with CONFIG_KALLSYMS_ALL. 0: kptr_restrict hides the address.
    """
    try:
        symbols = Path("/proc/kallsyms").read_bytes()
    except OSError:
        return None
    line = next(lines_with(f" {name}\n".encode(), symbols), None)
    return int(line.split()[0], 16) if line else None
