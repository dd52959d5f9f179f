"""The Python packages of a guest, for what the estimator does live."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bbrscope.collect.guest.root import build_root


def packages(suite: str, folder: Path) -> Path:
    """What the estimator and SQL need for the guest's Python: this one's, if they are alike."""
    inside = os.readlink(build_root(suite) / "usr/bin/python3").removeprefix("python")
    if inside == f"{sys.version_info.major}.{sys.version_info.minor}":
        (found,) = {Path(path) for path in sys.path if path.endswith("site-packages")}
        return found
    made = folder / "packages"
    words = ["--target", str(made), "--python-version", inside, "--only-binary=:all:"]
    install = [sys.executable, "-m", "pip", "install", "-q", *words, "click", "duckdb", "pyarrow"]
    subprocess.run([*install, "numpy", "zstandard"], check=True)
    return made
