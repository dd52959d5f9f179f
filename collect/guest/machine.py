"""Booting a guest around one command, and bringing back what it printed and wrote."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .board import BOARDS, Board
from .kernel import NO_ROOT, find, make_initramfs
from .root import GuestError, build_root, missing_tools

# The folder that holds the packages probes, collect, ...: site-packages/bbrscope, or a checkout.
PACKAGE = Path(__file__).resolve().parents[2]

NAME = "bbrscope"

# How often a running guest is looked at.
TICK_S = 0.2

# pid 1 in the guest. What is bound to fail without a kernel of one's own may: its modules.
INIT = """#!/bin/sh
export PATH=/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts; mount -t devpts pts /dev/pts
ln -s /proc/self/fd /dev/fd; ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t tmpfs tmp /tmp; mount -t tmpfs run /run
mount -t debugfs debug /sys/kernel/debug; mount -t tracefs trace /sys/kernel/tracing
mount -t bpf bpf /sys/fs/bpf; mount -t cgroup2 cgroup /sys/fs/cgroup
mkdir -p /opt/bbrscope /run/bin
options=trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro
mount -t 9p -o $options package /opt/bbrscope
mount -t 9p -o $options modules /lib/modules 2> /run/no-modules
mkdir /run/packages; mount -t 9p -o $options packages /run/packages 2> /run/no-packages
# A wait for a file on the host lets virtual time leap ahead: what is large is read beforehand.
cat $(ldd /usr/bin/bpftrace | grep -o ' /[^ ]*') /usr/bin/bpftrace > /dev/null
cat > /run/bin/bbrscope <<'EOF'
#!/usr/bin/python3
import sys, types
sys.path[:0] = ["/opt", "/out/.package", "/run/packages"]
# The files that are shared, whatever bbrscope may be among the packages.
sys.modules["bbrscope"] = shared = types.ModuleType("bbrscope")
shared.__path__ = ["/opt/bbrscope"]
from bbrscope.reports.entry import main
main()
EOF
chmod +x /run/bin/bbrscope
ip link set lo up; hostname guest
cd /tmp
echo 3 > /proc/sys/kernel/printk
export PYTHONPATH=/opt:/out/.package:/run/packages
/bin/sh /out/.command < /dev/null > /out/.stdout 2> /out/.stderr
echo $? > /out/.status
sync
echo o > /proc/sysrq-trigger; sleep 60
"""


def run(
    suite: str,
    command: str,
    folder: Path,
    timeout_s: float = 1800.0,
    kernel: Path | None = None,
    watch: Callable[[], None] | None = None,
    architecture: str = "amd64",
    cpus: int = 1,
    packages: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Boot `suite`, run the shell `command` as root, and return its output and exit status.

    Args:
        suite: a Debian suite; its root file system is built when it is not there yet.
        command: shell text; `bbrscope` in it is this package, which lies in /opt/bbrscope.
        folder: /out inside the guest; what the command writes there stays.
        timeout_s: wall time after which the guest is ended.
        kernel: to boot instead of the suite's own: a folder with lib/modules/RELEASE and
            boot/vmlinuz-RELEASE (`dpkg-deb -x linux-image-*.deb FOLDER` makes one), or a bare
            bzImage with everything built in.
        watch: called every TICK_S; what it raises ends the guest.
        architecture: a key of BOARDS, Debian's name of the guest's machine.
        cpus: how many processors it has; with more than one, time is the host's.
        packages: a folder of packages for the guest's Python, which it sees in /run/packages; a
            bbrscope among them is not what the command `bbrscope` runs.

    Raises:
        GuestError: the guest cannot boot, or does not finish in time; there are no `packages`.
    """
    board = BOARDS[architecture]
    if packages is not None and not packages.is_dir():
        raise GuestError(f"{packages} is no folder of packages", "pip install --target makes one")
    if lacking := missing_tools(board):
        raise GuestError("a guest needs QEMU", f"apt-get install {' '.join(lacking)}")
    root = build_root(suite, architecture)
    chosen = find((kernel or root).resolve())
    folder = folder.resolve()
    _write_orders(folder, command)
    shares = {"rootfs": (root, ""), "package": (PACKAGE, ",readonly=on"), "out": (folder, "")}
    if kernel is not None and chosen.modules is not None:
        shares["modules"] = (chosen.modules.parent, ",readonly=on")
    if packages is not None:
        shares["packages"] = (packages.resolve(), ",readonly=on")
    make_initramfs(chosen.modules, folder / ".initramfs", root / "usr/bin/busybox")
    machine = Machine(board, chosen.image, folder / ".initramfs", shares, cpus)
    console = boot(machine, timeout_s, watch)
    _require_end(folder, console, chosen.release)
    return _collect_output(folder, command)


