"""What the script recorded on Debian 11: Linux 5.10 without types of modules, bpftrace 0.11.3.

`debian_11` has three sockets of the 104 whose flows it recorded there by kprobe: a flow of
1 MB over 10 Mbit/s from a network namespace, with one over loopback before it on the same socket,
and two more over loopback, one of them IPv6. A call of main() is seven rows: bpftrace 0.11 takes
texts of 64 bytes.
"""

from __future__ import annotations

from pathlib import Path

from bbrscope.analyze.views.store_with_views import open_store

from tests.recordings import bbrscope, exact_events

BUNDLE = Path(__file__).parent / "debian_11"
# Addresses, remote port, events, packets sent again, events before init.
FLOWS = [
    ("127.0.0.1", "127.0.0.1", 43666, 15, 0, 1),
    ("::1", "::1", 50937, 15, 0, 1),
    ("127.0.0.1", "127.0.0.1", 54281, 15, 0, 1),
    ("10.0.1.2", "10.0.2.2", 5201, 591, 77, 0),
]


def test_it_is_read_whole_and_replays_exactly(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    bbrscope("ingest", "--store", str(store), str(BUNDLE))
    assert exact_events(store) == 2 * (14 + 14 + 14 + 591)
    with open_store(store, read_only=True) as opened:
        flows = opened.con.execute(
            "SELECT local_address, remote_address, remote_port, events, retransmits, pre_init"
            " FROM flows ORDER BY flow"
        ).fetchall()
        (run,) = opened.con.execute(
            "SELECT kernel, rung, hz, half_events, missing_exits, quality_notes FROM runs"
        ).fetchall()
        gaps = opened.con.execute("SELECT kind FROM gaps").fetchall()
    assert run == ("5.10.0-32-amd64", "kprobe", 250, 0, 0, 0)
    assert gaps == []
    assert flows == FLOWS


def test_its_account_has_an_exit_for_every_entry() -> None:
    said = bbrscope("doctor", "--bundle", str(BUNDLE))
    assert "recorded by kprobe" in said
    assert "0 numbers missing" in said
