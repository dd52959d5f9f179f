"""Which BBR this host runs: functions, module, struct layout, version. Found, never assumed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from ...probes import btf
from ...probes.columns import SIZES, TX_START, VERSIONS, Version
from ...probes.layout import Layout
from ...probes.program import Host
from ..errors import HostError

CONGESTION = Path("/proc/sys/net/ipv4")
MODULES = ("tcp_bbr", "tcp_bbr2", "tcp_bbr3")


@dataclass(frozen=True)
class Target:
    """A BBR implementation that can be recorded.

    `module` is "" when it is built in; `parameters` are those of its main function; `ambiguous`
    names callbacks whose symbol exists more than once in the same object, `shared` those that
    another object has too (v2 kept v1's name for bbr_cwnd_event).
    """

    version: Version
    module: str
    layout: Layout
    parameters: tuple[str, ...]
    ambiguous: tuple[str, ...]
    reason: str
    shared: tuple[str, ...] = ()


class UnclearError(HostError):
    """Which BBR is meant, or where its probes would land, cannot be told."""


def candidates(base: btf.Btf, folder: Path = Path("/sys/kernel/btf")) -> list[Target]:
    """Every BBR in the running kernel: built in, or in a loaded module that has BTF."""
    symbols = kallsyms()
    found = []
    for module in ("", *MODULES):
        blob = base if not module else btf.load_module(module, base, folder)
        if blob is None:
            continue
        sizes = {blob.size(i): i for i in blob.find(btf.STRUCT, "bbr")}
        for size, type_id in sorted(sizes.items()):
            version = VERSIONS.get(SIZES.get(size, ""))
            if version is None:
                continue
            parameters = blob.parameters(version.main)
            if parameters is None:
                continue
            if blob.parameters(version.cwnd_event) is None and blob.parameters(TX_START):
                version = replace(version, cwnd_event=TX_START)
            absent = [name for name in version.functions if blob.parameters(name) is None]
            if absent:
                continue  # a BBR of another making: its callbacks are not those we know
            priv = base.member_offset("inet_connection_sock", "icsk_ca_priv")
            if priv is None:
                continue
            layout = Layout(tuple(blob.leaves(type_id)), size, priv)
            reason = f"{version.main}() and struct bbr of {size} bytes in {module or 'vmlinux'}"
            twice = tuple(f for f in version.functions if symbols.count((f, module)) > 1)
            elsewhere = {name for name, home in symbols if home != module}
            shared = tuple(f for f in version.functions if f in elsewhere)
            found.append(Target(version, module, layout, tuple(parameters), twice, reason, shared))
    return found


def choose(found: list[Target], wanted: str | None = None) -> Target:
    """The implementation to record.

    Two in one kernel: that of the default congestion control, else the caller must say which.

    Raises:
        HostError: there is none.
        UnclearError: there are several.
    """
    if wanted:
        found = [target for target in found if target.version.name == wanted]
    if not found:
        sizes = ", ".join(f"{v} {s} bytes" for s, v in SIZES.items())
        raise HostError(
            f"no BBR{' ' + wanted if wanted else ''} to record: no struct bbr of a known size "
            f"({sizes}) with its functions in the kernel's BTF",
            "modprobe tcp_bbr (a module must be loaded to be seen); bbrscope doctor says more",
        )
    if len(found) > 1:
        default = read(CONGESTION / "tcp_congestion_control")
        named = [t for t in found if (t.version.name == "v2") == (default == "bbr2")]
        if default not in ("bbr", "bbr2") or len(named) != 1:
            names = ", ".join(f"{t.version.name} ({t.reason})" for t in found)
            raise UnclearError(f"this kernel has more than one BBR: {names}", "say which: --bbr v2")
        found = named
    target = found[0]
    if target.ambiguous:
        raise UnclearError(
            f"{', '.join(target.ambiguous)} exists more than once in {target.module or 'vmlinux'}:"
            " a probe by name could attach to the wrong one",
            "load one of the two BBR versions as a module, or use a kernel with one of them",
        )
    return target


def instance(module: str) -> int | None:
    """What tells one loading of a module from the next; None when it is built in or not there."""
    try:
        return os.stat(Path("/sys/module", module)).st_ino if module else None
    except OSError:
        return None


def misplaced(target: Target, tracefs: Path) -> list[str]:
    """Callbacks of `target` where nothing is attached, by the kernel's list of traced functions.

    Older kernels look a module's function up by its name alone, and find another module's.
    """
    try:
        listed = (tracefs / "enabled_functions").read_text()
    except OSError:
        listed = ""
    homes = re.findall(r"^(\S+)(?: \[(\w+)\])? \(", listed, re.MULTILINE)
    return [name for name in target.version.functions if (name, target.module) not in homes]


def program_host(target: Target, base: btf.Btf) -> Host:
    """What the probes need to know of the host's types."""
    cb = base.member_offset("sk_buff", "cb")
    if cb is None:
        raise HostError("the kernel's BTF has no struct sk_buff", "bbrscope doctor")
    marks = base.parameters("tcp_mark_skb_lost") is not None

    def has(struct: str, member: str) -> bool:
        return base.member_offset(struct, member) is not None

    return Host(target.layout, cb, has, marks)


def kallsyms(path: Path = Path("/proc/kallsyms")) -> list[tuple[str, str]]:
    """(symbol, module) of every text symbol whose name speaks of BBR; () when unreadable."""
    found = []
    try:
        with path.open() as lines:
            for line in lines:
                if "bbr" not in line:
                    continue
                fields = line.split()
                if fields[1] in "tT":
                    module = fields[3].strip("[]") if len(fields) > 3 else ""
                    found.append((fields[2], module))
    except OSError:
        return []
    return found


def read(path: Path) -> str:
    """A small file's text without its newline, "" when it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
