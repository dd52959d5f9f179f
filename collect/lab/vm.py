"""The same runs in QEMU guests: any kernel, no root, and virtual time.

A guest executes one instruction per 2 ns of its own clock and skips idle time, so the network
inside sees an unhurried machine of 500 MIPS whatever the host does. What that changes: a run is
the same each time but for its seed; the wall time it takes depends on the packets and not on the
seconds; and a rate that such a machine cannot forward is beyond reach (measured, see
`run.capacity`), a few hundred Mbit/s at best.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Event

from ...probes.base.errors import HostError
from .. import guest
from ..guest.kernel import find, image_version
from ..guest.root import build_root
from . import estimate
from .interrupt import in_order
from .lab_points import LabPoint
from .lab_run import PARTIAL

SUITE = "bookworm"
BATCH = 24
SHARED = "bbrscope-vm-"
# How `bbrscope` begins what it says when it fails.
ERROR = "bbrscope: "

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


def version(kernel: Path | None) -> str:
    """Return the release and version of the kernel that a guest will boot, as uname -rv.

    Raises:
        HostError: QEMU is missing.
        GuestError: there is no kernel.
    """
    if lacking := guest.missing_tools():
        raise HostError(
            f"a guest needs {', '.join(lacking)}",
            f"apt-get install {' '.join(lacking)}, or run as root without --vm",
        )
    return image_version(find(kernel or build_root(SUITE)).image)


def congestion_controls(kernel: Path | None) -> set[str] | None:
    """Return the congestion controls of the kernel, from its lists of modules; None: unknown."""
    modules = find(kernel or build_root(SUITE)).modules
    if modules is None:
        return None
    text = "".join(
        (modules / name).read_text()
        for name in ("modules.dep", "modules.builtin")
        if (modules / name).exists()
    )
    modules_found = set(re.findall(r"/net/ipv4/tcp_(\w+)\.ko", text)) - {"diag"}
    return modules_found | {"reno"} if modules_found else None


def run(
    points: list[tuple[int, LabPoint]],
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
        kernel: see `guest.run`.
        folder: where bundles go.
        say, done: called with what happens, and with each bundle once it is there, in the
            caller's thread.

    Returns:
        what went wrong, one text per guest.

    Raises:
        InterruptedLabError: a signal came; guests are ended, and what they have finished is kept.
    """
    share = max(1, min(BATCH, -(-len(points) // jobs)))
    batches = [points[at : at + share] for at in range(0, len(points), share)]
    problems, left = [], len(batches)
    guests = Guests(words, own_file, kernel, folder)
    with in_order(), ThreadPoolExecutor(max_workers=jobs) as pool:
        for batch in batches:
            pool.submit(guests.boot, batch)
        try:
            while left:
                match guests.news.get():
                    case Path() as bundle:
                        done(bundle)
                    case str(text):
                        say(text)
                    case list(failures):
                        left -= 1
                        problems += failures
        except BaseException:
            guests.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return problems


@dataclass
class Guests:
    """Guests that make runs, for threads to wait for.

    Attributes:
        news: what they say, the bundles they finish, and a list of failures at the end of each.
        stop: ends them all.
    """

    words: list[str]
    own_file: Path | None
    kernel: Path | None
    folder: Path
    news: SimpleQueue[Path | str | list[str]] = field(default_factory=SimpleQueue)
    stop: Event = field(default_factory=Event)

    def boot(self, batch: list[tuple[int, LabPoint]]) -> None:
        """Boot one guest for these points, and wait for it."""
        failures: list[str] = []
        try:
            with shared_folder(self.folder) as shared:
                failures = self._make(batch, shared)
        except Exception as error:
            failures = [str(error)]
        finally:
            self.news.put(failures)

    def _make(self, batch: list[tuple[int, LabPoint]], shared: Path) -> list[str]:
        inside = ["bbrscope", "lab", "run", *self.words, "--inside", "-o", "/out/bundles"]
        inside += ["--points", ",".join(str(number) for number, _ in batch)]
        if self.own_file is not None:
            shutil.copy(self.own_file, shared / self.own_file.name)
        wall = 900 + 10 * sum(estimate.vm_s(point) for _, point in batch)

        def keep() -> None:
            for bundle in rescue(shared, self.folder):
                self.news.put(bundle)

        def watch() -> None:
            keep()
            if self.stop.is_set():
                raise guest.GuestError("stopped")

        try:
            command = SETUP + shlex.join(inside)
            ended = guest.run(SUITE, command, shared, wall, self.kernel, watch)
        except guest.GuestError as error:
            return [f"{error.fact}; {error.way_out}" if error.way_out else error.fact]
        finally:
            keep()
        lines = [line for line in ended.stderr.splitlines() if line.strip()]
        for line in lines:
            self.news.put(line)
        if not ended.returncode:
            return []
        why = [line for line in lines if line.startswith(ERROR)] or [str(ended.returncode)]
        return [f"the lab in a guest failed: {why[-1].removeprefix(ERROR)}"]


@contextmanager
def shared_folder(folder: Path) -> Iterator[Path]:
    """Make a folder to share with a guest, and remove it; while it is in use, it is locked."""
    with tempfile.TemporaryDirectory(prefix=SHARED, dir=folder) as name:
        held = os.open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(held)


def take_over(folder: Path) -> None:
    """Keep the runs that a lab which was killed had finished, and remove its shared folders."""
    for shared in folder.glob(f"{SHARED}*/"):
        held = os.open(shared, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # of a lab that is running
        else:
            rescue(shared, folder)
            shutil.rmtree(shared, ignore_errors=True)
        finally:
            os.close(held)


def rescue(shared: Path, folder: Path) -> list[Path]:
    """Move finished bundles out of a guest's folder; return where they are now."""
    moved = []
    for manifest_path in sorted(shared.glob("bundles/*/manifest.json")):
        if manifest_path.parent.suffix == PARTIAL:
            continue  # not finished yet, or never
        target = folder / manifest_path.parent.name
        shutil.rmtree(target, ignore_errors=True)
        manifest_path.parent.rename(target)
        moved.append(target)
    return moved
