"""What a replay and a reader need to know of the host: build constants, settings, devices."""

from __future__ import annotations

import gzip
import json
import os
import re
import time
from pathlib import Path
from typing import Any

from ....probes.btf import Btf
from .helpers import output_of
from .target import read

# Read by BBR v3 in the sender's network namespace, then what shapes a sender anyway.
SYSCTLS = (
    "tcp_min_tso_segs tcp_plb_enabled tcp_plb_idle_rehash_rounds tcp_plb_rehash_rounds "
    "tcp_plb_suspend_rto_sec tcp_plb_cong_thresh tcp_congestion_control tcp_ecn tcp_sack "
    "tcp_timestamps tcp_recovery tcp_early_retrans tcp_mtu_probing tcp_notsent_lowat "
    "tcp_limit_output_bytes tcp_slow_start_after_idle tcp_no_metrics_save tcp_wmem tcp_rmem "
    "tcp_window_scaling tcp_dsack tcp_fastopen tcp_base_mss tcp_pacing_ss_ratio tcp_pacing_ca_ratio"
).split()
OTHER_SYSCTLS = ("net.core.default_qdisc", "net.core.wmem_max", "net.core.rmem_max")
OFFLOADS = ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload")


def kernel_config() -> dict[str, str]:
    """CONFIG_* of the running kernel, empty when the host does not publish them."""
    release = os.uname().release
    for path in (Path(f"/boot/config-{release}"), Path(f"/lib/modules/{release}/config")):
        if text := read(path):
            return _config(text)
    try:
        return _config(gzip.decompress(Path("/proc/config.gz").read_bytes()).decode())
    except OSError:
        return {}


def _config(text: str) -> dict[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if line.startswith("CONFIG_"))
    return {name: value.strip('"') for name, value in pairs}


def hertz(config: dict[str, str]) -> tuple[int | None, str]:
    """HZ and where it comes from: the kernel's configuration, else two readings of its jiffies."""
    if config.get("CONFIG_HZ", "").isdigit():
        return int(config["CONFIG_HZ"]), "kernel configuration"
    first, at_first = _jiffies()
    if first is None:
        return None, "unknown: no kernel configuration, and /proc/timer_list cannot be read"
    time.sleep(0.5)
    second, at_second = _jiffies()
    if second is None:
        return None, "unknown: /proc/timer_list cannot be read"
    measured = (second - first) * 1e9 / (at_second - at_first)
    return min((100, 250, 300, 1000), key=lambda hz: abs(hz - measured)), "measured jiffies"


def _jiffies() -> tuple[int | None, int]:
    match = re.search(r"^jiffies: (\d+)", read(Path("/proc/timer_list")), re.MULTILINE)
    return (int(match[1]) if match else None), time.monotonic_ns()


def constants(base: Btf | None) -> dict[str, Any]:
    """Build constants: HZ and its source (`hertz`), GSO_LEGACY_MAX_SIZE and GSO_MAX_SIZE [bytes].

    GSO_MAX_SIZE is 8 * 65535 where struct net_device has tso_max_size (Linux 5.19), else 65536;
    without BTF (None) it is left out.
    """
    hz, source = hertz(kernel_config())
    values: dict[str, Any] = {"HZ": hz, "HZ_source": source, "GSO_LEGACY_MAX_SIZE": 65536}
    if base is not None:
        # include/linux/netdevice.h: GSO_MAX_SIZE became 8 * GSO_MAX_SEGS when net_device got
        # tso_max_size (Linux 5.19).
        big = base.member_offset("net_device", "tso_max_size") is not None
        values["GSO_MAX_SIZE"] = 8 * 65535 if big else 65536
    return values


def sysctls(prefix: list[str]) -> dict[str, Any]:
    """The settings in the namespace that `prefix` enters; numbers as numbers."""
    names = [f"net.ipv4.{name}" for name in SYSCTLS] + list(OTHER_SYSCTLS)
    if prefix:
        text = output_of([*prefix, "sysctl", "-e", *names])
        pairs = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    else:
        paths = {name: Path("/proc/sys") / name.replace(".", "/") for name in names}
        pairs = {name: read(path) for name, path in paths.items() if path.exists()}
    return {name: int(v) if re.fullmatch(r"-?\d+", v) else v for name, v in pairs.items()}


def module_parameters() -> dict[str, str]:
    """Parameters of BBR modules, built in or loaded, as "module.parameter"."""
    parameters = {}
    for module in ("tcp_bbr", "tcp_bbr2"):
        for path in sorted(Path(f"/sys/module/{module}/parameters").glob("*")):
            parameters[f"{module}.{path.name}"] = read(path)
    return parameters


def network(prefix: list[str]) -> dict[str, Any]:
    """Queue disciplines and segmentation offloads of every device but loopback."""
    try:
        qdiscs = json.loads(output_of([*prefix, "tc", "-j", "qdisc", "show"]) or "[]")
    except ValueError:
        qdiscs = []
    devices = sorted({qdisc.get("dev", "") for qdisc in qdiscs} - {"", "lo"})[:16]
    return {
        "qdiscs": [f"{q.get('dev')} {q.get('kind')} {q.get('handle')}" for q in qdiscs],
        "offloads": {device: offloads(prefix, device) for device in devices},
    }


def offloads(prefix: list[str], device: str) -> dict[str, str]:
    """What the device's driver merges or splits, by ethtool's names: on or off."""
    text = output_of([*prefix, "ethtool", "-k", device])
    pairs = (line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return {name: value.split()[0] for name, value in pairs if name in OFFLOADS}


def online_cpus(file: Path = Path("/sys/devices/system/cpu/online")) -> set[int]:
    """The CPUs that run; none where the host does not say."""
    try:
        spans = [span.split("-") for span in file.read_text().strip().split(",")]
        return {cpu for span in spans for cpu in range(int(span[0]), int(span[-1]) + 1)}
    except (OSError, ValueError):
        return set()


def host(prefix: list[str]) -> dict[str, Any]:
    """Facts about the machine that do not identify it."""
    uname = os.uname()
    clock = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    return {
        "kernel": f"{uname.release} {uname.version}",
        "machine": uname.machine,
        "cpus": os.cpu_count(),
        "clocksource": read(clock),
        **network(prefix),
    }
