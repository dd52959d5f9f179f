"""The same runs in QEMU guests: any kernel, no root, and virtual time.

A guest executes one instruction per 2 ns of its own clock and skips idle time, so the network
inside sees an unhurried machine of 500 MIPS whatever the host does. What that changes: a run is
the same each time but for its seed; the wall time it takes depends on the packets and not on the
seconds; and a rate that such a machine cannot forward is beyond reach (measured, see
`run.capacity`), a few hundred Mbit/s at best.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

from .. import guest
from ..errors import HostError
from ..guest.kernel import newest_kernel
from ..guest.root import build_root
from . import estimate
from .scenario import Point

SUITE = "bookworm"
BATCH = 24

# While a guest waits for a file of the host, its idle time is skipped and timers run ahead. So the
# tools that run beside the traffic move to memory, and those that start before it are read once.
SETUP = """\
mkdir -p /run/bin /run/lib
for tool in ip tc ss iperf3 tcpdump ethtool sysctl; do
  path=$(command -v $tool) && cp $path /run/bin/ && cp $(ldd $path | grep -o '/[^ )]*') /run/lib/
done
for path in $(command -v bpftrace) $(command -v python3); do
  cat $path $(ldd $path | grep -o '/[^ )]*') > /dev/null
done
export LD_LIBRARY_PATH=/run/lib
"""


@contextmanager
def kernel_folder(kernel: Path | None) -> Iterator[Path | None]:
    """Give a kernel as the guest wants it: a folder with boot/ and lib/modules/.

    A bare image gets one around it, with no modules: it must have everything built in.

    Raises:
        HostError: neither a folder nor a kernel image.
    """
    if kernel is None or kernel.is_dir():
        yield kernel
        return
    release = image_release(kernel)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "boot").mkdir()
        shutil.copy(kernel, folder / f"boot/vmlinuz-{release}")
        modules = folder / "lib/modules" / release
        modules.mkdir(parents=True)
        (modules / "modules.dep").touch()
        yield folder


def image_release(image: Path) -> str:
    """Return the release that an x86 kernel image names in its header.

    See Documentation/arch/x86/boot.rst: "HdrS" at 0x202, kernel_version at 0x20e.
    """
    try:
        with image.open("rb") as content:
            head = content.read(0x10000)
    except OSError as error:
        raise HostError(f"cannot read {image}: {error.strerror}") from error
    at = 0x200 + int.from_bytes(head[0x20E:0x210], "little")
    text = head[at : at + 100].split(b"\0")[0].split(b" ")[0].decode(errors="replace")
    if head[0x202:0x206] != b"HdrS" or not text:
        raise HostError(
            f"{image} is no bzImage", "give arch/x86/boot/bzImage, or a folder with boot/vmlinuz-*"
        )
    return text


def release(kernel: Path | None) -> str:
    """Return the release of the kernel that a guest will boot.

    Raises:
        HostError: QEMU is missing, or the folder has no kernel.
    """
    if lacking := guest.missing_tools():
        raise HostError(
            f"a guest needs {', '.join(lacking)}",
            f"apt-get install {' '.join(lacking)}, or run as root without --vm",
        )
    return newest_kernel(kernel or build_root(SUITE)).release


def congestion_controls(kernel: Path | None) -> set[str] | None:
    """Return the congestion controls of the kernel, from its lists of modules; None: unknown."""
    modules = newest_kernel(kernel or build_root(SUITE)).modules
    text = "".join(
        (modules / name).read_text()
        for name in ("modules.dep", "modules.builtin")
        if (modules / name).exists()
    )
    found = set(re.findall(r"/net/ipv4/tcp_(\w+)\.ko", text)) - {"diag"}
    return found | {"reno"} if found else None


def run(
    points: list[tuple[int, Point]],
    words: list[str],
    own_file: Path | None,
    kernel: Path | None,
    jobs: int,
    folder: Path,
    say: Callable[[str], None],
    done: Callable[[Path], None],
) -> list[str]:
    """Make runs in guests, several per boot, `jobs` guests at once.

    Args:
        points: each with its number within the scenario as `words` tell it.
        words: arguments of `bbrscope lab run` inside that name the scenario and its parameters.
        own_file: the scenario's file when it is not in the catalogue.
        folder: where bundles go.
        say, done: called with what happens, and with each bundle, in the caller's thread.

    Returns:
        what went wrong, one text per guest.
    """
    share = max(1, min(BATCH, -(-len(points) // jobs)))
    batches = [points[at : at + share] for at in range(0, len(points), share)]
    problems = []
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = {
            pool.submit(_boot, batch, words, own_file, kernel, folder): batch for batch in batches
        }
        try:
            for future in as_completed(futures):
                bundles, text = future.result()
                for line in text:
                    say(line)
                problems += [line for line in text if line.startswith("failed")]
                for bundle in bundles:
                    done(bundle)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return problems


def _boot(
    batch: list[tuple[int, Point]],
    words: list[str],
    own_file: Path | None,
    kernel: Path | None,
    folder: Path,
) -> tuple[list[Path], list[str]]:
    """Boot one guest for these points; return its bundles and what it said."""
    with tempfile.TemporaryDirectory(prefix="bbrscope-vm-", dir=folder) as name:
        shared = Path(name)
        inside = ["bbrscope", "lab", "run", *words, "--inside", "-o", "/out/bundles"]
        inside += ["--points", ",".join(str(number) for number, _ in batch)]
        if own_file is not None:
            shutil.copy(own_file, shared / own_file.name)
        wall = 900 + 10 * sum(estimate.vm_s(point) for _, point in batch)
        text: list[str] = []
        try:
            ended = guest.run(SUITE, SETUP + shlex.join(inside), shared, wall, kernel)
            text = [line for line in ended.stderr.splitlines() if line.strip()]
            if ended.returncode:
                text.append(f"failed: the lab in the guest ended with status {ended.returncode}")
        except guest.GuestError as error:
            text.append(f"failed: {error.fact}")
        bundles = []
        for made in sorted((shared / "bundles").glob("*/manifest.json")):
            # A ".partial" was never finished: the guest ended in the middle.
            if made.parent.suffix != ".partial":
                target = folder / made.parent.name
                shutil.rmtree(target, ignore_errors=True)
                made.parent.rename(target)
                bundles.append(target)
    return bundles, text
