"""Ctrl-Z and fg while packets are loaded: a write to tshark that is interrupted is finished."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import zstandard
from bbrscope import fixtures
from bbrscope.analyze.views.store_with_views import open_store

PROGRAM = "from bbrscope.reports.cli import main; main()"


def test_a_load_that_is_stopped_and_goes_on_loses_no_packet(tmp_path: Path) -> None:
    packed = (fixtures.path("v2_single_1bdp") / "packets.pcap.zst").read_bytes()
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    # A pipe takes less at once than what is read of a file.
    large = tmp_path / "large.pcap"
    large.write_bytes(plain + 2 * plain[24:])
    store = tmp_path / "store.duckdb"
    command = [sys.executable, "-c", PROGRAM, "ingest", str(large), "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as loading:
        while loading.poll() is None:
            loading.send_signal(signal.SIGSTOP)
            time.sleep(0.005)
            loading.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        assert loading.returncode == 0, loading.stderr.read().decode()
    with open_store(store) as opened:
        frames, damage = opened.con.execute("SELECT frames, damage FROM captures").fetchall()[0]
    assert damage is None
    assert frames % 3 == 0
    assert frames > 30_000
