"""The root file systems that guests boot from: one Debian suite each, built once and kept."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ..errors import BbrscopeError

# What a guest needs beyond a minimal Debian: what `collect` calls, and what makes traffic.
PACKAGES = (
    "linux-image-amd64 bpftrace tcpdump iproute2 iperf3 ethtool procps kmod zstd "
    "python3 python3-click python3-zstandard"
)
TOOLS = {
    "debootstrap": "debootstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
}
SBIN = "/usr/sbin:/sbin"


class GuestError(BbrscopeError):
    """The guest could not be built, booted, or did not come back."""


def guests_folder() -> Path:
    """Where root file systems are cached: $BBRSCOPE_GUESTS or ~/.cache/bbrscope-guests."""
    return Path(os.environ.get("BBRSCOPE_GUESTS") or Path.home() / ".cache" / "bbrscope-guests")


def missing_tools() -> list[str]:
    """Debian packages that must be installed before a guest can run."""
    path = os.environ.get("PATH", "") + ":" + SBIN
    return [package for tool, package in TOOLS.items() if not shutil.which(tool, path=path)]


def build_root(suite: str) -> Path:
    """The suite's root file system, built with debootstrap when it is not there yet."""
    root = guests_folder() / suite
    if root.is_dir():
        return root
    partial = root.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        prefix, variant = [], "minbase"
    else:
        prefix, variant = ["fakechroot", "fakeroot"], "fakechroot"
    print(f"building {root} (once)", file=sys.stderr)
    checked([*prefix, "debootstrap", f"--variant={variant}", suite, str(partial)])
    # The root can be made again at any time: do not wait for the disk.
    (partial / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
    # A mirror may lag behind this machine's clock; the signatures are checked all the same.
    (partial / "etc/apt/apt.conf.d/lagging").write_text('Acquire::Check-Valid-Until "false";\n')
    shutil.copy("/etc/resolv.conf", partial / "etc/resolv.conf")
    install = f"apt-get update && apt-get install -y --no-install-recommends {PACKAGES}"
    environment = {"INITRD": "No", "DEBIAN_FRONTEND": "noninteractive"}
    checked([*prefix, "chroot", str(partial), "sh", "-c", install], environment)
    partial.rename(root)
    return root


def checked(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a build step; its output is shown only when it fails."""
    sbin = {"PATH": os.environ.get("PATH", "") + ":" + SBIN}
    done = subprocess.run(
        command,
        env={**os.environ, **sbin, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GuestError(f"{shlex.join(command)} failed:\n{done.stdout[-3000:]}")
