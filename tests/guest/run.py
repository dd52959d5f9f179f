#!/usr/bin/env python3
"""Run a command under a real distribution kernel, in a QEMU guest with virtual time.

    run.py bookworm -- uname -r                       # Debian 12: 6.1, bpftrace 0.17
    run.py trixie --dir out -- sh -c 'bpftrace --info > /out/info.txt'

The first run of a suite builds its root file system (debootstrap, 2-4 minutes, needs the network
and root, or `fakechroot fakeroot` for an ordinary user); later runs boot in about 30 s.

What the guest sees: the suite's own files (writable, shared by all guests of the suite), this
repository read-only at /repo, `--dir` at /out, proc, sys, tracefs and bpf mounted, root. Time is
virtual (`-icount`): one instruction takes 2 ns whatever the host does, and idle time is skipped,
so a flow in the guest does not notice a busy host. Exit status is the command's.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# What a guest needs beyond a minimal Debian: what `collect` calls, and what makes traffic.
PACKAGES = (
    "linux-image-amd64 bpftrace tcpdump iproute2 iperf3 ethtool procps kmod zstd "
    "python3 python3-click python3-zstandard"
)
# Modules that must be in before the root file system can be mounted.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p")
TOOLS = {
    "debootstrap": "debootstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
}

INITRAMFS_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
while read module; do /bin/busybox insmod /modules/$module; done < /modules/order
options=trans=virtio,version=9p2000.L,msize=262144,cache=loose
/bin/busybox mount -t 9p -o $options rootfs /root || exec /bin/busybox sh
exec /bin/busybox switch_root /root /bin/sh /guest-init
"""

# pid 1 in the guest. The marks let the host cut the command's own output out of the console.
GUEST_INIT = """#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd; ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t tmpfs tmp /tmp; mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug; mount -t tracefs trace /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf; mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /repo /out
options=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o $options,cache=loose,ro repo /repo
mount -t 9p -o $options out /out
ip link set lo up; hostname guest
cd /tmp
echo 3 > /proc/sys/kernel/printk
/bin/sh /out/.command < /dev/null > /out/.stdout 2> /out/.stderr
echo $? > /out/.status
sync
echo o > /proc/sysrq-trigger; sleep 60
"""


class GuestError(Exception):
    """The guest could not be built, booted, or did not come back."""


def guests_folder() -> Path:
    """Where root file systems are cached: $BBRSCOPE_GUESTS or ~/.cache/bbrscope-guests."""
    return Path(os.environ.get("BBRSCOPE_GUESTS") or Path.home() / ".cache" / "bbrscope-guests")


