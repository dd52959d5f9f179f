"""What this host can record, found by looking only: nothing on it is changed."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....probes import btf
from ....probes.base.errors import HostError
from ....probes.base.plurals import plural
from ...bundle.rungs import RUNGS
from . import bpftrace as tracing
from . import host_facts as facts
from . import ladder, lockdown, target

GOOD, POOR, BAD = "ok", "note", "missing"
CAPABILITIES = {"net_admin": 12, "net_raw": 13, "sys_admin": 21, "perfmon": 38, "bpf": 39}
LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class HostCheck:
    """One line of the screen: `state` is ok, note or missing; `advice` what to do about it."""

    topic: str
    state: str
    value: str
    advice: str = ""


@dataclass(frozen=True)
class HostReport:
    """All checks, the rungs in order, and the best rung that looks usable."""

    checks: list[HostCheck]
    rungs: list[dict[str, Any]]
    best: str

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return {
            "checks": [vars(check) for check in self.checks],
            "rungs": self.rungs,
            "best": self.best,
        }


def diagnose(folder: Path) -> HostReport:
    """Look at the host; `folder` is where a bundle would be written."""
    types, about_types = kernel_types()
    tool, about_tool = bpftrace_tool()
    kinds, about_bbr = bbr_versions(types)
    lockdown_mode = lockdown.mode()
    checks = [
        *privileges(),
        *about_types,
        *kernel(lockdown_mode),
        *attach_features(tool, lockdown_mode),
        about_tool,
        *helpers(),
        *about_bbr,
        *congestion_controls(),
        *queueing(),
        *time_keeping(),
        disk(folder),
    ]
    usable = tool if os.geteuid() == 0 else None
    kind = kinds[0] if len(kinds) == 1 else chosen(kinds)
    steps = ladder.ladder(usable, kind, lockdown_mode)
    rungs = [
        {
            "rung": step.rung,
            "usable": step.usable,
            "reason": step.reason if usable or step.rung == "inet_diag" else "needs root",
            "answers": RUNGS[step.rung].answers,
        }
        for step in steps
    ]
    best = next((str(rung["rung"]) for rung in rungs if rung["usable"]), "nothing")
    return HostReport(checks, rungs, best)


def chosen(kinds: list[target.Target]) -> target.Target | None:
    """Which of several BBRs collect would record; None where that is not clear."""
    try:
        return target.choose(kinds)
    except HostError:
        return None


def privileges() -> list[HostCheck]:
    """Root and the capabilities that BPF needs (linux/capability.h)."""
    root = os.geteuid() == 0
    who = "root" if root else f"uid {os.geteuid()}"
    mask = lockdown.held_capabilities()
    held = [name for name, bit in CAPABILITIES.items() if mask >> bit & 1]
    lacking = [name for name in CAPABILITIES if name not in held]
    advice = "run with sudo; without it only ss-level samples can be had" if lacking else ""
    return [
        HostCheck("user", GOOD if root else BAD, who, "" if root else advice),
        HostCheck(
            "capabilities",
            GOOD if not lacking else BAD,
            f"has {', '.join(held) or 'none'}"
            + (f"; lacks {', '.join(lacking)}" if lacking else ""),
            advice,
        ),
    ]


def kernel_types() -> tuple[btf.Btf | None, list[HostCheck]]:
    """The kernel's types, and whether they are there."""
    try:
        base = btf.load()
    except HostError as error:
        return None, [HostCheck("BTF", BAD, error.fact, error.way_out)]
    modules = len(list(Path("/sys/kernel/btf").iterdir())) - 1
    return base, [HostCheck("BTF", GOOD, f"vmlinux and {plural(modules, 'module')}")]


def about_lockdown(mode: str | None) -> HostCheck:
    """Whether the kernel forbids reading its memory."""
    if mode is None:
        advice = f"mount -t securityfs securityfs {lockdown.SECURITYFS} lets one see it"
        return HostCheck("lockdown", POOR, "unknown: securityfs is not mounted", advice)
    if lockdown.forbids_reading(mode):
        return HostCheck("lockdown", BAD, lockdown.NO_READING, lockdown.WAY_OUT)
    return HostCheck("lockdown", GOOD, mode)


def kernel(lockdown_mode: str | None) -> list[HostCheck]:
    """Release, machine, and lockdown."""
    uname = os.uname()
    release = HostCheck("kernel", GOOD, f"{uname.release} {uname.machine}")
    return [release, about_lockdown(lockdown_mode)]


