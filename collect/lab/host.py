"""Calls of the host's own tools, and what the lab needs of the host before it changes anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from ...probes import btf
from ...probes.base.errors import HostError
from .. import guest
from ..record.host import target

TOOLS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "iperf3": "iperf3",
    "ethtool": "ethtool",
    "sysctl": "procps",
}
QDISCS = ("sch_netem", "sch_tbf")
# What a shaper or an AQM needs beyond these.
MODULES: dict[str, tuple[str, ...]] = {
    "htb": ("sch_htb",),
    "fq_codel": ("sch_fq_codel",),
    "red": ("sch_red",),
    "policer": ("sch_ingress", "act_police", "cls_matchall"),
}
PROC = Path("/proc")
# How often modules are tried that do not go.
UNLOAD_TRIES = 30


def call(*words: str) -> str:
    """Run a tool and return what it printed.

    Raises:
        HostError: it failed; its complaint is the reason.
    """
    done = subprocess.run(
        list(words), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise HostError(f"{' '.join(words)}: {said[-1] if said else done.returncode}")
    return done.stdout


def quietly(*words: str) -> bool:
    """Run a tool that may fail; tell whether it did not."""
    try:
        call(*words)
    except (HostError, OSError):
        return False
    return True


def require_root(in_guest: bool = True) -> None:
    """Check that this is root; with `in_guest` the error names --vm as another way.

    Raises:
        HostError: it is not.
    """
    if os.geteuid() == 0:
        return
    way = "use sudo"
    if in_guest:
        way += ", or add --vm to run in a guest as an ordinary user"
        if lacking := guest.missing_tools():
            way += f" (which needs: apt-get install {' '.join(lacking)})"
    raise HostError("the lab needs root for namespaces, queues and probes", way)


def require(parts: Iterable[str]) -> None:
    """Check that this host can build testbeds with these shapers and AQMs; modules are loaded.

    Raises:
        HostError: a tool is missing, or the kernel lacks something.
    """
    missing = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if missing:
        raise HostError(
            f"the lab needs {', '.join(missing)}", f"apt-get install {' '.join(missing)}"
        )
    wanted = [*QDISCS, "veth", *(m for part in parts for m in MODULES.get(part, ()))]
    for module in dict.fromkeys(wanted):
        if not has_module(module):
            raise HostError(
                f"this kernel has no {module} ({os.uname().release})",
                "boot a distribution's kernel, or add --vm to run in a guest",
            )


def require_pauses() -> None:
    """Check that iperf3 pauses between bursts: 3.18 does not (esnet/iperf issue 1820).

    Raises:
        HostError: it sends all the time.
    """
    if call("iperf3", "--version").startswith("iperf 3.18 "):
        raise HostError(
            "iperf3 3.18 sends without a pause, so a flow would not be on and off",
            "install another version (3.17 and older, 3.19), or add --vm to run in a guest",
        )


def has_module(name: str) -> bool:
    """Tell whether the kernel has a module, built in or loadable; load it."""
    if Path("/sys/module", name).is_dir() or quietly("modprobe", "-q", name):
        return True
    return _works_built_in(name)


def _works_built_in(name: str) -> bool:
    """Try what a part without parameters, which sysfs does not list, is for."""
    family, _, kind = name.partition("_")
    trial = "bbrlab-try"
    quietly("ip", "netns", "del", trial)
    if not quietly("ip", "netns", "add", trial):
        return False
    inside = ("ip", "-n", trial)
    try:
        if name == "veth":
            return quietly(*inside, "link", "add", "t0", "type", "veth", "peer", "name", "t1")
        if family != "sch":
            return True  # found out, with its reason, when the filter is added
        if kind == "ingress":
            return quietly("tc", "-n", trial, "qdisc", "add", "dev", "lo", "clsact")
        more = {"tbf": ("rate", "1mbit", "burst", "5000", "limit", "9000"), "netem": ()}
        red = ("limit", "60000", "min", "5000", "max", "15000", "avpkt", "1000", "burst", "20")
        options = {**more, "red": red}.get(kind, ())
        return quietly("tc", "-n", trial, "qdisc", "add", "dev", "lo", "root", kind, *options)
    finally:
        quietly("ip", "netns", "del", trial)


def congestion_controls(wanted: Iterable[str] = ()) -> list[str]:
    """Return what the kernel has, after trying to load modules for what is wanted."""
    path = PROC / "sys/net/ipv4/tcp_available_congestion_control"
    for cc in wanted:
        if cc not in path.read_text().split():
            quietly("modprobe", "-q", f"tcp_{cc}")
    return path.read_text().split()


def hold_only(ccs: Iterable[str], before: set[str]) -> None:
    """Load the BBRs among these congestion controls, and unload the others that the lab loaded.

    Two of them have callbacks of one name, and older kernels let probes land in the module that
    came last; sorted, that is the one which `recorded` returns.

    Args:
        ccs: the congestion controls of a run.
        before: modules that were loaded before the lab; they stay.
    """
    unload(loaded_modules().intersection(target.MODULES) - before)
    congestion_controls(sorted(ccs))


def bbr_versions(ccs: Iterable[str]) -> dict[str, str]:
    """Return which BBR each of these congestion controls is on this kernel, as it is now.

    bbr2 is v2, bbr3 is v3; bbr is v1 or, on kernels with Google's patches, v3.

    Raises:
        HostError: there are some, and none is a BBR that is known here.
    """
    wanted = {cc for cc in ccs if cc.startswith("bbr")}
    if not wanted:
        return {}
    candidates = target.candidates(btf.load())
    present = {each.version.name for each in candidates}
    names = {"bbr": "v1" if "v1" in present else "v3", "bbr2": "v2", "bbr3": "v3"}
    versions = {cc: names[cc] for cc in sorted(wanted) if names.get(cc) in present}
    return versions or dict.fromkeys(sorted(wanted), target.choose(candidates).version.name)


def recorded(versions: dict[str, str]) -> str | None:
    """Return which of these BBRs to record, of several that which is loaded last."""
    return versions[max(versions)] if versions else None


def loaded_modules() -> set[str]:
    """Return the names of the modules that are loaded now."""
    try:
        return {line.split()[0] for line in (PROC / "modules").read_text().splitlines()}
    except OSError:
        return set()


def unload(modules: Iterable[str]) -> None:
    """Unload what the lab has loaded; a module that something else uses stays.

    One may hold another, and a namespace that is gone holds some for a moment.
    """
    left, tries = sorted(modules), UNLOAD_TRIES
    while left and tries:
        still = [name for name in left if not quietly("rmmod", name)]
        tries = UNLOAD_TRIES if len(still) < len(left) else tries - 1
        left = still
        time.sleep(0.1)


def yield_to_traffic() -> None:
    """Put this process and what it starts, the recording, behind the traffic: nice 10."""
    os.setpriority(os.PRIO_PROCESS, 0, 10)


def be_traffic() -> None:
    """Give this process the priority of the traffic, which is what is measured: nice 0."""
    os.setpriority(os.PRIO_PROCESS, 0, 0)


def busy(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> float:
    """Return the share (0 to 1) of time that the busiest CPU worked between two cpu_times()."""
    shares = [
        1 - (idle1 - idle0) / (all1 - all0)
        for (idle0, all0), (idle1, all1) in zip(before, after, strict=False)
        if all1 > all0
    ]
    return round(max(shares, default=0.0), 4)


def cpu_times() -> list[tuple[int, int]]:
    """Return (free, all) ticks of every CPU, from /proc/stat.

    Idle, iowait and nice count as free: niced processes, the recording, give way to the traffic.
    """
    times = []
    for line in (PROC / "stat").read_text().splitlines():
        fields = line.split()
        if fields[0].startswith("cpu") and fields[0] != "cpu":
            ticks = [int(field) for field in fields[1:9]]
            times.append((ticks[1] + ticks[3] + ticks[4], sum(ticks)))
    return times