def _write_orders(folder: Path, command: str) -> None:
    """Put into the shared folder what the guest is to run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".command").write_text(command)
    (folder / ".init").write_text(INIT)
    _write_version(folder / ".package")


def _require_end(folder: Path, console: str, release: str) -> None:
    """Raise GuestError if the command did not come to its end."""
    if NO_ROOT in console:
        raise GuestError(
            f"the kernel {release} cannot mount the guest's files: it lacks 9p over virtio",
            "build it with CONFIG_9P_FS=y, CONFIG_NET_9P_VIRTIO=y and CONFIG_VIRTIO_PCI=y, or name "
            "a folder that has its modules, too",
        )
    if not (folder / ".status").exists():
        raise GuestError(f"the guest ({release}) ended early; its console:\n{console[-3000:]}")


def _collect_output(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Read how the command ended and what it printed; remove what only the guest needed."""
    result = subprocess.CompletedProcess(
        command,
        int((folder / ".status").read_text()),
        (folder / ".stdout").read_text(errors="replace"),
        (folder / ".stderr").read_text(errors="replace"),
    )
    for left in (".initramfs", ".command", ".init", ".stdout", ".stderr", ".status"):
        (folder / left).unlink(missing_ok=True)
    shutil.rmtree(folder / ".package", ignore_errors=True)
    return result


def _write_version(folder: Path) -> None:
    """Write what Python asks for a package's version: the guest has its files, no installation."""
    try:
        version = metadata.version(NAME)
    except metadata.PackageNotFoundError:
        version = "0+unknown"
    information = folder / f"{NAME}-{version}.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n"
    (information / "METADATA").write_text(text)


@dataclass(frozen=True)
class Machine:
    """What is booted: a board, a kernel image, its initramfs, folders to share, processors.

    `shares` are 9p mount tags with the folder behind each and further options of QEMU's -fsdev.
    """

    board: Board
    image: Path
    initramfs: Path
    shares: dict[str, tuple[Path, str]]
    cpus: int = 1

    def command(self) -> list[str]:
        """QEMU's command line."""
        command = [self.board.qemu, *self.board.options, "-smp", str(self.cpus), "-m", "2500"]
        # In virtual time several CPUs do not get past the firmware (QEMU 7.2).
        virtual = ["tcg,thread=single", "-icount", "shift=1,sleep=off"]
        command += ["-accel", *(virtual if self.cpus == 1 else ["tcg,thread=multi"])]
        command += ["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio"]
        command += ["-kernel", str(self.image), "-initrd", str(self.initramfs)]
        command += ["-append", f"console={self.board.console} mitigations=off quiet panic=-1"]
        for tag, (path, options) in self.shares.items():
            local = f"local,id={tag},path={path},security_model=none,multidevs=remap{options}"
            command += ["-fsdev", local, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        return command


def boot(machine: Machine, timeout_s: float, watch: Callable[[], None] | None = None) -> str:
    """Boot and wait for power-off; return the console's text.

    Whatever ends this process, or the thread that waits here, ends the guest.

    Raises:
        GuestError: it took longer than `timeout_s`.
    """
    # setpriv: the kernel ends QEMU with us (PR_SET_PDEATHSIG), also after kill -9. Its own process
    # group: Ctrl-C is for us to handle.
    command = ["setpriv", "--pdeathsig", "KILL", "--", *machine.command()]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )
    try:
        return _console(process, timeout_s, watch or (lambda: None))
    finally:
        process.kill()
        process.wait()


def _console(process: subprocess.Popen[bytes], timeout_s: float, watch: Callable[[], None]) -> str:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return process.communicate(timeout=TICK_S)[0].decode(errors="replace")
        except subprocess.TimeoutExpired as waiting:
            watch()
            if time.monotonic() > deadline:
                text = (waiting.stdout or b"").decode(errors="replace")
                raise GuestError(
                    f"the guest ran longer than {timeout_s} s:\n{text[-3000:]}"
                ) from None
