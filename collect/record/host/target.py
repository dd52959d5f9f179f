"""Which BBR this host runs: functions, module, struct layout, version. Found, never assumed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ....probes import btf, known
from ....probes.attach import Host
from ....probes.base.errors import HostError
from ....probes.base.plurals import plural
from ....probes.bbr_layout import Layout
from ....probes.bbr_versions import SIZES, TX_START, VERSIONS, Version
from .bpftrace import version_number

CONGESTION = Path("/proc/sys/net/ipv4")
MODULES = ("tcp_bbr", "tcp_bbr2", "tcp_bbr3")
MODULES_HAVE_TYPES = (5, 11)


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


class NotLoadedError(HostError):
    """The kernel has no BBR loaded: no socket can use it yet."""


class UnclearError(HostError):
    """Which BBR is meant, or where its probes would attach, is not known."""


def candidates(types: btf.Btf, folder: Path = Path("/sys/kernel/btf")) -> list[Target]:
    """Every BBR in the running kernel: built in, or in a loaded module.

    `types` are the kernel's own; modules' lie in `folder`, from Linux 5.11 on.
    """
    symbols = kallsyms()
    targets = []
    for module in ("", *MODULES):
        blob = types if not module else btf.load_module(module, types, folder)
        if blob is not None:
            targets += _in_types(types, blob, module, symbols)
        elif known := _without_types(types, module, symbols):
            targets.append(known)
    return targets


def _in_types(
    types: btf.Btf, blob: btf.Btf, module: str, symbols: list[tuple[str, str]]
) -> list[Target]:
    """The BBRs whose types are in one blob, recognised by the size of struct bbr."""
    targets = []
    sizes = {blob.size(i): i for i in blob.find(btf.STRUCT, "bbr")}
    priv = types.member_offset("inet_connection_sock", "icsk_ca_priv")
    for size, type_id in sorted(sizes.items()):
        version = VERSIONS.get(SIZES.get(size, ""))
        parameters = blob.parameters(version.main) if version else None
        if version is None or parameters is None or priv is None:
            continue
        version = _with_cwnd_events(version, blob)
        if any(blob.parameters(name) is None for name in version.functions):
            continue  # a BBR of another making: its callbacks are not those we know
        layout = Layout(tuple(blob.leaves(type_id)), size, priv)
        reason = (
            f"{version.main}() and struct bbr of {plural(size, 'byte')} in {module or 'vmlinux'}"
        )
        targets.append(_target(version, module, layout, tuple(parameters), symbols, reason))
    return targets


def _with_cwnd_events(version: Version, blob: btf.Btf) -> Version:
    """The version with the callbacks for cwnd_event that this kernel has.

    Linux 7.1 gave CA_EVENT_TX_START a callback of its own; a BBR may have it beside cwnd_event,
    which then gets the other events, or instead of it.
    """
    if blob.parameters(TX_START) is None:
        return version
    has_both = blob.parameters(version.cwnd_event) is not None
    cwnd_event = version.cwnd_event if has_both else ""
    return replace(version, cwnd_event=cwnd_event, tx_start=TX_START)


def _without_types(types: btf.Btf, module: str, symbols: list[tuple[str, str]]) -> Target | None:
    """Mainline's v1 on kernels that have no types of modules: Linux 5.4 to 5.10.

    Its struct bbr is the same from 5.1 (extra_acked) on. main() had two parameters until 6.10.
    """
    version = VERSIONS["v1"]
    names = {name for name, home in symbols if home == module}
    priv = types.member_offset("inet_connection_sock", "icsk_ca_priv")
    if module != version.module or priv is None or not names.issuperset(version.functions):
        return None
    if not (5, 1) <= version_number(os.uname().release) < MODULES_HAVE_TYPES:
        return None
    layout = replace(known.layout("v1"), priv=priv)
    reason = (
        f"{version.main}() in {module}, by mainline's own layout: the kernel has no types of it"
    )
    return _target(version, module, layout, ("sk", "rs"), symbols, reason)


def _target(
    version: Version,
    module: str,
    layout: Layout,
    parameters: tuple[str, ...],
    symbols: list[tuple[str, str]],
    reason: str,
) -> Target:
    twice = tuple(f for f in version.functions if symbols.count((f, module)) > 1)
    elsewhere = {name for name, home in symbols if home != module}
    shared = tuple(f for f in version.functions if f in elsewhere)
    return Target(version, module, layout, parameters, twice, reason, shared)


def registered() -> list[str]:
    """The congestion controls named bbr* that sockets can have now; [] where none is loaded."""
    available = read(CONGESTION / "tcp_available_congestion_control").split()
    return [name for name in available if name.startswith("bbr")]


def choose(targets: list[Target], wanted: str | None = None) -> Target:
    """The implementation to record.

    Two in one kernel: that of the default congestion control, else the caller must say which.

    Raises:
        NotLoadedError: no BBR is loaded.
        HostError: there is none that is known.
        UnclearError: there are several.
    """
    if wanted:
        targets = [target for target in targets if target.version.name == wanted]
    if not targets:
        raise _nothing_to_record(wanted)
    target = targets[0] if len(targets) == 1 else _default_of(targets)
    if target.ambiguous:
        raise UnclearError(
            f"{', '.join(target.ambiguous)} exists more than once in {target.module or 'vmlinux'}:"
            " a probe by name could attach to the wrong one",
            "load one of the two BBR versions as a module, or use a kernel with one of them",
        )
    return target


def _nothing_to_record(wanted: str | None) -> HostError:
    """Why there is no BBR, or none that is known."""
    if not registered():
        return NotLoadedError(
            "no BBR is loaded in this kernel, so no socket can have it yet",
            "--load-module loads tcp_bbr, --wait waits for the first socket that asks for it",
        )
    sizes = ", ".join(f"{v} {plural(s, 'byte')}" for s, v in SIZES.items())
    return HostError(
        f"no BBR{' ' + wanted if wanted else ''} to record: no struct bbr of a known size "
        f"({sizes}) with its functions in the kernel's BTF",
        "bbrscope doctor says more; a BBR of another making can be sampled by --rung inet_diag",
    )


def _default_of(targets: list[Target]) -> Target:
    """The one that is the kernel's default congestion control. Raises UnclearError: none is."""
    default = read(CONGESTION / "tcp_congestion_control")
    named = [t for t in targets if (t.version.name == "v2") == (default == "bbr2")]
    if default not in ("bbr", "bbr2") or len(named) != 1:
        names = ", ".join(f"{t.version.name} ({t.reason})" for t in targets)
        raise UnclearError(f"this kernel has more than one BBR: {names}", "say which: --bbr v2")
    return named[0]


