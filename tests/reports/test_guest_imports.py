"""What runs in a guest, or on a host that only records, has Python, click and zstandard only."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib, sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LACKING:
            raise ModuleNotFoundError(name, name=name)
LACKING = {"numpy", "numba", "duckdb", "polars", "pyarrow", "altair", "jinja2"}
sys.meta_path.insert(0, Lacking())
"""
IMPORT = "importlib.import_module(sys.argv[1])"
COMMAND = "from bbrscope.reports.cli import main; main(sys.argv[1:])"


@pytest.mark.parametrize(
    "module",
    [
        "bbrscope.reports.commands.collect",
        "bbrscope.reports.commands.doctor",
        "bbrscope.reports.commands.lab",
        "bbrscope.reports.lab.lab_runs",
        "bbrscope.collect.record.recording",
        "bbrscope.collect.flight.flight_recorder",
        "bbrscope.reports.live.flight",
        "bbrscope.collect.lab.lab_run",
        "bbrscope.collect.lab.traffic",
    ],
)
def test_what_records_is_imported_without_what_analyses(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + IMPORT, module],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_a_command_that_analyses_says_which_package_this_host_lacks() -> None:
    command = [sys.executable, "-c", PROGRAM + COMMAND, "top", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "needs the Python package" in done.stderr
    assert "internal error" not in done.stderr
