"""`collect --follow` on this host: nothing of a short command is left untold."""

from __future__ import annotations

import sys
from pathlib import Path

from bbrscope.analyze.views.store_with_views import open_store

from tests.collect.record.test_record_host import (
    CONNECT,
    needs_bbr,
    needs_bpftrace,
    needs_btf,
    needs_root,
    ran,
)
from tests.recordings import bbrscope

# Over before a look-on, which is some 0.2 s behind, has seen a row.
SHORT = (
    CONNECT
    + """
client.sendall(b"x" * 30_000)
print(client.getsockname()[1], len(peer.recv(30_000, socket.MSG_WAITALL)), flush=True)
"""
)


@needs_root
@needs_bpftrace
@needs_bbr
@needs_btf
def test_the_story_of_a_short_command_is_told_to_its_end(tmp_path: Path) -> None:
    words = ["--no-packets", "-o", str(tmp_path / "short"), "--", sys.executable, "-c", SHORT]
    done = ran("--follow", *words)
    port, received = next(
        line.split() for line in done.stdout.splitlines() if line.endswith(" 30000")
    )
    assert received == "30000"
    store = tmp_path / "s.duckdb"
    bbrscope("ingest", "--store", str(store), str(tmp_path / "short"))
    with open_store(store, read_only=True) as opened:
        flows = opened.con.execute(
            "SELECT local_port, remote_port FROM flows WHERE events > 0"
            " AND ? IN (local_port, remote_port)",
            [int(port)],
        ).fetchall()
    assert flows
    for near, far in flows:
        ends = f"127.0.0.1:{near} > 127.0.0.1:{far}  seen first in STARTUP"
        assert ends in done.stdout, done.stdout + done.stderr
