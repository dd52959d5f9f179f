"""Run a command under a real distribution kernel, in a QEMU guest with virtual time.

    python -m bbrscope.collect.guest bookworm -- uname -r     # Debian 12: 6.1, bpftrace 0.17
    python -m bbrscope.collect.guest trixie --dir out -- sh -c 'bbrscope doctor > /out/doctor'

No root is needed. The first run of a suite fetches its packages with the host's apt and unpacks
them (a minute or two, a gigabyte in ~/.cache/bbrscope-guests); later runs boot in about 30 s.

What the guest sees: the suite's own files (writable, shared by all guests of the suite), the
command `bbrscope` of this installation (its files read-only in /opt/bbrscope), `--dir` at /out,
proc, sys, tracefs and bpf mounted, root. `--kernel FOLDER` boots another kernel under the same
files: FOLDER/lib/modules/RELEASE with FOLDER/boot/vmlinuz-RELEASE, as `dpkg-deb -x` of a kernel
package leaves them (run depmod -b FOLDER RELEASE).

The guest has what plain recording needs. What the estimator does live (`top`, `collect --follow`,
`exporter`, a decision's code or `sql:` after --until) needs the packages that bbrscope needs, for
its Python, 3.11 in bookworm; share them, and let the estimator run as plain Python, without
compiling it:

    pip install --target packages --python-version 3.11 --only-binary=:all: .
    python -m bbrscope.collect.guest bookworm --packages packages -- \\
      env BBRSCOPE_PLAIN=1 bbrscope top --once --json

The site-packages of a Python of the same version will do, too. On a guest's processor plain Python
keeps up with some 100 calls of BBR a second; a trigger is of the time of its row all the same, and
tells how much later it was seen.

Time is virtual (`-icount`): one instruction takes 2 ns whatever the host does, and idle time is
skipped, so a flow in the guest does not notice a busy host. With --cpus 2 or more it is the host's
time, and flows do notice. Exit status is the command's.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from . import GuestError, run
from .board import BOARDS


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bbrscope.collect.guest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", help="bookworm, trixie, sid, ... (any Debian suite)")
    parser.add_argument("--dir", type=Path, help="folder shared as /out (default: a temporary one)")
    parser.add_argument(
        "--arch", choices=sorted(BOARDS), default="amd64", help="the guest's machine (amd64)"
    )
    parser.add_argument("--cpus", type=int, default=1, help="its processors (1)")
    parser.add_argument("--kernel", type=Path, help="another kernel: a folder, or a bzImage")
    parser.add_argument("--packages", type=Path, help="folder of packages for the guest's Python")
    parser.add_argument("--timeout", type=float, default=1800.0, help="wall seconds (1800)")
    parser.add_argument("command", nargs="+", help="what to run in the guest, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.dir or Path(scratch)
        try:
            done = run(
                given.suite,
                shlex.join(given.command),
                folder,
                given.timeout,
                given.kernel,
                architecture=given.arch,
                cpus=given.cpus,
                packages=given.packages,
            )
        except GuestError as error:
            print(error.fact, error.way_out, sep="\n", file=sys.stderr)
            return 1
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