def missing_tools() -> list[str]:
    """Debian packages that must be installed before a guest can run."""
    sbin = "/usr/sbin:/sbin"
    path = os.environ.get("PATH", "") + ":" + sbin
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
    sbin = {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
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


def newest_kernel(root: Path) -> str:
    """The release of the newest kernel installed in `root`."""
    folders = [folder for folder in (root / "lib/modules").iterdir() if folder.is_dir()]
    if not folders:
        raise GuestError(f"{root} holds no kernel; remove the folder to build it again")
    return max(folders, key=lambda folder: [int(n) for n in numbers(folder.name)]).name


def numbers(text: str) -> list[str]:
    return "".join(c if c.isdigit() else " " for c in text).split()


def module_order(modules: Path) -> list[Path]:
    """Files of BOOT_MODULES and what they depend on (modules.dep), in loading order."""
    needs: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        file, _, rest = line.partition(":")
        needs[file] = rest.split()
    by_name = {Path(file).name.split(".ko")[0]: file for file in needs}
    order: list[str] = []
    for name in BOOT_MODULES:
        if name not in by_name:
            continue  # built in
        # modules.dep lists what is needed last first.
        for file in [*reversed(needs[by_name[name]]), by_name[name]]:
            if file not in order:
                order.append(file)
    return [modules / file for file in order]


def make_initramfs(root: Path, release: str, target: Path) -> None:
    """Write a gzip cpio with busybox, the 9p modules and an init that switches to the 9p root."""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for folder in ("bin", "proc", "root", "modules"):
            (tree / folder).mkdir()
        busybox = shutil.which("busybox") or "/bin/busybox"
        shutil.copy(busybox, tree / "bin/busybox")
        (tree / "init").write_text(INITRAMFS_INIT)
        (tree / "init").chmod(0o755)
        order = []
        for file in module_order(root / "lib/modules" / release):
            plain = file.name.split(".ko")[0] + ".ko"
            (tree / "modules" / plain).write_bytes(decompressed(file))
            order.append(plain)
        (tree / "modules/order").write_text("".join(f"{name}\n" for name in order))
        files = "\n".join(str(p.relative_to(tree)) for p in sorted(tree.rglob("*")))
        cpio = subprocess.run(
            [busybox, "cpio", "-o", "-H", "newc"],
            cwd=tree,
            input=files.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
        ).stdout
    target.write_bytes(gzip.compress(cpio, 1))


def decompressed(file: Path) -> bytes:
    tool = {".xz": "xz", ".zst": "zstd", ".gz": "gzip"}.get(file.suffix)
    if tool is None:
        return file.read_bytes()
    return subprocess.run([tool, "-dc", str(file)], stdout=subprocess.PIPE, check=True).stdout


def run(
    suite: str, command: str, folder: Path, timeout_s: float = 1800.0
) -> subprocess.CompletedProcess[str]:
    """Boot `suite`, run the shell `command` as root, and return its output and exit status.

    `folder` is /out inside the guest; what the command writes there stays. Raises GuestError when
    the guest cannot boot or does not finish within `timeout_s` of wall time.
    """
    if lacking := missing_tools():
        raise GuestError(f"a guest needs: apt-get install {' '.join(lacking)}")
    root = build_root(suite)
    release = newest_kernel(root)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".command").write_text(command)
    # Unlinked first: the name may be a file of another user's run.
    (root / "guest-init").unlink(missing_ok=True)
    (root / "guest-init").write_text(GUEST_INIT)
    with tempfile.TemporaryDirectory() as name:
        initramfs = Path(name) / "initramfs"
        make_initramfs(root, release, initramfs)
        console = boot(root, release, initramfs, folder, timeout_s)
    status = folder / ".status"
    if not status.exists():
        raise GuestError(f"the guest ({release}) ended early; its console:\n{console[-3000:]}")
    result = subprocess.CompletedProcess(
        command,
        int(status.read_text()),
        (folder / ".stdout").read_text(errors="replace"),
        (folder / ".stderr").read_text(errors="replace"),
    )
    for left in (".command", ".stdout", ".stderr", ".status"):
        (folder / left).unlink(missing_ok=True)
    return result


def boot(root: Path, release: str, initramfs: Path, folder: Path, timeout_s: float) -> str:
    """Boot and wait for power-off; return the console's text."""
    shares = {"rootfs": (root, ""), "repo": (REPOSITORY, ",readonly=on"), "out": (folder, "")}
    command = ["qemu-system-x86_64", "-accel", "tcg,thread=single"]
    command += ["-icount", "shift=1,sleep=off", "-smp", "1", "-cpu", "max", "-m", "2500"]
    command += ["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]
    command += ["-kernel", str(root / f"boot/vmlinuz-{release}"), "-initrd", str(initramfs)]
    command += ["-append", "console=ttyS0 mitigations=off quiet panic=-1"]
    for tag, (path, readonly) in shares.items():
        local = f"local,id={tag},path={path},security_model=none,multidevs=remap{readonly}"
        command += ["-fsdev", local, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace")
        raise GuestError(f"the guest ran longer than {timeout_s} s:\n{text[-3000:]}") from error
    return done.stdout.decode(errors="replace")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", help="bookworm, trixie, sid, ... (any Debian suite)")
    parser.add_argument("--dir", type=Path, help="folder shared as /out (default: a temporary one)")
    parser.add_argument("--timeout", type=float, default=1800.0, help="wall seconds (1800)")
    parser.add_argument("command", nargs="+", help="what to run in the guest, after --")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.dir or Path(scratch)).resolve()
        try:
            done = run(arguments.suite, shlex.join(arguments.command), folder, arguments.timeout)
        except GuestError as error:
            print(f"run.py: {error}", file=sys.stderr)
            return 1
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
