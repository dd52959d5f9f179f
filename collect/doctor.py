"""What this host can record, found by looking only: nothing on it is changed."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..probes import btf
from .errors import HostError
from .record import bpftrace as tracing
from .record import facts, ladder, target
from .rungs import RUNGS

GOOD, POOR, BAD = "ok", "note", "missing"
CAPABILITIES = {"net_admin": 12, "net_raw": 13, "sys_admin": 21, "perfmon": 38, "bpf": 39}
LOW_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One line of the screen: `state` is ok, note or missing; `advice` what to do about it."""

    topic: str
    state: str
    value: str
    advice: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings, the rungs in order, and the best rung that looks usable."""

    findings: list[Finding]
    rungs: list[dict[str, Any]]
    best: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "findings": [vars(finding) for finding in self.findings],
            "rungs": self.rungs,
            "best": self.best,
        }


def diagnose(folder: Path) -> Diagnosis:
    """Look at the host; `folder` is where a bundle would be written."""
    base, findings = kernel_types()
    tool, about_tool = bpftrace_tool()
    kinds, about_bbr = bbr_versions(base)
    findings = [
        *privileges(),
        *findings,
        *kernel(),
        *attach_features(tool),
        about_tool,
        *helpers(),
        *about_bbr,
        *congestion_controls(),
        *queueing(),
        *time_keeping(),
        disk(folder),
    ]
    usable = tool if os.geteuid() == 0 else None
    steps = ladder.ladder(usable, kinds[0] if len(kinds) == 1 else pick(kinds))
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
    return Diagnosis(findings, rungs, best)


def pick(kinds: list[target.Target]) -> target.Target | None:
    try:
        return target.choose(kinds)
    except HostError:
        return None


def privileges() -> list[Finding]:
    """Root and the capabilities that BPF needs (linux/capability.h)."""
    root = os.geteuid() == 0
    who = "root" if root else f"uid {os.geteuid()}"
    status = target.read(Path("/proc/self/status"))
    match = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    mask = int(match[1], 16) if match else 0
    held = [name for name, bit in CAPABILITIES.items() if mask >> bit & 1]
    lacking = [name for name in CAPABILITIES if name not in held]
    advice = "run with sudo; without it only ss-level samples can be had" if lacking else ""
    return [
        Finding("user", GOOD if root else BAD, who, "" if root else advice),
        Finding(
            "capabilities",
            GOOD if not lacking else BAD,
            f"has {', '.join(held) or 'none'}"
            + (f"; lacks {', '.join(lacking)}" if lacking else ""),
            advice,
        ),
    ]


def kernel_types() -> tuple[btf.Btf | None, list[Finding]]:
    try:
        base = btf.load()
    except HostError as error:
        return None, [Finding("BTF", BAD, error.fact, error.way_out)]
    modules = len(list(Path("/sys/kernel/btf").iterdir())) - 1
    return base, [Finding("BTF", GOOD, f"vmlinux and {modules} modules")]


def kernel() -> list[Finding]:
    uname = os.uname()
    lockdown = target.read(Path("/sys/kernel/security/lockdown"))
    active = re.search(r"\[(\w+)\]", lockdown)
    state = active[1] if active else "not in this kernel"
    strict = state == "confidentiality"
    advice = "confidentiality lockdown forbids reading kernel memory: boot without it"
    return [
        Finding("kernel", GOOD, f"{uname.release} {uname.machine}"),
        Finding("lockdown", BAD if strict else GOOD, state, advice if strict else ""),
    ]


def attach_features(tool: tracing.Bpftrace | None) -> list[Finding]:
    kprobes = Path("/sys/bus/event_source/devices/kprobe").exists()
    mounted = tracing.tracefs()
    found = [
        Finding(
            "kprobes",
            GOOD if kprobes else POOR,
            "yes" if kprobes else "not in this kernel",
            "" if kprobes else "needs CONFIG_KPROBES; distribution kernels have it",
        ),
    ]
    if tool is not None:
        found.append(
            Finding(
                "fentry",
                GOOD if tool.has_fentry else POOR,
                "yes" if tool.has_fentry else "no (bpftrace --info)",
                "" if tool.has_fentry else "needs CONFIG_FUNCTION_TRACER and BTF",
            )
        )
    else:
        found.append(Finding("fentry", POOR, "unknown", "bpftrace tells, run as root"))
    value = str(mounted) if mounted else "not mounted; collect mounts it for itself alone"
    found.append(Finding("tracefs", GOOD if mounted else POOR, value))
    return found


def bpftrace_tool() -> tuple[tracing.Bpftrace | None, Finding]:
    try:
        tool = tracing.find()
    except HostError as error:
        return None, Finding("bpftrace", BAD, error.fact, error.way_out)
    words = f"{tool.version}, {tool.keyword}, {tool.argument}name"
    return tool, Finding("bpftrace", GOOD, words)


def helpers() -> list[Finding]:
    wanted = {
        "tcpdump": "packets cannot be recorded",
        "tshark": "only needed to check packets by hand",
        "tc": "queues cannot be sampled (package iproute2)",
        "ss": "no ss-level samples (package iproute2)",
        "ethtool": "offloads stay unknown",
    }
    found = []
    for name, without in wanted.items():
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        found.append(
            Finding(name, GOOD if path else POOR, path or "missing", "" if path else without)
        )
    return found


def bbr_versions(base: btf.Btf | None) -> tuple[list[target.Target], list[Finding]]:
    """Which BBR each implementation really is: by the size of struct bbr."""
    if base is None:
        return [], [Finding("BBR", BAD, "unknown without BTF")]
    kinds = target.candidates(base)
    if not kinds:
        available = target.read(target.CONGESTION / "tcp_available_congestion_control")
        advice = "modprobe tcp_bbr, then ask again (only a loaded module can be looked at)"
        return [], [Finding("BBR", BAD, f"none among: {available}", advice)]
    found = []
    for kind in kinds:
        name = "bbr2" if kind.version.name == "v2" else "bbr"
        value = f"{name} is {kind.version.name}: {kind.reason}"
        twice = f"{', '.join(kind.ambiguous)} exists twice: cannot be told apart"
        found.append(
            Finding("BBR", BAD if kind.ambiguous else GOOD, value, twice if kind.ambiguous else "")
        )
    return kinds, found


def congestion_controls() -> list[Finding]:
    available = target.read(target.CONGESTION / "tcp_available_congestion_control")
    default = target.read(target.CONGESTION / "tcp_congestion_control")
    bbr = default.startswith("bbr")
    advice = "" if bbr else "sysctl net.ipv4.tcp_congestion_control=bbr makes new flows use it"
    return [
        Finding(
            "congestion control",
            GOOD if bbr else POOR,
            f"default {default}; available {available}",
            advice,
        )
    ]


def queueing() -> list[Finding]:
    """Who paces, and whether segments are merged on the way out."""
    default = target.read(Path("/proc/sys/net/core/default_qdisc"))
    network = facts.network([])
    qdiscs = network["qdiscs"]
    paced = "fq paces" if any(" fq " in q for q in qdiscs) else "TCP paces internally (no fq)"
    shown = ", ".join(qdiscs[:6]) or "none seen"
    found = [Finding("qdisc", GOOD, f"default {default or 'unknown'}; {shown}; {paced}")]
    for device, states in network["offloads"].items():
        on = [name for name, state in states.items() if state == "on"]
        value = f"{device}: {', '.join(on) or 'all off'}"
        advice = "fine on a server; turn them off where netem or tbf emulate a path" if on else ""
        found.append(Finding("offloads", GOOD, value, advice))
    return found


def time_keeping() -> list[Finding]:
    hz, source = facts.hertz(facts.kernel_config())
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    advice = "" if hz else "replay needs HZ: look for CONFIG_HZ in the kernel's configuration"
    return [
        Finding("HZ", GOOD if hz else BAD, f"{hz} ({source})" if hz else source, advice),
        Finding("clock source", GOOD, target.read(path) or "unknown"),
    ]


def disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    low = free < LOW_DISK_BYTES
    advice = "about 100 bytes per ACK are needed; use --max-size" if low else ""
    return Finding("free disk", POOR if low else GOOD, f"{free / 1e9:.1f} GB in {folder}", advice)
