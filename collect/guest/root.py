"""The root file systems that guests boot from: one Debian suite each, built once and kept.

Packages are unpacked, not installed: that needs no root, and nothing of another suite runs here.
What their maintainer scripts would have done, and a guest needs, is done by `finish`.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ...probes.base.errors import BbrscopeError
from .board import BOARDS, Board

# What a guest needs: what makes a Debian, what `collect` calls, and what makes traffic. Its busybox
# is in its initramfs.
PACKAGES = (
    "base-files base-passwd bash coreutils dash findutils grep gzip hostname libc-bin mawk mount "
    "sed sysvinit-utils tar util-linux bpftrace tcpdump iproute2 iperf3 ethtool "
    "procps kmod zstd python3 python3-click python3-zstandard busybox-static"
).split()
# What a suite lacks: there, only the script without Python records.
LACKING = {"bullseye": {"python3-zstandard"}, "buster": {"python3-zstandard", "bpftrace"}}
TOOLS = {
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "depmod": "kmod",
    "busybox": "busybox-static",
    "setpriv": "util-linux",
}
SBIN = "/usr/sbin:/sbin"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# An apt of our own: its lists, packages and idea of what is installed lie in `folder`. A mirror
# may lag behind this machine's clock; the signatures are checked all the same.
APT = """\
APT::Architecture "{architecture}";
APT::Architectures "{architecture}";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
Acquire::Languages "none";
Debug::NoLocking "true";
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
"""


class GuestError(BbrscopeError):
    """The guest could not be built, booted, or did not come back."""


def guests_folder() -> Path:
    """Where root file systems are cached: $BBRSCOPE_GUESTS or ~/.cache/bbrscope-guests."""
    return Path(os.environ.get("BBRSCOPE_GUESTS") or Path.home() / ".cache" / "bbrscope-guests")


def missing_tools(board: Board = BOARDS["amd64"]) -> list[str]:
    """Debian packages that must be installed before a guest of this machine can run."""
    path = os.environ.get("PATH", "") + ":" + SBIN
    tools = {**TOOLS, board.qemu: board.package}
    return [package for tool, package in tools.items() if not shutil.which(tool, path=path)]


def build_root(suite: str, architecture: str = "amd64") -> Path:
    """The suite's root file system, made from its packages when it is not there yet.

    `architecture` is Debian's name of the guest's machine. Whoever asks for it meanwhile waits.

    Raises:
        GuestError: its folder cannot be used, or a step of the building failed.
    """
    root = guests_folder() / (suite if architecture == "amd64" else f"{suite}-{architecture}")
    try:
        if root.is_dir():
            return root
        root.parent.mkdir(parents=True, exist_ok=True)
        held = root.with_suffix(".lock").open("w")
    except OSError as error:
        raise GuestError(
            f"cannot use {root.parent}, where guests are kept: {error.strerror}",
            "set BBRSCOPE_GUESTS to a folder of your own, with a gigabyte free",
        ) from error
    with held as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            print(f"building {root} (once)", file=sys.stderr)
            unpack(suite, root, architecture)
    return root


def unpack(suite: str, root: Path, architecture: str = "amd64") -> None:
    """Fetch the suite's packages and unpack them aside, then rename the result to `root`."""
    partial, packages = root.with_suffix(".partial"), root.with_suffix(".apt")
    for folder in (partial, packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (partial / "usr" / name).mkdir(parents=True)
        (partial / name).symlink_to(f"usr/{name}")
    for package in sorted(download(suite, packages, architecture)):
        content = f"dpkg-deb --fsys-tarfile {shlex.quote(str(package))}"
        into = f"tar -x --keep-directory-symlink -C {shlex.quote(str(partial))}"
        checked(["sh", "-c", f"{content} | {into}"])
    finish(partial)
    shutil.rmtree(packages)
    partial.rename(root)


def download(suite: str, folder: Path, architecture: str) -> list[Path]:
    """Fetch the suite's packages and what they depend on with an apt of our own in `folder`."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {suite} main\n")
    (folder / "apt.conf").write_text(APT.format(folder=folder, architecture=architecture))
    environment = {"APT_CONFIG": str(folder / "apt.conf")}
    checked(["apt-get", "-q", "update"], environment)
    lacking = LACKING.get(suite, set())
    wanted = [name for name in PACKAGES if name not in lacking]
    wanted.append(f"linux-image-{architecture}")
    checked(["apt-get", "-qy", "--download-only", "install", *wanted], environment)
    return list((folder / "cache/archives").glob("*.deb"))


def mirror() -> str:
    """The Debian mirror that this host's apt uses, or $BBRSCOPE_MIRROR.

    Raises:
        GuestError: apt knows none.
    """
    if given := os.environ.get("BBRSCOPE_MIRROR"):
        return given
    words = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Identifier: Packages"]
    listed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
    for line in listed.splitlines():
        label, _, address = line.partition(" ")
        if label == "Debian":
            return address
    raise GuestError(
        "apt on this host knows no Debian mirror",
        "apt-get update, or set BBRSCOPE_MIRROR to the address of one",
    )


def finish(root: Path) -> None:
    """Do what the packages' scripts would have done, as far as a guest needs it."""
    etc = root / "etc"
    for name in ("passwd", "group"):
        lines = (root / "usr/share/base-passwd" / f"{name}.master").read_text()
        (etc / name).write_text(lines)
    with (etc / "passwd").open("a") as users, (etc / "group").open("a") as groups:
        users.write("tcpdump:x:101:101::/nonexistent:/usr/sbin/nologin\n")
        groups.write("tcpdump:x:101:\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    for name, target in (("sh", "dash"), ("awk", "mawk")):
        link = root / "usr/bin" / name
        if not link.is_symlink():
            link.symlink_to(target)
    for release in (root / "usr/lib/modules").iterdir():
        checked(["depmod", "-b", str(root), release.name])


def checked(command: list[str], environment: dict[str, str] | None = None) -> None:
    """Run a build step; its output is shown only when it fails."""
    sbin = {"PATH": os.environ.get("PATH", "") + ":" + SBIN}
    done = subprocess.run(
        command,
        env={**os.environ, **sbin, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GuestError(f"{shlex.join(command)} failed:\n{done.stdout[-3000:]}")
