"""Ctrl-C ends a query that DuckDB would not leave by itself."""

from __future__ import annotations

import signal
import subprocess
import sys

QUERY = """
import os, signal, threading
import duckdb
from bbrscope.collect.store.ending_queries import ctrl_c_ends_queries, interruptible
con = interruptible(duckdb.connect())
with ctrl_c_ends_queries():
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    con.sql("SELECT count(*) FROM range(1000000000000)").to_arrow_reader().read_all()
"""


def test_ctrl_c_ends_a_query() -> None:
    done = subprocess.run(
        [sys.executable, "-c", QUERY],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode
    assert "nterrupt" in done.stderr.splitlines()[-1]
