"""The fuzzer's short form: one input of each kind, and a few later commands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# A process of its own: what tests before this one hold is not the memory of an input.
WORKER = """
import sys
from pathlib import Path
from tests.fuzz.worker import Worker
worker = Worker(3, Path(sys.argv[1]), later=2)
worker.batch(0, 13)
print([worker.accepted, worker.refused, worker.commands])
"""


def test_an_input_of_each_kind_is_taken_or_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *lines, counts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in lines if line[0] != "begin"] == []
    accepted, refused, commands = counts
    assert accepted + refused == 9
    assert commands > 16
