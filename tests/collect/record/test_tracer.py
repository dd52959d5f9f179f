"""A bpftrace that dies while it attaches: how it ended is said, its standing remarks are not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.collect.record.test_record_host import (
    collect,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
)

CRASHING = """#!/bin/sh
case "$*" in *.bt) ;; *) exec {real} "$@" ;; esac
echo "WARNING: BPFTRACE_MAP_KEYS_MAX is deprecated. Use BPFTRACE_MAX_MAP_KEYS instead." >&2
kill -SEGV $$
"""


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_a_crash_while_attaching_is_told_as_a_signal(tmp_path: Path) -> None:
    """As that of bpftrace 0.23 at what it cannot compile: it says nothing itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "bpftrace").write_text(CRASHING.format(real=shutil.which("bpftrace")))
    (folder / "bpftrace").chmod(0o755)
    done = subprocess.run(
        collect("--rung", "tcp_probe", "-d", "1", "--no-packets", "-o", str(tmp_path / "run")),
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "bpftrace did not attach (signal 11)\n" in done.stderr
    assert "deprecated" not in done.stderr