def attach_features(tool: tracing.Bpftrace | None, lockdown_mode: str | None) -> list[HostCheck]:
    """What probes can be attached with."""
    kprobes = Path("/sys/bus/event_source/devices/kprobe").exists()
    mounted = tracing.tracefs()
    checks = [
        HostCheck(
            "kprobes",
            GOOD if kprobes else POOR,
            "yes" if kprobes else "not in this kernel",
            "" if kprobes else "needs CONFIG_KPROBES; distribution kernels have it",
        ),
    ]
    if lockdown.forbids_reading(lockdown_mode):
        checks.append(HostCheck("fentry", BAD, "not to be had", lockdown.WAY_OUT))
    elif tool is not None:
        checks.append(
            HostCheck(
                "fentry",
                GOOD if tool.has_fentry else POOR,
                "yes" if tool.has_fentry else "no (bpftrace --info)",
                "" if tool.has_fentry else "needs CONFIG_FUNCTION_TRACER and BTF",
            )
        )
    else:
        checks.append(HostCheck("fentry", POOR, "unknown", "bpftrace tells, run as root"))
    value = str(mounted) if mounted else "not mounted; collect mounts it for itself only"
    checks.append(HostCheck("tracefs", GOOD if mounted else POOR, value))
    return checks


def bpftrace_tool() -> tuple[tracing.Bpftrace | None, HostCheck]:
    """The bpftrace of this host, and what it can do."""
    try:
        tool = tracing.find()
    except HostError as error:
        return None, HostCheck("bpftrace", BAD, error.fact, error.way_out)
    words = f"{tool.version}, {tool.keyword}, {tool.argument}name"
    return tool, HostCheck("bpftrace", GOOD, words)


def helpers() -> list[HostCheck]:
    """The tools that collect calls, each with the package that has it."""
    wanted = {
        "tcpdump": "packets cannot be recorded (package tcpdump)",
        "tshark": "ingest cannot load packets on this host (package tshark)",
        "tc": "queues cannot be sampled (package iproute2)",
        "ss": "no ss-level samples (package iproute2)",
        "ethtool": "offloads stay unknown (package ethtool)",
    }
    checks = []
    for name, without in wanted.items():
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        checks.append(
            HostCheck(name, GOOD if path else POOR, path or "missing", "" if path else without)
        )
    return checks


def bbr_versions(base: btf.Btf | None) -> tuple[list[target.Target], list[HostCheck]]:
    """Which BBR each implementation really is: by the size of struct bbr."""
    if base is None:
        return [], [HostCheck("BBR", BAD, "unknown without BTF")]
    kinds = target.candidates(base)
    if not kinds:
        available = target.read(target.CONGESTION / "tcp_available_congestion_control")
        advice = "modprobe tcp_bbr, then ask again; collect --load-module does it, --wait waits"
        return [], [HostCheck("BBR", BAD, f"none among: {available}", advice)]
    checks = []
    for kind in kinds:
        name = "bbr2" if kind.version.name == "v2" else "bbr"
        value = f"{name} is {kind.version.name}: {kind.reason}"
        twice = f"{', '.join(kind.ambiguous)} exists twice: cannot be told apart"
        checks.append(
            HostCheck(
                "BBR", BAD if kind.ambiguous else GOOD, value, twice if kind.ambiguous else ""
            )
        )
    return kinds, checks


def congestion_controls() -> list[HostCheck]:
    """Which congestion control new flows use."""
    available = target.read(target.CONGESTION / "tcp_available_congestion_control")
    default = target.read(target.CONGESTION / "tcp_congestion_control")
    bbr = default.startswith("bbr")
    advice = "" if bbr else "sysctl net.ipv4.tcp_congestion_control=bbr makes new flows use it"
    return [
        HostCheck(
            "congestion control",
            GOOD if bbr else POOR,
            f"default {default}; available {available}",
            advice,
        )
    ]


def queueing() -> list[HostCheck]:
    """Who paces, and whether segments are merged on the way out."""
    default = target.read(Path("/proc/sys/net/core/default_qdisc"))
    network = facts.network([])
    qdiscs = network["qdiscs"]
    paced = "fq paces" if any(" fq " in q for q in qdiscs) else "TCP paces internally (no fq)"
    shown = ", ".join(qdiscs[:6]) or "none seen"
    checks = [HostCheck("qdisc", GOOD, f"default {default or 'unknown'}; {shown}; {paced}")]
    for device, states in network["offloads"].items():
        on = [name for name, state in states.items() if state == "on"]
        value = f"{device}: {', '.join(on) or 'all off'}"
        advice = "fine on a server; turn them off where netem or tbf emulate a path" if on else ""
        checks.append(HostCheck("offloads", GOOD, value, advice))
    return checks


def time_keeping() -> list[HostCheck]:
    """The kernel's tick, which a replay needs, and its clock."""
    hz, source = facts.hertz(facts.kernel_config())
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    advice = "" if hz else "replay needs HZ: look for CONFIG_HZ in the kernel's configuration"
    return [
        HostCheck("HZ", GOOD if hz else BAD, f"{hz} ({source})" if hz else source, advice),
        HostCheck("clock source", GOOD, target.read(path) or "unknown"),
    ]


def disk(folder: Path) -> HostCheck:
    """Whether there is room for a recording."""
    free = shutil.disk_usage(folder).free
    low = free < LOW_DISK_BYTES
    advice = "about 100 bytes per ACK are needed; use --max-size" if low else ""
    return HostCheck("free disk", POOR if low else GOOD, f"{free / 1e9:.1f} GB in {folder}", advice)
