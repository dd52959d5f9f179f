"""A kernel to boot: its release, its image, and the modules that reach the root file system."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .root import GuestError

# Modules that must be in before the root file system can be mounted.
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p")

# What the guest says when it cannot mount its files.
NO_ROOT = "bbrscope: no root file system"

INITRAMFS_INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
while read module; do /bin/busybox insmod /modules/$module; done < /modules/order
options=trans=virtio,version=9p2000.L,msize=262144
# Without an init the kernel panics, and QEMU ends.
/bin/busybox mount -t 9p -o $options,cache=loose rootfs /root || { echo NO_ROOT; exit 1; }
/bin/busybox mkdir -p /root/out
/bin/busybox mount -t 9p -o $options out /root/out || { echo NO_ROOT; exit 1; }
exec /bin/busybox switch_root /root /bin/sh /out/.init
""".replace("NO_ROOT", f"'{NO_ROOT}'")


@dataclass(frozen=True)
class Kernel:
    """A bootable kernel: its release, its image, and the folder of its modules, if it has any."""

    release: str
    image: Path
    modules: Path | None


def find(place: Path) -> Kernel:
    """Return the kernel that `place` names: a bare image, or the newest of a folder.

    A bare image has no modules: everything must be built in.

    Raises:
        GuestError: neither an image nor a folder with one.
    """
    if place.is_dir():
        return newest_kernel(place)
    return Kernel(image_version(place).split(" ")[0], place, None)


def image_version(image: Path) -> str:
    """Return the release and version that an x86 kernel image names in its header, as uname -rv.

    See Documentation/arch/x86/boot.rst: "HdrS" at 0x202, kernel_version at 0x20e.

    Raises:
        GuestError: unreadable, or no such image.
    """
    try:
        with image.open("rb") as content:
            head = content.read(0x10000)
    except OSError as error:
        raise GuestError(f"cannot read {image}: {error.strerror}") from error
    at = 0x200 + int.from_bytes(head[0x20E:0x210], "little")
    text = head[at : at + 300].split(b"\0")[0].decode(errors="replace")
    if head[0x202:0x206] != b"HdrS" or not text:
        raise GuestError(
            f"{image} is no bzImage", "give arch/x86/boot/bzImage, or a folder with boot/vmlinuz-*"
        )
    # Between the two stands who built it.
    return re.sub(r"^(\S+) \(.*?\) ", r"\1 ", text)


def newest_kernel(folder: Path) -> Kernel:
    """The newest kernel below `folder`, laid out as kernel packages and `make install` do it.

    Modules lie in lib/modules/RELEASE or usr/lib/modules/RELEASE, the image beside them as vmlinuz
    or in boot/vmlinuz-RELEASE.

    Raises:
        GuestError: there is none.
    """
    kernels = []
    for modules in sorted([*folder.glob("lib/modules/*"), *folder.glob("usr/lib/modules/*")]):
        for image in (folder / f"boot/vmlinuz-{modules.name}", modules / "vmlinuz"):
            if image.exists():
                kernels.append(Kernel(modules.name, image, modules))
    if not kernels:
        raise GuestError(
            f"{folder} holds no kernel: lib/modules/RELEASE with boot/vmlinuz-RELEASE",
            "unpack a kernel package there with dpkg-deb -x",
        )
    return max(kernels, key=lambda kernel: [int(n) for n in numbers(kernel.release)])


def numbers(text: str) -> list[str]:
    """The numbers in a text, in order, as text."""
    return "".join(c if c.isdigit() else " " for c in text).split()


def module_order(modules: Path | None) -> list[Path]:
    """Files of BOOT_MODULES and what they depend on (modules.dep), in loading order."""
    if modules is None:
        return []
    listing = modules / "modules.dep"
    if not listing.exists():
        raise GuestError(f"{listing} is missing", f"depmod -b {modules.parents[2]} {modules.name}")
    needs: dict[str, list[str]] = {}
    for line in listing.read_text().splitlines():
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


def make_initramfs(modules: Path | None, target: Path, guests_busybox: Path) -> None:
    """Write a gzip cpio with busybox, the 9p modules and an init that switches to the 9p root.

    `guests_busybox` is a static one for the guest's machine; where the root has none, the host's
    own serves a guest of the host's kind.
    """
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        for folder in ("bin", "proc", "root", "modules"):
            (tree / folder).mkdir()
        busybox = shutil.which("busybox") or "/bin/busybox"
        inside = guests_busybox if guests_busybox.exists() else Path(busybox)
        shutil.copy(inside, tree / "bin/busybox")
        (tree / "init").write_text(INITRAMFS_INIT)
        (tree / "init").chmod(0o755)
        order = []
        for file in module_order(modules):
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
    """A module's bytes, whichever way its file is compressed."""
    tool = {".xz": "xz", ".zst": "zstd", ".gz": "gzip"}.get(file.suffix)
    if tool is None:
        return file.read_bytes()
    return subprocess.run([tool, "-dc", str(file)], stdout=subprocess.PIPE, check=True).stdout