def instance(module: str) -> int | None:
    """The inode number of /sys/module/NAME, another after each loading; None: built in, or gone."""
    try:
        return os.stat(Path("/sys/module", module)).st_ino if module else None
    except OSError:
        return None


def misplaced(target: Target, tracefs: Path) -> list[str]:
    """Callbacks of `target` where nothing is attached, by tracefs' file enabled_functions.

    Older kernels look a module's function up by its name only, and find another module's.
    """
    try:
        listed = (tracefs / "enabled_functions").read_text()
    except OSError:
        listed = ""
    homes = re.findall(r"^(\S+)(?: \[(\w+)\])? \(", listed, re.MULTILINE)
    return [name for name in target.version.functions if (name, target.module) not in homes]


def program_host(target: Target, base: btf.Btf) -> Host:
    """What the probes need to know of the host's types.

    Raises:
        HostError: they lack struct sk_buff.
    """
    cb = base.member_offset("sk_buff", "cb")
    if cb is None:
        raise HostError("the kernel's BTF has no struct sk_buff", "bbrscope doctor")
    marks = base.parameters("tcp_mark_skb_lost") is not None

    def has(struct: str, member: str) -> bool:
        return base.member_offset(struct, member) is not None

    return Host(target.layout, cb, has, marks)


def kallsyms(path: Path = Path("/proc/kallsyms")) -> list[tuple[str, str]]:
    """(symbol, module) of every text symbol whose name speaks of BBR; () when unreadable."""
    try:
        text = path.read_bytes()
    except OSError:
        return []
    found = (line.decode().split() for line in lines_with(b"bbr", text))
    return [
        (fields[2], fields[3].strip("[]") if len(fields) > 3 else "")
        for fields in found
        if fields[1] in "tT"
    ]


def lines_with(words: bytes, text: bytes) -> Iterator[bytes]:
    """The lines that hold these words, of very many: neither Python nor a regex sees the others."""
    at = text.find(words)
    while at >= 0:
        end = (text.find(b"\n", at) + 1) or len(text)
        yield text[text.rfind(b"\n", 0, at) + 1 : end]
        at = text.find(words, end)


def read(path: Path) -> str:
    """A small file's text without its newline, "" when it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
