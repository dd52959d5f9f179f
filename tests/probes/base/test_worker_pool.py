"""Worker processes end with the process that made them, even if that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import runs, wait_until

# Two workers, of which one is at work.
MAKER = """
import os
import time
from bbrscope.probes.base.worker_pool import worker_pool

if __name__ == "__main__":
    pool = worker_pool(2)
    busy = pool.submit(time.sleep, 600)
    pool.submit(os.getpid).result()
    print(*pool._processes, flush=True)
    busy.result()
"""


@pytest.mark.parametrize("signal", ["KILL", "TERM"])
def test_workers_of_a_process_that_was_killed_end(signal: str, tmp_path: Path) -> None:
    (tmp_path / "maker.py").write_text(MAKER)
    with subprocess.Popen(
        [sys.executable, str(tmp_path / "maker.py")], stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        pids = maker.stdout.readline().split()
        assert len(pids) == 2
        os.kill(maker.pid, 9 if signal == "KILL" else 15)
    wait_until(lambda: not any(map(runs, pids)))
